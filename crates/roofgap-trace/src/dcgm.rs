//! Metrics of NVIDIA's DCGM exporter as text of Prometheus or OpenMetrics, with the time of each sample.

use crate::model::MOST_DEVICES;
use crate::vitals::{GpuVitals, Vital, is_moment};
use crate::{Format, ReadError, input};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const NAME: &str = "text of the DCGM exporter";

/// Size limit of a file, bytes.
const MOST_BYTES: u64 = 1 << 30;

pub(crate) const FORMAT: Format = Format {
    name: "dcgm",
    endings: &[".prom"],
    detect: |head| {
        let first = head.bytes.starts_with(b"DCGM_FI_");
        (first || memchr::memmem::find(&head.bytes, b"\nDCGM_FI_").is_some()).into()
    },
    read: |file, input| {
        input.trace.vitals.extend(read(&file.path)?);
        Ok(())
    },
    ..Format::DEFAULT
};

/// Fields of DCGM, their place in vitals, and the factor from DCGM's unit to ours.
const FIELDS: [(&str, Vital, f64); 14] = [
    ("DEV_POWER_USAGE_INSTANT", Vital::Watts, 1.0),
    ("DEV_POWER_USAGE", Vital::Watts, 1.0),
    ("DEV_TOTAL_ENERGY_CONSUMPTION", Vital::Joules, 1e-3),
    ("DEV_SM_CLOCK", Vital::SmMhz, 1.0),
    ("DEV_MEM_CLOCK", Vital::MemoryMhz, 1.0),
    ("DEV_GPU_TEMP", Vital::Celsius, 1.0),
    ("DEV_CLOCK_THROTTLE_REASONS", Vital::Reasons, 1.0),
    ("DEV_CLOCKS_EVENT_REASONS", Vital::Reasons, 1.0),
    ("DEV_MAX_SM_CLOCK", Vital::MaxSmMhz, 1.0),
    ("DEV_POWER_MGMT_LIMIT", Vital::LimitW, 1.0),
    ("DEV_POWER_MGMT_LIMIT_DEF", Vital::DefaultLimitW, 1.0),
    ("PROF_SM_ACTIVE", Vital::Activity(0), 100.0),
    ("PROF_PIPE_TENSOR_ACTIVE", Vital::Activity(1), 100.0),
    ("PROF_DRAM_ACTIVE", Vital::Activity(2), 100.0),
];

/// Values from here on stand for no value.
const BLANK: f64 = 1e15;

/// Reads metrics, which may be compressed with gzip. Lines that are damaged or of other metrics are left out.
fn read(path: &Path) -> Result<Vec<GpuVitals>, ReadError> {
    let bytes = input::load(path, NAME, MOST_BYTES)?;
    let text = String::from_utf8_lossy(&bytes);
    // Only OpenMetrics has an end; its times are in seconds.
    let ns = if text.trim_end().ends_with("# EOF") { 1e9 } else { 1e6 };
    let (mut gpus, mut hosts): (BTreeMap<u32, GpuVitals>, _) = (BTreeMap::new(), BTreeSet::new());
    let mut is_timed = false;
    let of_one_host =
        |what: String| Err(ReadError::unsupported(path, what, "give those of the host of the capture"));
    // Of two powers at one time, the first is kept: that of the moment, not the mean.
    let is_mean = |line: &&str| line.starts_with("DCGM_FI_DEV_POWER_USAGE{");
    let others = text.lines().filter(|line| !is_mean(line));
    for line in others.chain(text.lines().filter(is_mean)) {
        let Some((vital, labels, value, time)) = sample(line) else { continue };
        let label = |name: &str| labels.iter().find(|(own, _)| *own == name).map(|(_, value)| *value);
        let Some(number) = label("gpu").and_then(|number| number.parse().ok()) else { continue };
        let Some(at) = time.map(|time| (time * ns) as i64).filter(|at| is_moment(*at)) else { continue };
        is_timed = true;
        hosts.extend(label("Hostname"));
        if gpus.len() == MOST_DEVICES && !gpus.contains_key(&number) {
            return of_one_host(format!("metrics of more than {MOST_DEVICES} GPUs"));
        }
        let gpu = gpus.entry(number).or_insert_with(|| GpuVitals {
            number,
            name: label("modelName").map(str::to_owned),
            activity_source: "DCGM",
            ..GpuVitals::default()
        });
        if let Some(uuid) = label("UUID").map(|uuid| uuid.trim_start_matches("GPU-"))
            && gpu.uuid.get_or_insert_with(|| uuid.to_owned()) != uuid
        {
            return of_one_host(format!("metrics of two GPUs with the number {number}"));
        }
        let is_instance = label("GPU_I_ID").is_some_and(|id| !id.is_empty());
        gpu.is_mig |= is_instance;
        if !(is_instance && matches!(vital, Vital::Activity(_))) {
            gpu.add(at, vital, value);
        }
    }
    if !is_timed {
        let what = "metrics of DCGM without times, so that nothing tells when they were";
        let remedy = "give samples with their times, as `/federate` of Prometheus and `promtool tsdb dump-openmetrics` write them";
        return Err(ReadError::unsupported(path, what, remedy));
    }
    if hosts.len() > 1 {
        return of_one_host(format!("metrics of {} hosts", hosts.len()));
    }
    gpus.values_mut().for_each(GpuVitals::settle);
    Ok(gpus.into_values().collect())
}

/// A sample: its place, labels, value in our unit, and time.
type Sample<'a> = (Vital, Vec<(&'a str, &'a str)>, f64, Option<f64>);

/// Parses a line; `None` for one that is no sample of a known field.
fn sample(line: &str) -> Option<Sample<'_>> {
    let (name, rest) = line.strip_prefix("DCGM_FI_")?.split_once('{')?;
    // OpenMetrics has the suffix on counters.
    let name = name.strip_suffix("_total").unwrap_or(name);
    let (_, vital, factor) = FIELDS.iter().find(|(field, ..)| *field == name)?;
    let (labels, rest) = labels(rest)?;
    let mut numbers = rest.split_whitespace();
    let value: f64 = numbers.next()?.parse().ok()?;
    let time = numbers.next().and_then(|time| time.parse().ok());
    (0.0..BLANK).contains(&value).then_some((*vital, labels, value * factor, time))
}

/// Parses labels up to their closing brace, and returns what follows. Escapes in values stay.
fn labels(mut text: &str) -> Option<(Vec<(&str, &str)>, &str)> {
    let mut labels = Vec::new();
    loop {
        text = text.trim_start_matches([',', ' ']);
        if let Some(rest) = text.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, rest) = text.split_once("=\"")?;
        let mut is_escaped = false;
        let end = rest.bytes().position(|byte| {
            let is_end = byte == b'"' && !is_escaped;
            is_escaped = byte == b'\\' && !is_escaped;
            is_end
        })?;
        labels.push((name, rest.get(..end)?));
        text = rest.get(end + 1..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vitals::{GpuActivity, GpuState};

    fn written(text: &str) -> Result<Vec<GpuVitals>, ReadError> {
        let file = tempfile::Builder::new().suffix(".prom").tempfile().unwrap();
        std::fs::write(file.path(), text).unwrap();
        crate::read(&[file.path().to_path_buf()]).map(|input| input.trace.vitals)
    }

    const GPU: &str = r#"gpu="1",UUID="GPU-07",device="nvidia1",modelName="NVIDIA \"H\" {200}",Hostname="a""#;

    #[test]
    fn samples_become_vitals_in_their_units() {
        let text = |ends: [&str; 2]| {
            let mut text = String::from(
                "# HELP DCGM_FI_DEV_SM_CLOCK SM clock frequency (in MHz).\n# TYPE DCGM_FI_DEV_SM_CLOCK gauge\n",
            );
            for (name, values) in [
                ("DEV_SM_CLOCK", ["1575", "1980"]),
                ("DEV_POWER_USAGE", ["698.5", "120"]),
                ("DEV_TOTAL_ENERGY_CONSUMPTION", ["2000", "3500"]),
                ("DEV_CLOCKS_EVENT_REASONS", ["4", "0"]),
                ("DEV_POWER_MGMT_LIMIT", ["700", "9223372036854775794"]),
                ("PROF_SM_ACTIVE", ["0.5", "0.25"]),
                ("PROF_DRAM_ACTIVE", ["0.75", "0.125"]),
                ("DEV_XID_ERRORS", ["31", "31"]),
            ] {
                for (value, end) in values.iter().zip(ends) {
                    text += &format!("DCGM_FI_{name}{{{GPU}}} {value} {end}\n");
                }
            }
            text
        };
        let [gpu] = &written(&text(["1790000000000", "1790000001000"])).unwrap()[..] else { panic!() };
        let at = 1_790_000_000_000_000_000;
        assert_eq!((gpu.number, gpu.uuid.as_deref(), gpu.limit_w), (1, Some("07"), Some(700.0)));
        assert_eq!(gpu.energy, [(at, 2.0), (at + 1_000_000_000, 3.5)]);
        let first = GpuState { at, watts: Some(698.5), sm_mhz: Some(1575.0), memory_mhz: None, reasons: 4 };
        assert_eq!((gpu.states.len(), gpu.states[0]), (2, first));
        let pct = [Some(25.0), None, Some(12.5)];
        assert_eq!(gpu.activity, [GpuActivity { span: (at, at + 1_000_000_000), pct }]);
        let open = text(["1790000000.0", "1790000001.0"]) + "# EOF\n";
        assert_eq!(written(&open).unwrap()[0], *gpu, "times of OpenMetrics are in seconds");
    }

    #[test]
    fn text_without_times_or_of_several_hosts_is_refused() {
        let line = format!("DCGM_FI_DEV_SM_CLOCK{{{GPU}}} 1575");
        assert!(written(&line).unwrap_err().to_string().contains("without times"));
        let two = format!("{line} 5\n{} 5\n", line.replace("Hostname=\"a\"", "Hostname=\"b\""));
        assert!(written(&two).unwrap_err().to_string().contains("metrics of 2 hosts"));
        let nameless = line.replace(",Hostname=\"a\"", "");
        let two = format!("{nameless} 5\n{} 5\n", nameless.replace("GPU-07", "GPU-08"));
        assert!(written(&two).unwrap_err().to_string().contains("two GPUs with the number 1"));
        let many = |most| -> String {
            (0..most).map(|gpu| format!("DCGM_FI_DEV_SM_CLOCK{{gpu=\"{gpu}\"}} 1575 5\n")).collect()
        };
        assert_eq!(written(&many(MOST_DEVICES)).unwrap().len(), MOST_DEVICES);
        assert!(written(&many(MOST_DEVICES + 1)).unwrap_err().to_string().contains("more than 4096 GPUs"));
    }

    #[test]
    fn series_may_be_in_any_order() {
        let lines = [
            ("DEV_POWER_USAGE", 500, 9),
            ("DEV_POWER_USAGE_INSTANT", 698, 9),
            ("DEV_TOTAL_ENERGY_CONSUMPTION", 3000, 9),
            ("DEV_TOTAL_ENERGY_CONSUMPTION", 2000, 5),
        ];
        let line = |(name, value, at)| format!("DCGM_FI_{name}{{{GPU}}} {value} {at}\n");
        let [gpu] = &written(&lines.map(line).concat()).unwrap()[..] else { panic!() };
        assert_eq!(gpu.energy, [(5_000_000, 2.0), (9_000_000, 3.0)]);
        assert_eq!((gpu.states.len(), gpu.states[0].watts), (1, Some(698.0)), "the power of the moment");
    }
}
