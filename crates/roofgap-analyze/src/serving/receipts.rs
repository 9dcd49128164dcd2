//! Receipts: the GPU time of each step, divided over the requests in it by their tokens. The parts add up to the steps to the nanosecond.

use super::Step;
use crate::result::{Receipt, Receipts, RequestStats};
use roofgap_trace::account::RequestTimes;
use roofgap_trace::{Ns, Trace};
use std::cmp::Reverse;
use std::collections::BTreeMap;

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
