//! Requests joined with the steps that served them, by time, their waits for the prompts of others, and the GPU time of each.

use super::Step;
use crate::numbers;
use crate::result::{
    JoinedLatency, LatencyPart, NotKnown, Receipt, Receipts, RequestStats, StageKind, Stalls,
};
use crate::timeline::{CoveredTime, IntervalSet};
use roofgap_base::stats::percentile;
use roofgap_trace::account::RequestTimes;
use roofgap_trace::{Ns, Trace};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

/// Largest step of the wall clock during the window that leaves the join meaningful, ns.
const MOST_CLOCK_CHANGE: u64 = 1_000_000;

/// Splits the latency of the requests by what the engine did meanwhile. The time per token is left to [`token_time`].
pub fn join(steps: &[Step], requests: &RequestStats) -> Result<JoinedLatency, &'static str> {
    if requests.each.is_empty() {
        return Err("the account of the load has no times of single requests");
    }
    if requests.clock_change_ns.is_some_and(|change| change.unsigned_abs() > MOST_CLOCK_CHANGE) {
        return Err("the wall clock was set while the load ran");
    }
    let engine = EngineTime::new(steps);
    let parts: Vec<Ttft> =
        requests.each.iter().filter_map(|times| engine.ttft(times, requests.start_unix_ns)).collect();
    if parts.is_empty() {
        return Err(
            "no recorded step read a prompt between a request and its first token: the steps were recorded at another time",
        );
    }
    let mut all: Vec<Ns> = parts.iter().map(|parts| parts.iter().sum()).collect();
    all.sort_unstable();
    let is_slow = |parts: &&Ttft| Some(parts.iter().sum()) >= percentile(&all, 0.99);
    let slowest: Vec<&Ttft> = parts.iter().filter(is_slow).collect();
    let part = |name: &str, of: Range<usize>| {
        let sum = |parts: &Ttft| parts[of.clone()].iter().sum::<Ns>();
        let mut values: Vec<Ns> = parts.iter().map(sum).collect();
        values.sort_unstable();
        LatencyPart {
            part: name.to_owned(),
            mean_ns: values.iter().sum::<Ns>() / values.len().max(1) as i64,
            p50_ns: percentile(&values, 0.5),
            p90_ns: percentile(&values, 0.9),
            slowest_ns: Some(
                slowest.iter().map(|parts| sum(parts)).sum::<Ns>() / slowest.len().max(1) as i64,
            ),
        }
    };
    let mut ttft = vec![
        part("time to first token", 0..5),
        part("behind other steps", 0..1),
        part("before its step, no step runs", 1..2),
    ];
    if steps.iter().any(|step| step.gpu.is_some()) {
        ttft.extend([part("prefill, GPU busy", 2..3), part("prefill, GPU idle", 3..4)]);
    } else {
        ttft.push(part("prefill", 2..4));
    }
    ttft.push(part("after its step", 4..5));
    Ok(JoinedLatency {
        requests: requests.each.len() as u64,
        joined: parts.len() as u64,
        clock_change_ns: requests.clock_change_ns,
        ttft,
        token_time: Vec::new(),
    })
}

/// Parts of the time to first token of one request, ns: before its own steps, in steps that served others and in no step; in its own steps, with the
/// GPU busy and with the GPU idle; from the end of its last own step to the first token.
type Ttft = [Ns; 5];

/// The steps of an engine, for lookups by time.
struct EngineTime {
    /// Steps that read prompts, by their end.
    reading: Vec<Step>,
    covered: CoveredTime,
}

impl EngineTime {
    fn new(steps: &[Step]) -> Self {
        let reads = |step: &&Step| matches!(step.kind, StageKind::Prefill | StageKind::Mixed);
        let mut reading: Vec<Step> = steps.iter().filter(reads).copied().collect();
        reading.sort_by_key(|step| step.time().1);
        let times = steps.iter().map(Step::time).collect();
        Self { reading, covered: CoveredTime::of(IntervalSet::of(times)) }
    }

    /// Splits the time to first token. The step that generated the token is the last one that read prompts and ended before the token
    /// arrived; a prompt longer than its tokens was read by the steps before it too.
    fn ttft(&self, times: &RequestTimes, origin: Ns) -> Option<Ttft> {
        let (start, first) = (origin.checked_add(times.start_ns)?, origin.checked_add(times.first_ns)?);
        let after = self.reading.partition_point(|step| step.time().1 <= first);
        let mut reading: Vec<&Step> = Vec::new();
        let mut tokens = 0u64;
        for step in self.reading.get(..after)?.iter().rev() {
            if step.time().0 < start {
                break;
            }
            reading.push(step);
            tokens = tokens.saturating_add(step.scheduled.context.tokens.unwrap_or(u64::MAX));
            if tokens >= times.prompt_tokens.unwrap_or(0) {
                break;
            }
        }
        let (last, earliest) = (reading.first()?, reading.last()?);
        let (begin, end) = (earliest.time().0, last.time().1);
        let inside: Ns = reading.iter().map(|step| step.time().1 - step.time().0).sum();
        let gpu: Ns = reading.iter().map(|step| if step.gpu.is_some() { step.busy_ns } else { 0 }).sum();
        let other_before = self.covered.overlap(start, begin);
        // Between the parts of a long prompt, other steps may run.
        let between = (end - begin - inside).max(0);
        let other_between = (self.covered.overlap(begin, end) - inside).clamp(0, between);
        let inside = inside.min(end - begin);
        Some([
            other_before + other_between,
            (begin - start - other_before) + (between - other_between),
            gpu.min(inside),
            inside - gpu.min(inside),
            first - end,
        ])
    }
}

/// Splits the mean time per token after the first: in steps that generate, waiting for prefill steps, and the rest.
pub fn token_time(steps: &[Step], requests: &RequestStats) -> Result<Vec<LatencyPart>, NotKnown> {
    let (mut time, mut tokens) = (0i128, 0i128);
    for each in &requests.each {
        let count = i128::from(each.output_tokens.unwrap_or(0));
        if count > 1 {
            time += i128::from(each.last_ns) - i128::from(each.first_ns);
            tokens += count - 1;
        }
    }
    let (from, to) = (requests.start_unix_ns, requests.start_unix_ns.saturating_add(requests.window_ns));
    let inside: Vec<Step> =
        steps.iter().filter(|step| (from..=to).contains(&step.time().0)).copied().collect();
    let (mut in_steps, mut generated) = (0i128, 0i128);
    for step in &inside {
        let count = i128::from(step.generating().unwrap_or(0));
        in_steps += i128::from(step.time().1 - step.time().0) * count;
        generated += count;
    }
    if tokens == 0 {
        let why =
            "the account of the load does not give the tokens of the answers, or none has a second token";
        return Err(why.into());
    }
    if generated == 0 {
        return Err("no recorded step names the requests that generate in it".into());
    }
    let stalled = i128::from(stalls(&inside).request_ns) / generated;
    let (mean, in_own_steps) = (time / tokens, in_steps / generated);
    if in_own_steps + stalled > mean {
        return Err(format!(
            "requests get a token every {} on average, but their recorded steps and the waits for prefill steps take {}: steps overlap, or \
             most tokens were generated while nothing was recorded",
            numbers::time(mean as Ns),
            numbers::time((in_own_steps + stalled) as Ns)
        )
        .into());
    }
    let part = |name: &str, mean_ns: i128| LatencyPart {
        part: name.to_owned(),
        mean_ns: mean_ns as i64,
        ..LatencyPart::default()
    };
    Ok(vec![
        part("time per token after the first", mean),
        part("in steps that generate", in_own_steps),
        part("waiting for prefill steps", stalled),
        part("outside of steps", mean - in_own_steps - stalled),
    ])
}

/// Finds the prefill steps between two steps that generate. Of the requests in the later one, those that did not read a
/// prompt in between have waited.
pub fn stalls(steps: &[Step]) -> Stalls {
    let mut stalls = Stalls::default();
    // Requests and end of the last step that generated, and the prefill steps since.
    let (mut before, mut ended) = (0, None);
    let mut between: Vec<&Step> = Vec::new();
    for step in steps {
        if step.kind == StageKind::Prefill {
            between.push(step);
            continue;
        }
        let now = step.generating().unwrap_or(0);
        if !between.is_empty() {
            let new: Option<u64> = between.iter().map(|step| step.scheduled.context.requests).sum();
            let waiting = new.map_or(0, |new| now.saturating_sub(new).min(before));
            if waiting > 0 {
                let times = between.iter().map(|step| step.time());
                let total: i64 = times.map(|(start, end)| end - start).sum();
                stalls.steps += between.len() as u64;
                stalls.total_ns += total;
                stalls.request_ns = stalls.request_ns.saturating_add(total.saturating_mul(waiting as i64));
                let pause = ended.map_or(0, |ended| step.time().0 - ended);
                stalls.longest_ns = stalls.longest_ns.max(pause);
            }
            between.clear();
        }
        (before, ended) = (now, Some(step.time().1));
    }
    stalls
}

/// Beginning of a mark in a step: id and tokens of its requests, as `a:512p b:1`, with a `p` for tokens of a prompt. It holds until the next
/// one of the process.
const REQUESTS: &str = "roofgap:requests ";

/// Most receipts that are listed.
const MOST: usize = 1_000;

/// Divides the steps of one process over their requests; `None` where nothing says which requests were in a step. Requests of `load` have
/// their `traceparent` in their ids.
pub fn receipts(trace: &Trace, steps: &[Step], load: Option<&RequestStats>) -> Option<Receipts> {
    let process = steps.first()?.process;
    let of_process = |mark: &&roofgap_trace::Mark| {
        trace.threads.get(mark.thread.index()).is_some_and(|thread| thread.process == process)
    };
    let marks: Vec<(Ns, &str)> = trace
        .ranges
        .marks
        .iter()
        .filter(of_process)
        .filter_map(|mark| Some((mark.at, trace.names.get(mark.name).strip_prefix(REQUESTS)?)))
        .collect();
    if marks.is_empty() {
        return None;
    }
    let begin_ns = trace.span().map_or(0, |span| span.0);
    let mut sums = Receipts { begin_ns, begin_unix_ns: trace.unix_ns(begin_ns), ..Receipts::default() };
    let mut requests: BTreeMap<&str, Receipt> = BTreeMap::new();
    let mut covered = Ns::MIN;
    for step in steps {
        let busy_ns = step.busy_ns;
        let idle_ns = step.gpu.map_or(0, |(start, end)| (end - start - busy_ns).max(0));
        sums.steps += 1;
        sums.busy_ns += busy_ns;
        sums.idle_ns += idle_ns;
        let before = marks.partition_point(|(at, _)| *at <= step.cpu.1);
        let (start, end) = step.time();
        // Steps may begin before the one before them has ended.
        let alone_ns = (end - start.max(covered)).max(0);
        covered = covered.max(end);
        let inside: Vec<(&str, u64, bool)> = match before.checked_sub(1).and_then(|at| marks.get(at)) {
            Some((_, text)) => text.split(' ').filter_map(request).collect(),
            None => Vec::new(),
        };
        let tokens: Vec<u64> = inside.iter().map(|(_, tokens, _)| *tokens).collect();
        let prompts = inside.iter().filter(|(.., is_prompt)| *is_prompt).count();
        let all: u64 = tokens.iter().sum();
        if all == 0 {
            sums.unassigned_steps += 1;
            sums.unassigned_ns += busy_ns + idle_ns;
            continue;
        }
        let (busy, idle) = (divided(busy_ns, &tokens), divided(idle_ns, &tokens));
        for (((id, tokens, is_prompt), busy_ns), idle_ns) in inside.into_iter().zip(busy).zip(idle) {
            let receipt = requests.entry(id).or_insert_with(|| Receipt {
                id: id.to_owned(),
                start_ns: start - begin_ns,
                ..Receipt::default()
            });
            receipt.steps += 1;
            receipt.tokens += tokens;
            receipt.busy_ns += busy_ns;
            receipt.idle_ns += idle_ns;
            receipt.end_ns = end - begin_ns;
            if is_prompt {
                receipt.prompt_end_ns = Some(receipt.end_ns);
                receipt.prompt_ns += alone_ns;
            } else if prompts > 0 {
                receipt.behind_prompts_ns += alone_ns;
            }
        }
    }
    sums.requests = requests.len() as u64;
    let begin_unix_ns = begin_ns.saturating_add(trace.utc_offset);
    sums.of_load = load.and_then(|load| add_load(&mut requests, load, begin_unix_ns));
    let mut all: Vec<Receipt> = requests.into_values().collect();
    all.sort_by_key(|receipt| Reverse(receipt.busy_ns + receipt.idle_ns));
    let others = all.split_off(all.len().min(MOST));
    sums.others_ns = others.iter().map(|receipt| receipt.busy_ns + receipt.idle_ns).sum();
    sums.each = all;
    Some(sums)
}

/// Adds when `load` sent the requests and had their answers; returns how many of the requests are from that load, `None` where its requests have no trace.
fn add_load(requests: &mut BTreeMap<&str, Receipt>, load: &RequestStats, begin_unix_ns: Ns) -> Option<u64> {
    let load_trace = load.trace.as_ref()?;
    let sent: BTreeMap<u64, &RequestTimes> =
        load.each.iter().filter_map(|times| Some((times.number?, times))).collect();
    let mut matched = 0;
    for receipt in requests.values_mut() {
        let number = receipt.caller().and_then(|(id, _)| id.strip_prefix(load_trace.as_str()));
        let number = number.and_then(|number| u64::from_str_radix(number, 16).ok());
        if let Some(times) = number.and_then(|number| sent.get(&number)) {
            let at = |ns: Ns| Some(load.start_unix_ns.saturating_add(ns) - begin_unix_ns);
            (receipt.sent_ns, receipt.answered_ns) = (at(times.start_ns), at(times.last_ns));
            matched += 1;
        }
    }
    Some(matched)
}

/// Adds the energy of the steps, J, divided like their time.
pub fn add_energy(receipts: &mut Receipts, joules: f64) {
    let all = (receipts.busy_ns + receipts.idle_ns).max(1) as f64;
    for receipt in &mut receipts.each {
        receipt.joules = Some(joules * (receipt.busy_ns + receipt.idle_ns) as f64 / all);
    }
}

/// Reads a word of a mark: id, tokens, and whether they are of a prompt.
fn request(word: &str) -> Option<(&str, u64, bool)> {
    let (id, tokens) = word.rsplit_once(':')?;
    let prompt = tokens.strip_suffix('p');
    Some((id, prompt.unwrap_or(tokens).parse().ok()?, prompt.is_some()))
}

/// Divides a time in proportion to parts, the largest remainders rounded up: the sum is exact.
fn divided(ns: Ns, parts: &[u64]) -> Vec<Ns> {
    let all = parts.iter().map(|part| i128::from(*part)).sum::<i128>().max(1);
    let share = |part: &u64| i128::from(ns) * i128::from(*part);
    let mut shares: Vec<Ns> = parts.iter().map(|part| (share(part) / all) as Ns).collect();
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|at| Reverse(share(&parts[*at]) % all));
    let rest = ns - shares.iter().sum::<Ns>();
    for at in order.into_iter().take(usize::try_from(rest).unwrap_or(0)) {
        shares[at] += 1;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::EngineStep;
    use roofgap_trace::ProcessId;

    /// A step with GPU work from `start` to `end`, ms, the GPU busy for half of it.
    fn step(name: &str, kind: StageKind, start: i64, end: i64) -> Step {
        let (start, end) = (start * 1_000_000, end * 1_000_000);
        Step {
            process: ProcessId(0),
            kind,
            scheduled: EngineStep::parse(name).unwrap(),
            cpu: (start, end),
            gpu: Some((start, end)),
            busy_ns: (end - start) / 2,
            graph_kernels: 0,
            eager_kernels: 1,
        }
    }

    fn requests(start_ns: i64, first_ns: i64, prompt: u64) -> RequestStats {
        RequestStats {
            completed: 1,
            window_ns: 1_000_000_000,
            each: vec![RequestTimes {
                number: None,
                start_ns: start_ns * 1_000_000,
                first_ns: first_ns * 1_000_000,
                last_ns: (first_ns + 30) * 1_000_000,
                prompt_tokens: Some(prompt),
                output_tokens: Some(4),
            }],
            ..RequestStats::default()
        }
    }

    fn steps() -> Vec<Step> {
        vec![
            step("execute_context_0(0)_generation_2(2)", StageKind::Decode, 10, 20),
            step("execute_context_1(100)_generation_0(0)", StageKind::Prefill, 25, 45),
            step("execute_context_0(0)_generation_3(3)", StageKind::Decode, 46, 56),
            step("execute_context_1(100)_generation_3(3)", StageKind::Mixed, 60, 80),
        ]
    }

    fn means(parts: &[LatencyPart]) -> Vec<i64> {
        parts.iter().map(|part| part.mean_ns / 1_000_000).collect()
    }

    #[test]
    fn the_parts_add_up_to_the_time_to_first_token() {
        // Sent at 12 ms, read by the prefill step, answered at 50 ms.
        let latency = join(&steps(), &requests(12, 50, 100)).unwrap();
        assert_eq!((latency.requests, latency.joined), (1, 1));
        // 8 ms behind a decode step, 5 ms in no step, 10 ms busy, 10 ms idle, 5 ms until the token arrives.
        assert_eq!(means(&latency.ttft), [38, 8, 5, 10, 10, 5]);
    }

    #[test]
    fn the_parts_add_up_to_the_time_per_token() {
        // Tokens arrive every 25 ms; a step takes (2 x 10 + 3 x 10 + 3 x 20) / 8 ms, and two requests wait for 20 ms of prefill.
        let mut sent = requests(12, 50, 100);
        sent.each[0].last_ns = 125_000_000;
        let parts = token_time(&steps(), &sent).unwrap();
        let ns: Vec<i64> = parts.iter().map(|part| part.mean_ns).collect();
        assert_eq!(ns, [25_000_000, 13_750_000, 5_000_000, 6_250_000]);
        // Every 10 ms is more often than the steps allow.
        let error = token_time(&steps(), &requests(12, 50, 100)).unwrap_err().to_string();
        assert!(error.contains("every 10.0 ms on average") && error.contains("take 18.8 ms"), "{error}");
        sent.each[0].output_tokens = Some(1);
        assert!(token_time(&steps(), &sent).unwrap_err().to_string().contains("none has a second token"));
        assert!(
            token_time(&[], &requests(12, 50, 100)).unwrap_err().to_string().contains("no recorded step")
        );
    }

    #[test]
    fn a_long_prompt_is_read_by_several_steps() {
        let latency = join(&steps(), &requests(22, 85, 150)).unwrap();
        // Both steps with prompts are its own; the decode step between them is not.
        assert_eq!(means(&latency.ttft), [63, 10, 8, 20, 20, 5]);
    }

    #[test]
    fn requests_of_another_time_are_not_joined() {
        let latency = join(&steps(), &requests(46, 59, 10));
        assert!(latency.unwrap_err().contains("at another time"));
        assert!(join(&steps(), &RequestStats::default()).unwrap_err().contains("no times"));
        let set = RequestStats { clock_change_ns: Some(-5_000_000), ..requests(12, 50, 100) };
        assert!(join(&steps(), &set).unwrap_err().contains("clock was set"));
    }

    #[test]
    fn impossible_numbers_of_an_account_do_not_overflow() {
        let mut sent = requests(12, 85, u64::MAX);
        sent.each[0].output_tokens = Some(u64::MAX);
        sent.each.push(sent.each[0]);
        let mut unknown = steps();
        unknown[1].scheduled = EngineStep::parse("step[MIXED bs=3]").unwrap();
        unknown[3].scheduled = unknown[1].scheduled;
        assert_eq!(join(&unknown, &sent).unwrap().joined, 2);
        assert!(token_time(&unknown, &sent).is_err());
        sent.start_unix_ns = i64::MAX;
        assert!(join(&unknown, &sent).unwrap_err().contains("at another time"));
        sent.clock_change_ns = Some(i64::MIN);
        assert!(join(&unknown, &sent).unwrap_err().contains("clock was set"));
    }

    #[test]
    fn only_requests_that_go_on_generating_are_stalled() {
        let pauses = stalls(&steps());
        // Two of three requests after the prefill step generated before it.
        assert_eq!((pauses.steps, pauses.total_ns, pauses.request_ns), (1, 20_000_000, 40_000_000));
        // From the end of the decode step before it to the start of the one after it.
        assert_eq!(pauses.longest_ns, 26_000_000);
        let mut all_new = steps();
        all_new[1].scheduled = EngineStep::parse("execute_context_3(300)_generation_0(0)").unwrap();
        assert_eq!(stalls(&all_new).steps, 0);
    }

    #[test]
    fn a_divided_time_adds_up_and_follows_the_tokens() {
        for (ns, parts) in
            [(100, vec![1, 1, 1]), (7, vec![512, 1, 1, 3]), (0, vec![2, 5]), (1_000_003, vec![9; 7])]
        {
            let shares = divided(ns, &parts);
            assert_eq!(shares.iter().sum::<Ns>(), ns, "{parts:?}");
            let all: u64 = parts.iter().sum();
            for (share, part) in shares.iter().zip(&parts) {
                let exact = ns as f64 * *part as f64 / all as f64;
                assert!((*share as f64 - exact).abs() < 1.0, "{share} {exact}");
            }
        }
        assert_eq!(divided(100, &[1, 1, 1]), [34, 33, 33]);
        assert_eq!(request("a:b:12"), Some(("a:b", 12, false)));
        assert_eq!(request("a:12p"), Some(("a", 12, true)));
    }
}
