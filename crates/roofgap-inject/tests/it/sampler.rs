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
    let is_over = || Instant::now() >= end;
    let done = roofgap_inject::sampler::run(Path::new(&folder), Duration::from_micros(100), &is_over);
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
