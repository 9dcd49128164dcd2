//! Real pages and a real report against one another.

mod forms;

use std::io::Read;
use std::path::PathBuf;

use proptest::prelude::*;

use super::*;
use crate::SourceFormat;
use crate::model::LossKind;

fn fixture(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/ncu").join(name);
    let file = std::fs::File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(file).read_to_end(&mut bytes).expect("a gz file");
    bytes
}

fn raw_page(name: &str) -> CounterSet {
    raw::read(fixture(name).as_slice()).expect("a raw page")
}

fn details_page(name: &str) -> CounterSet {
    details::read(fixture(name).as_slice()).expect("a details page")
}

fn report() -> CounterSet {
    rep::read(fixture("mt_basic.ncu-rep.gz").as_slice()).expect("a report")
}

/// What a page prints of a number in base units: two decimals.
fn close(left: f64, right: f64, step: f64) -> bool {
    (left - right).abs() <= step * 0.500_001 + left.abs() * 1e-12
}

#[test]
fn the_report_equals_its_raw_page_in_every_column() {
    let (native, page) = (report(), raw_page("mt_basic_raw_base.csv.gz"));
    assert_eq!(native.launches.len(), 6);
    assert_eq!(page.launches.len(), 6);
    let mut compared = 0;
    for (own, other) in native.launches.iter().zip(&page.launches) {
        for (id, name) in page.names.iter() {
            let expected = other.metrics.iter().find(|metric| metric.id == id);
            match (native.quantity(own, name), expected) {
                (Some(got), Some(expected)) => {
                    assert_eq!(got.unit, expected.unit, "{name}");
                    assert!(
                        close(got.value, expected.value, 0.01),
                        "{name}: {} and {}",
                        got.value,
                        expected.value
                    );
                    compared += 1;
                }
                (None, None) => assert_eq!(native.text(own, name), page.text(other, name), "{name}"),
                (got, expected) => panic!("{name}: {got:?} and {expected:?}"),
            }
        }
        assert_eq!(own.kernel.replace("(int)", ""), other.kernel);
        assert_eq!(
            (own.id, own.process, own.device, own.grid, own.block),
            (other.id, other.process, other.device, other.grid, other.block)
        );
        assert_eq!(own.compute_capability, Some((9, 0)));
        assert_eq!(own.compute_capability, other.compute_capability);
        assert_eq!(own.nvtx, other.nvtx);
    }
    assert_eq!(compared, 6 * 549);
    assert_eq!(native.losses.iter().count(), 0);
    assert_eq!(page.losses.iter().count(), 0);
}

#[test]
fn the_report_says_which_tool_made_it() {
    let native = report();
    assert_eq!(native.tool_version.as_deref(), Some("2025.3.1.0"));
    assert!(native.launches.iter().all(|launch| launch.clocks_locked == Some(false)));
    let last = native.launches.last().expect("six launches");
    let ranges: Vec<_> =
        last.nvtx.iter().map(|range| (range.domain.as_deref(), range.name.as_str())).collect();
    assert_eq!(ranges, [(None, "warmup"), (Some("LLM"), "decode_all"), (Some("LLM"), "decode_step")]);
    assert_eq!(last.mangled.as_deref(), Some("_Z4burnILi20EEvPfi"));
}

#[test]
fn the_report_carries_the_rules_of_the_details_page() {
    let (native, page) = (report(), details_page("mt_basic_details.csv.gz"));
    assert_eq!(page.rules.len(), 28);
    assert_eq!(native.rules.len(), page.rules.len());
    for rule in &page.rules {
        let same = native
            .rules
            .iter()
            .find(|own| own.launch == rule.launch && own.name == rule.name && own.text == rule.text)
            .unwrap_or_else(|| panic!("{} of launch {}", rule.name, rule.launch));
        assert_eq!((&same.section, same.kind), (&rule.section, rule.kind));
        match (same.speedup, rule.speedup) {
            (Some(own), Some(other)) => {
                assert_eq!(own.scope, other.scope);
                assert!(
                    (own.percent - other.percent).abs() < 0.01 * other.percent.max(1.0),
                    "{own:?} {other:?}"
                );
            }
            (own, other) => assert_eq!(own, other),
        }
    }
    assert!(
        page.rules
            .iter()
            .any(|rule| rule.speedup == Some(Speedup { scope: SpeedupScope::Global, percent: 25.0 }))
    );
}

fn same_counters(auto: &CounterSet, base: &CounterSet, step_of_auto: f64) -> usize {
    let mut compared = 0;
    assert_eq!(auto.launches.len(), base.launches.len());
    for (own, other) in auto.launches.iter().zip(&base.launches) {
        assert_eq!(
            (own.id, &own.kernel, own.grid, own.block, &own.nvtx),
            (other.id, &other.kernel, other.grid, other.block, &other.nvtx)
        );
        assert_eq!(own.metrics.len(), other.metrics.len());
        for metric in &own.metrics {
            let name = auto.name(metric.id);
            let twin = base.quantity(other, name).unwrap_or_else(|| panic!("{name} in the base page"));
            assert_eq!(metric.unit, twin.unit, "{name}");
            let near = (metric.value - twin.value).abs();
            // With automatic units small numbers of bytes and nanoseconds come without decimals.
            let whole =
                matches!(metric.unit.of, Base::Byte | Base::Nanosecond) && metric.value.fract() == 0.0;
            let step = if whole { 0.505 } else { 0.011 };
            assert!(
                near <= step + step_of_auto * twin.value.abs(),
                "{name}: {} and {}",
                metric.value,
                twin.value
            );
            compared += 1;
        }
    }
    compared
}

#[test]
fn automatic_units_give_the_same_counters_as_base_units() {
    let compared =
        same_counters(&raw_page("llama4_light_raw.csv.gz"), &raw_page("llama4_light_raw_base.csv.gz"), 1e-4);
    assert!(compared > 46 * 250, "{compared}");
    same_counters(&raw_page("mt_basic_raw.csv.gz"), &raw_page("mt_basic_raw_base.csv.gz"), 1e-4);
}

#[test]
fn details_give_the_same_counters_as_the_raw_page() {
    for (details, raw) in [
        ("mt_basic_details.csv.gz", "mt_basic_raw_base.csv.gz"),
        ("mt_basic_details_ncu2024.csv.gz", "mt_basic_raw_base.csv.gz"),
        ("llama2_roofline_details.csv.gz", "llama2_roofline_raw.csv.gz"),
    ] {
        let (details, raw) = (details_page(details), raw_page(raw));
        assert_eq!(details.launches.len(), raw.launches.len());
        assert_eq!(details.losses.iter().count(), 0);
        let mut compared = 0;
        for (own, other) in details.launches.iter().zip(&raw.launches) {
            assert_eq!(
                (own.id, own.grid, own.block, &own.nvtx),
                (other.id, other.grid, other.block, &other.nvtx)
            );
            for metric in &own.metrics {
                let name = details.name(metric.id);
                let twin =
                    raw.quantity(other, name).unwrap_or_else(|| panic!("{name} is a column of the raw page"));
                // Newer than ncu 2024, which prints it without its unit.
                if name != "launch__occupancy_limit_barriers" {
                    assert_eq!(metric.unit, twin.unit, "{name}");
                }
                let near = (metric.value - twin.value).abs();
                assert!(
                    near <= 0.011 + 0.01 * twin.value.abs(),
                    "{name}: {} and {}",
                    metric.value,
                    twin.value
                );
                compared += 1;
            }
        }
        assert!(compared >= details.launches.len() * 45, "{compared}");
    }
}

#[test]
fn instances_do_not_change_the_aggregate() {
    let (native, page) = (report(), raw_page("mt_basic_raw_ncu2024_instances.csv.gz"));
    for (own, other) in native.launches.iter().zip(&page.launches) {
        assert_eq!(own.kernel, other.kernel);
        for name in ["launch__occupancy_per_register_count", "launch__grid_size", "gpu__time_duration.sum"] {
            let (left, right) = (native.quantity(own, name), page.quantity(other, name));
            assert!(left.is_some() && left == right, "{name}: {left:?} and {right:?}");
        }
        assert_eq!(page.text(other, "launch__tpc_enabled"), Some("all"));
    }
}

#[test]
fn every_column_of_the_roofline_set_has_the_unit_its_name_says() {
    for page in ["llama2_roofline_raw.csv.gz", "llama4_light_raw_base.csv.gz", "mt_basic_raw_base.csv.gz"] {
        let set = raw_page(page);
        for launch in &set.launches {
            for metric in &launch.metrics {
                let name = set.name(metric.id);
                assert_eq!(unit_of(name), Some(metric.unit), "{name}");
            }
        }
    }
}

#[test]
fn pages_of_one_report_become_one() {
    let mut set = report();
    let before = set.launches.iter().map(|launch| launch.metrics.len()).sum::<usize>();
    set.absorb(details_page("mt_basic_details.csv.gz"));
    set.absorb(raw_page("mt_basic_raw_base.csv.gz"));
    assert_eq!(set.launches.len(), 6);
    assert_eq!(set.rules.len(), 28);
    assert_eq!(set.launches.iter().map(|launch| launch.metrics.len()).sum::<usize>(), before);
    set.absorb(raw_page("llama4_light_raw_base.csv.gz"));
    assert_eq!(set.launches.len(), 6 + 46);
}

#[test]
fn two_versions_of_a_name_are_one_launch() {
    let page = |kernel: &str, metric: &str| {
        let text = format!(
            "\"ID\",\"Process ID\",\"Kernel Name\",\"Block Size\",\"Grid Size\",\"{metric}\"\n\
             \"\",\"\",\"\",\"\",\"\",\"byte\"\n\
             \"0\",\"7\",\"{kernel}\",\"(1, 1, 1)\",\"(2, 1, 1)\",\"1\"\n"
        );
        raw::read(text.as_bytes()).expect("a page")
    };
    let mut set = page("void at::native::<unnamed>::Cat<(int)4>(char *)", "a__bytes.sum");
    set.absorb(page("void at::<unnamed>::Cat<4>(char *)", "b__bytes.sum"));
    set.absorb(page("void unnamed>::Cat<4>(char *)", "c__bytes.sum"));
    assert_eq!((set.launches.len(), set.launches[0].metrics.len()), (1, 3));
    set.absorb(page("void at::Dog<4>(char *)", "a__bytes.sum"));
    assert_eq!(set.launches.len(), 2);
}

#[test]
fn an_unknown_unit_is_declared_and_no_plain_number() {
    let page = "\"ID\",\"Process ID\",\"Kernel Name\",\"Block Size\",\"Grid Size\",\"a__b.sum\",\"c__d.sum\"\n\
                \"\",\"\",\"\",\"\",\"\",\"furlong\",\"Kbyte\"\n\
                \"0\",\"7\",\"k()\",\"(1, 1, 1)\",\"(2, 1, 1)\",\"1,024\",\"n/a\"\n\
                program output in between\n\
                ==PROF== more\n\
                \"1\",\"7\",\"k()\",\"(1, 1, 1)\",\"(2, 1, 1)\",\"3,1\",\"2.5\"\n";
    let set = raw::read(page.as_bytes()).expect("a page");
    assert_eq!(set.launches.len(), 2);
    assert_eq!(set.losses.count(LossKind::UnitUnknown), 1);
    assert_eq!(set.losses.count(LossKind::CounterMalformed), 2);
    let (first, second) = (&set.launches[0], &set.launches[1]);
    assert_eq!(set.quantity(first, "a__b.sum").map(|q| q.unit), Some(Unit::UNSTATED));
    assert_eq!(set.value(first, "a__b.sum", Unit::ONE), None);
    assert_eq!(first.missing, [set.id("c__d.sum").expect("a column")]);
    assert_eq!(set.value(second, "c__d.sum", Unit::BYTE), Some(2500.0));
}

#[test]
fn what_is_not_there_is_said() {
    assert!(matches!(raw::read(&b"hello\n"[..]), Err(NcuError::NoHeader)));
    assert!(matches!(details::read(fixture("mt_basic_raw.csv.gz").as_slice()), Err(NcuError::NoHeader)));
    assert!(matches!(raw::read(&b"\"ID\",\"Process ID\",\"Kernel Name\"\n"[..]), Err(NcuError::NoLaunches)));
    assert!(matches!(rep::read(&b"NVR\0"[..]), Err(NcuError::NoLaunches)));
    assert!(matches!(rep::read(&b"SQLite"[..]), Err(NcuError::NotAReport)));
    assert!(matches!(
        rep::read(&b"NVR\0\xff\xff\xff\xff1234"[..]),
        Err(NcuError::BadReport { offset: 8, .. })
    ));
}

#[test]
fn fixtures_are_told_by_their_first_bytes() {
    for (name, format) in [
        ("mt_basic.ncu-rep.gz", SourceFormat::NcuReport),
        ("mt_basic_raw.csv.gz", SourceFormat::NcuRawPage),
        ("llama2_roofline_raw.csv.gz", SourceFormat::NcuRawPage),
        ("mt_basic_details.csv.gz", SourceFormat::NcuDetailsPage),
    ] {
        let bytes = fixture(name);
        assert_eq!(sniff(&bytes[..4096], false), Ok(Some(format)), "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_report_is_an_error_or_less(edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..24), cut in any::<prop::sample::Index>()) {
        let mut bytes = fixture("mt_basic.ncu-rep.gz");
        let length = bytes.len();
        for (at, value) in &edits {
            bytes[at.index(length)] = *value;
        }
        bytes.truncate(cut.index(length) + 1);
        let _ = rep::read(bytes.as_slice());
    }

    #[test]
    fn a_damaged_page_is_an_error_or_less(edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..24), which in 0..3usize) {
        let mut bytes = fixture(["mt_basic_details.csv.gz", "mt_basic_raw.csv.gz", "mt_basic_raw_ncu2024_instances.csv.gz"][which]);
        let length = bytes.len();
        for (at, value) in &edits {
            bytes[at.index(length)] = *value;
        }
        let _ = (raw::read(bytes.as_slice()), details::read(bytes.as_slice()), sniff(&bytes, true));
    }

    #[test]
    fn any_bytes_behind_the_magic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = rep::read([b"NVR\0".as_slice(), &bytes].concat().as_slice());
        let _ = sniff(&bytes, false);
    }
}

#[test]
fn the_device_describes_itself() {
    for set in [report(), raw_page("llama4_light_raw.csv.gz")] {
        let devices = set.devices();
        let [device] = devices.as_slice() else { panic!("one device: {devices:?}") };
        assert_eq!(device.name.as_deref(), Some("NVIDIA H200"));
        assert_eq!((device.compute_capability, device.sms), (Some((9, 0)), Some(132)));
        assert_eq!(device.memory_bytes, Some(150_109_880_320));
        // 2 x 3.201 GHz x 6016 bit
        assert_eq!(device.bandwidth_bytes_per_s, Some(4_814_304_000_000));
        assert_eq!(device.clock_hz, Some(1_980_000_000));
    }
    let page = details_page("mt_basic_details.csv.gz").devices();
    assert_eq!((page[0].compute_capability, page[0].name.clone()), (Some((9, 0)), None));
}

#[test]
fn values_that_no_counter_can_have_are_missing() {
    let name = "sm__throughput.avg.pct_of_peak_sustained_elapsed";
    for (value, possible) in
        [("42.5", true), ("-1", false), ("1e300", false), ("4294967296", false), ("200.5", false)]
    {
        let page = format!(
            "\"ID\",\"Process ID\",\"Kernel Name\",\"Context\",\"Stream\",\"Block Size\",\"Grid Size\",\"Device\",\"CC\",\"{name}\",\"gpu__time_duration.sum\"\n\
             \"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"%\",\"ns\"\n\
             \"0\",\"1\",\"k\",\"1\",\"7\",\"(1, 1, 1)\",\"(1, 1, 1)\",\"0\",\"9.0\",\"{value}\",\"100\"\n"
        );
        let set = raw::read(page.as_bytes()).unwrap();
        let found = set.value(&set.launches[0], name, Unit::PERCENT);
        assert_eq!(found, possible.then_some(42.5), "{value}");
        assert_eq!(set.losses.count(LossKind::CounterMalformed), u64::from(!possible), "{value}");
        assert_eq!(set.launches[0].missing.len(), usize::from(!possible));
    }
}

#[test]
fn a_grid_that_no_launch_has_is_missing() {
    let page = |grid: &str| {
        format!(
            "\"ID\",\"Process ID\",\"Kernel Name\",\"Block Size\",\"Grid Size\",\"gpu__time_duration.sum\"\n\
             \"\",\"\",\"\",\"\",\"\",\"ns\"\n\"0\",\"1\",\"k\",\"(1, 1, 1)\",\"{grid}\",\"100\"\n"
        )
    };
    let read = |grid: &str| {
        let set = raw::read(page(grid).as_bytes()).unwrap();
        (set.launches[0].grid, set.losses.count(LossKind::CounterMalformed))
    };
    assert_eq!(read("(2147483647, 65535, 1)"), (Some([2_147_483_647, 65_535, 1]), 0));
    assert_eq!(read("(2147483648, 2147483648, 2147483648)"), (None, 1));
}
