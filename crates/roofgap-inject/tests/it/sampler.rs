//! Samples of hardware counters, with a stand-in for CUPTI and the driver.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{built, files};
use roofgap_wire::{Ending, Reader, Record};

/// Set in the process that samples, to its folder: it needs a driver of its own.
const FOLDER: &str = "ROOFGAP_TEST_SAMPLER";

/// Samples for a while, where this process is asked to.
#[test]
fn samples_in_a_process_of_its_own() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let end = Instant::now() + Duration::from_millis(300);
    let looks = std::cell::Cell::new(0);
    // A busy machine may not run it in that time.
    let is_over = || {
        looks.set(looks.get() + 1);
        looks.get() > 20 && Instant::now() >= end
    };
    let done = roofgap_inject::sampler::run(Path::new(&folder), Duration::from_micros(100), None, &is_over);
    assert!(done.is_ok(), "sampling failed: {}", done.unwrap_err());
}

fn sample(how: &str) -> (tempfile::TempDir, std::process::Output) {
    let folder = tempfile::tempdir().unwrap();
    let driver = folder.path().join("driver");
    std::fs::create_dir(&driver).unwrap();
    std::os::unix::fs::symlink(&built().pm, driver.join("libcuda.so.1")).unwrap();
    let captures = folder.path().join("captures");
    std::fs::create_dir(&captures).unwrap();
    let done = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "sampler::samples_in_a_process_of_its_own"])
        .env(FOLDER, captures)
        .env("LD_LIBRARY_PATH", driver)
        .env("CUPTI_LIBRARY", &built().pm)
        .env("STANDIN_PM", how)
        .output()
        .unwrap();
    (folder, done)
}

#[test]
fn bursts_of_samples_become_a_capture() {
    let (folder, done) = sample("");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
    let capture = files(&folder.path().join("captures")).remove(0);
    let mut reader = Reader::open(std::fs::File::open(capture).unwrap()).unwrap();
    let (mut metrics, mut samples, mut devices, mut clocks) = (Vec::new(), 0, 0, 0);
    let mut last = 0;
    while let Some(records) = reader.next_frame().unwrap() {
        for record in records {
            match record {
                Record::CounterMetric(metric) => {
                    metrics.push((metric.place, metric.name.to_str().into_owned()))
                }
                Record::CounterSample(sample) => {
                    assert!(sample.start >= last && sample.end == sample.start + 100_000);
                    let values: Vec<f32> = sample
                        .values
                        .0
                        .chunks_exact(4)
                        .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
                        .collect();
                    assert_eq!(values, [1000.0, 2000.0, 3000.0]);
                    (last, samples) = (sample.end, samples + 1);
                }
                Record::Device(device) => devices += usize::from(device.uuid.0 == [7; 16]),
                Record::ClockPair(pair) => {
                    assert!((pair.before..=pair.after).contains(&pair.cupti));
                    clocks += 1;
                }
                _ => {}
            }
        }
    }
    // One is not known to the stand-in, and a fourth would need a second pass.
    let names = [
        "dram__bytes_read.sum",
        "dram__bytes_write.sum",
        "sm__inst_executed.avg.pct_of_peak_sustained_elapsed",
    ];
    assert_eq!(
        metrics,
        names.into_iter().zip(0..).map(|(name, at)| (at, name.to_owned())).collect::<Vec<_>>()
    );
    assert!(samples > 100, "{samples}");
    assert_eq!((devices, clocks), (1, 1));
    assert!(matches!(reader.ending(), Some(Ending::Complete { .. })));
}

#[test]
fn a_missing_permission_and_a_full_buffer_are_named() {
    let (_, done) = sample("forbidden");
    let text = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(!done.status.success() && text.contains("NVreg_RestrictProfilingToAdminUsers=0"), "{text}");

    let (folder, done) = sample("full");
    assert!(done.status.success());
    let capture = files(&folder.path().join("captures")).remove(0);
    let mut reader = Reader::open(std::fs::File::open(capture).unwrap()).unwrap();
    let mut lost = Vec::new();
    while let Some(records) = reader.next_frame().unwrap() {
        lost.extend(records.filter_map(|record| match record {
            Record::Loss(loss) => Some(loss.id.to_str().into_owned()),
            _ => None,
        }));
    }
    assert_eq!(lost, ["sampling.overflow"]);
}

/// Set in the process that samples vitals, to its file.
const VITALS: &str = "ROOFGAP_TEST_VITALS";

/// Samples vitals for a while, where this process is asked to.
#[test]
fn samples_vitals_in_a_process_of_its_own() {
    let Some(file) = std::env::var_os(VITALS) else { return };
    let energies = || std::fs::read_to_string(&file).map_or(0, |text| text.matches("energy_mj").count());
    let deadline = Instant::now() + crate::support::PATIENCE;
    let done = roofgap_inject::sampler::vitals::run(Path::new(&file), true, &|| {
        energies() > 5 || Instant::now() > deadline
    });
    assert!(done.is_ok(), "sampling failed: {}", done.unwrap_err());
}

#[test]
fn vitals_are_lines_with_their_own_times() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("vitals.jsonl");
    let sample = |library: Option<&Path>| {
        if let Some(library) = library {
            std::os::unix::fs::symlink(library, folder.path().join("libnvidia-ml.so.1")).unwrap();
        }
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "sampler::samples_vitals_in_a_process_of_its_own"])
            .env(VITALS, &file)
            .env("LD_LIBRARY_PATH", folder.path())
            .output()
            .unwrap()
    };
    let without = sample(None);
    let text =
        String::from_utf8_lossy(&without.stdout).into_owned() + &String::from_utf8_lossy(&without.stderr);
    assert!(!without.status.success() && text.contains("libnvidia-ml.so.1"), "{text}");

    let done = sample(Some(&built().nvml));
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
    let text = std::fs::read_to_string(&file).unwrap();
    let mut lines = text.lines();
    assert_eq!(
        lines.next().unwrap(),
        r#"{"schema":"roofgap.vitals/1","devices":[{"device":0,"uuid":"GPU-07","name":"NVIDIA \"H200\"","max_sm_mhz":1980,"limit_mw":600000,"default_limit_mw":700000}]}"#
    );
    let values = |name: &str| -> Vec<&str> {
        let named = lines.clone().filter(|line| line.contains(name));
        named.map(|line| line.split_once("\"device\":0,").unwrap().1).collect()
    };
    let fast = r#""instant_mw":698000,"sm_mhz":1575,"memory_mhz":3201,"reasons":4}"#;
    assert!(values("sm_mhz").iter().all(|line| *line == fast), "{text}");
    let slow = values("celsius")[0];
    assert!(slow.starts_with(r#""celsius":61,"processes":[{"pid":"#), "{slow}");
    assert!(slow.contains(r#""sm_pct":42"#), "{slow}");
    let active = values("\"since\"");
    let active = active.iter().map(|line| line.split_once(",\"sm_pct\"").unwrap().1);
    assert!(
        active.clone().count() > 0 && active.clone().all(|rest| rest == r#":90.00,"dram_pct":12.50}"#),
        "{text}"
    );
    // A line a change of the counter, and one at the end.
    let mut energies = values("energy_mj");
    energies.pop();
    energies.sort_unstable();
    let count = energies.len();
    energies.dedup();
    assert!(count > 1 && energies.len() == count, "{text}");
}
