//! The rates of the caches that ncu's hierarchical roofline charts collect.

use crate::result::CacheRates;
use roofgap_trace::ncu::{Base, CounterSet, LaunchCounters, Unit};

/// Metric of the traffic and unit whose cycles its peak is given by.
const L1: (&str, &str) = ("derived__l1tex__lsu_writeback_bytes_mem_lgds.sum", "l1tex");
const L2: (&str, &str) = ("derived__lts__lts2xbar_bytes.sum", "lts");

/// Reads the rates of one launch; `None` where none were collected.
pub fn rates(set: &CounterSet, launch: &LaunchCounters) -> Option<CacheRates> {
    // ncu states these metrics in bytes, in bytes per cycle or second, or without a unit.
    let units =
        [Unit::BYTE, Unit::BYTE_PER_SECOND, Unit::per(Base::Byte, Base::Cycle), Unit::ONE, Unit::UNSTATED];
    let bytes = |name: &str| {
        let found = units.iter().find_map(|unit| set.value(launch, name, *unit));
        found.filter(|value| value.is_finite() && *value > 0.0)
    };
    let rate = |(metric, _): (&str, &str)| bytes(&format!("{metric}.per_second"));
    let peak = |(metric, unit): (&str, &str)| {
        let clock = format!("{unit}__cycles_elapsed.avg.per_second");
        let clock = set.value(launch, &clock, Unit::HERTZ).filter(|hertz| *hertz > 0.0)?;
        Some(bytes(&format!("{metric}.peak_sustained"))? * clock)
    };
    let rates = CacheRates {
        l1_bytes_per_s: rate(L1),
        l1_peak_bytes_per_s: peak(L1),
        l2_bytes_per_s: rate(L2),
        l2_peak_bytes_per_s: peak(L2),
    };
    (rates != CacheRates::default()).then_some(rates)
}

/// Returns the mean of several launches; what only some have is the mean of those.
pub fn mean(all: impl Iterator<Item = CacheRates>) -> Option<CacheRates> {
    let rates: Vec<CacheRates> = all.collect();
    let mean = |get: fn(&CacheRates) -> Option<f64>| {
        let known: Vec<f64> = rates.iter().filter_map(get).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    };
    (!rates.is_empty()).then(|| CacheRates {
        l1_bytes_per_s: mean(|rates| rates.l1_bytes_per_s),
        l1_peak_bytes_per_s: mean(|rates| rates.l1_peak_bytes_per_s),
        l2_bytes_per_s: mean(|rates| rates.l2_bytes_per_s),
        l2_peak_bytes_per_s: mean(|rates| rates.l2_peak_bytes_per_s),
    })
}

#[cfg(test)]
mod tests {
    use crate::{Options, analyze};

    #[test]
    fn a_hierarchical_roofline_has_the_peaks_of_both_caches() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/ncu/llama2_roofline_raw.csv.gz");
        let input = roofgap_trace::read(&[path.into()]).unwrap();
        let options = Options { counters: input.counters, ..Options::default() };
        let analysis = analyze(&input.trace, &options).analysis;
        let rates = analysis.counters.iter().find_map(|row| row.caches).unwrap();
        // An H200: 132 x 128 bytes per cycle of L1 and 6,016 of L2, at clocks of 1.5 to 2 GHz.
        let (l1, l2) = (rates.l1_peak_bytes_per_s.unwrap(), rates.l2_peak_bytes_per_s.unwrap());
        assert!((25e12..34e12).contains(&l1) && (8e12..13e12).contains(&l2), "{l1} {l2}");
        assert!(rates.l1_bytes_per_s.unwrap() < l1 && rates.l2_bytes_per_s.unwrap() < l2);
    }
}
