//! Pages and reports of other versions, and broken ones.

use super::*;

/// The columns, labels and units of 2020.
#[test]
fn a_page_of_2020_is_read() {
    let mut page = String::from(
        "==PROF== Connected to process 1234\n\
         \"ID\",\"Process ID\",\"Process Name\",\"Host Name\",\"Kernel Name\",\"Kernel Time\",\"Context\",\"Stream\",\
         \"Section Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n",
    );
    for (label, unit, value) in [
        ("DRAM Frequency", "cycle/nsecond", "1.21"),
        ("SM Frequency", "cycle/second", "1,312,656,250"),
        ("Memory [%]", "%", "46.10"),
        ("SM [%]", "%", "18.25"),
        ("SOL DRAM", "%", "39.60"),
        ("Duration", "usecond", "12.40"),
    ] {
        page += &format!(
            "\"0\",\"1234\",\"app\",\"127.0.0.1\",\"gemm\",\"2020-Apr-07 17:01:05\",\"1\",\"7\",\"GPU Speed Of Light\",\
             \"{label}\",\"{unit}\",\"{value}\"\n"
        );
    }
    let set = details::read(page.as_bytes()).unwrap();
    assert_eq!(set.losses.iter().count(), 0);
    let [launch] = &set.launches[..] else {
        panic!("{} launches", set.launches.len());
    };
    assert_eq!((&*launch.kernel, launch.grid), ("gemm", None));
    for (name, value, unit) in [
        ("gpu__time_duration.sum", 12_400.0, Unit::NANOSECOND),
        ("gpc__cycles_elapsed.avg.per_second", 1_312_656_250.0, Unit::HERTZ),
        ("dram__cycles_elapsed.avg.per_second", 1.21e9, Unit::HERTZ),
        ("sm__throughput.avg.pct_of_peak_sustained_elapsed", 18.25, Unit::PERCENT),
        ("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed", 46.1, Unit::PERCENT),
        ("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", 39.6, Unit::PERCENT),
    ] {
        let found = set.quantity(launch, name).unwrap();
        assert_eq!((found.value, found.unit), (value, unit), "{name}");
    }
}

#[test]
fn a_failed_kernel_is_a_loss() {
    let page = "\"ID\",\"Kernel Name\",\"Block Size\",\"Grid Size\",\"gpu__time_duration.sum\"\n\
                \"\",\"\",\"\",\"\",\"ns\"\n\
                \"0\",\"good\",\"(128, 1, 1)\",\"(4, 1, 1)\",\"1000\"\n\
                \"1\",\"empty_grid\",\"(128, 1, 1)\",\"(0, 0, 0)\",\"12\"\n\
                \"2\",\"no_values\",\"(128, 1, 1)\",\"(4, 1, 1)\",\"nan\"\n\
                \"3\",\"better\",\"(128, 1, 1)\",\"(4, 1, 1)\",\"2000\"\n";
    let set = raw::read(page.as_bytes()).unwrap();
    let names: Vec<&str> = set.launches.iter().map(|launch| &*launch.kernel).collect();
    assert_eq!(names, ["good", "better"]);
    assert_eq!(set.losses.count(LossKind::CounterFailed), 2);
    let alone = page.replace("\"1000\"", "\"n/a\"").replace("\"2000\"", "\"n/a\"");
    assert!(matches!(raw::read(alone.as_bytes()), Err(NcuError::AllFailed { launches: 4 })));
}

#[test]
fn rules_stay_with_their_launch_where_another_failed() {
    let row = |id: u32, kernel: &str, grid: &str, value: &str| {
        format!(
            "\"{id}\",\"{kernel}\",\"{grid}\",\"SpeedOfLight\",\"Duration\",\"us\",\"{value}\"\n\
             \"{id}\",\"{kernel}\",\"{grid}\",\"SpeedOfLight\",\"\",\"\",\"\",\"SOL\",\"OPT\",\"about {kernel}\"\n"
        )
    };
    let page = "\"ID\",\"Kernel Name\",\"Grid Size\",\"Section Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\",\
                \"Rule Name\",\"Rule Type\",\"Rule Description\"\n"
        .to_owned()
        + &row(0, "failed", "(0, 0, 0)", "nan")
        + &row(1, "good", "(4, 1, 1)", "5");
    let set = details::read(page.as_bytes()).unwrap();
    assert_eq!(set.launches.len(), 1);
    let rules: Vec<&str> = set.rules_of(0).map(|rule| &*rule.text).collect();
    assert_eq!(rules, ["about good"]);
    assert_eq!(set.rules.len(), 1);
}

#[test]
fn joined_pages_have_a_header_each() {
    let raw_page = "\"ID\",\"Kernel Name\",\"gpu__time_duration.sum\"\n\"\",\"\",\"us\"\n\"0\",\"first\",\"3\"\n\
                    ==PROF== Disconnected from process 1\n\
                    \"ID\",\"Kernel Name\",\"launch__waves_per_multiprocessor\",\"gpu__time_duration.sum\"\n\
                    \"\",\"\",\"\",\"ms\"\n\"0\",\"second\",\"1\",\"4\"\n";
    let set = raw::read(raw_page.as_bytes()).unwrap();
    let time = |launch| set.value(launch, "gpu__time_duration.sum", Unit::NANOSECOND);
    let times: Vec<Option<f64>> = set.launches.iter().map(time).collect();
    assert_eq!(times, [Some(3_000.0), Some(4_000_000.0)]);
    assert_eq!(set.losses.count(LossKind::CounterMalformed), 0);

    let header = "\"ID\",\"Kernel Name\",\"Section Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n";
    let row = |kernel: &str| {
        format!("\"0\",\"{kernel}\",\"GPU Speed Of Light Throughput\",\"Duration\",\"us\",\"5\"\n")
    };
    let page = format!("{header}{}{header}{}", row("first"), row("second"));
    let set = details::read(page.as_bytes()).unwrap();
    let names: Vec<&str> = set.launches.iter().map(|launch| &*launch.kernel).collect();
    assert_eq!(names, ["first", "second"]);
    assert_eq!(set.losses.count(LossKind::CounterMalformed), 0);
}

/// A field of bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat()
}

/// A block of one launch, which counted `value` under the first of `names`, or of the names before where there are none.
fn block(names: &[&str], value: u8) -> Vec<u8> {
    let metric = [vec![1 << 3, 0], field(2, &[5 << 3, value])].concat();
    let launch = [field(7, b"k"), field(13, &metric)].concat();
    let payload = [&(launch.len() as u32).to_le_bytes()[..], &launch].concat();
    let table: Vec<u8> = names.iter().flat_map(|name| field(1, name.as_bytes())).collect();
    let header = [vec![2 << 3, 1], field(4, &table), vec![5 << 3, payload.len() as u8]].concat();
    [&(header.len() as u32).to_le_bytes()[..], &header, &payload].concat()
}

#[test]
fn a_second_table_of_names_adds_or_replaces() {
    let (duration, cycles, bytes) = ("gpu__time_duration.sum", "sm__cycles_active.sum", "dram__bytes.sum");
    let report = |second: &[&str]| {
        let blocks = [block(&[duration, cycles], 7), block(second, 9), block(&[], 11)].concat();
        let report = [b"NVR\0\x02\0\0\0\x08\x07", &blocks[..]].concat();
        let set = rep::read(&report[..]).unwrap();
        assert_eq!(set.launches.len(), 3);
        let number = |launch: usize, name| set.quantity(&set.launches[launch], name).map(|q| q.value);
        [duration, cycles].map(|name| [number(0, name), number(1, name), number(2, name)])
    };
    let first = [[Some(7.0), Some(9.0), Some(11.0)], [None; 3]];
    assert_eq!(report(&[bytes]), first, "what is new is added");
    let swapped = [[Some(7.0), None, None], [None, Some(9.0), Some(11.0)]];
    assert_eq!(report(&[cycles, duration]), swapped, "what is known begins anew");
}

#[test]
fn a_report_that_breaks_off_is_refused() {
    let whole = fixture("mt_basic.ncu-rep.gz");
    for missing in [1, 1000, whole.len() / 2] {
        let error = rep::read(&whole[..whole.len() - missing]).expect_err("a broken copy");
        assert!(error.to_string().contains("breaks off"), "{error}");
    }
}

/// Every cut within the last row is seen; a last line without its end is whole all the same.
#[test]
fn a_page_that_breaks_off_is_refused() {
    type Reader = fn(&[u8]) -> Result<CounterSet, NcuError>;
    let pages: [(&str, Reader); 2] = [
        ("mt_basic_raw.csv.gz", |page| raw::read(page)),
        ("mt_basic_details.csv.gz", |page| details::read(page)),
    ];
    for (name, read) in pages {
        let whole = fixture(name);
        let last = whole[..whole.len() - 1].iter().rposition(|b| *b == b'\n').unwrap() + 1;
        for end in (last + 1..whole.len() - 1).step_by(17) {
            let error = read(&whole[..end]).expect_err("a cut row");
            assert!(matches!(error, NcuError::Cut), "{name} at {end}: {error}");
        }
        let (all, unended) = (read(&whole).unwrap(), read(&whole[..whole.len() - 1]).unwrap());
        assert_eq!(all.launches.len(), unended.launches.len());
        assert_eq!(unended.losses.iter().count(), 0);
    }
}
