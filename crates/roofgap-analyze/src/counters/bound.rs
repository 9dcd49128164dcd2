//! The limit of a kernel: one rule, with its inputs in the answer.
//!
//! 1. The busiest of the multiprocessors and the memory levels is at 60 % of its peak or more: that is the bound. Of the
//!    memory levels the outermost within 10 points of the busiest is named, because what DRAM moves passes through L2.
//!    L1 is measured against the cycles in which it was active, so it counts only where the memory system as a whole
//!    shows it too.
//! 2. Else, with fewer blocks than multiprocessors, the launch is too small for the device.
//! 3. Else nothing is near its roof: the kernel is latency-bound.

use super::readings::Readings;
use std::fmt;

/// Share of its peak, in %, from which on a unit is near its roof.
pub const NEAR_ROOF_PCT: f64 = 60.0;

/// Memory levels this close to the busiest one share its load.
const SHARED_PCT: f64 = 10.0;

/// The limit of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bound {
    /// The multiprocessors.
    Compute,
    /// Device memory.
    Dram,
    /// The second-level cache.
    L2,
    /// The first-level cache.
    L1,
    /// Nothing is near its roof.
    Latency,
    /// Fewer blocks than multiprocessors.
    TooSmall,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Compute => "compute-bound",
            Self::Dram => "memory-bound (DRAM)",
            Self::L2 => "memory-bound (L2)",
            Self::L1 => "memory-bound (L1)",
            Self::Latency => "latency-bound",
            Self::TooSmall => "too small",
        })
    }
}

/// The answer of the rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Limit; `None` where the inputs do not tell it.
    pub bound: Option<Bound>,
    /// The share of the peak that was reached there.
    pub reached_pct: Option<f64>,
    /// The rule as it was applied, in words.
    pub reason: String,
}

/// Applies the rule to the counters of a launch, its blocks and the multiprocessors of the device.
pub fn verdict(readings: &Readings, blocks: Option<u64>, sms: Option<u64>) -> Verdict {
    let none = |reason: String| Verdict { bound: None, reached_pct: None, reason };
    let l1 = readings.l1_pct.map(|own| readings.memory_pct.map_or(own, |whole| own.min(whole)));
    let levels = [(Bound::Dram, readings.dram_pct), (Bound::L2, readings.l2_pct), (Bound::L1, l1)];
    let known: Vec<(Bound, f64)> = levels.iter().filter_map(|(bound, pct)| Some((*bound, (*pct)?))).collect();
    let busiest = known.iter().map(|(_, pct)| *pct).fold(f64::NEG_INFINITY, f64::max);
    let memory = known
        .iter()
        .find(|(_, pct)| *pct >= busiest - SHARED_PCT && *pct >= NEAR_ROOF_PCT.min(busiest))
        .copied();
    let compute = readings.sm_pct.map(|pct| (Bound::Compute, pct));
    let top = [compute, memory].into_iter().flatten().max_by(|a, b| a.1.total_cmp(&b.1));
    let Some((bound, reached)) = top else {
        return none("no throughput of the multiprocessors or of memory was collected".to_owned());
    };
    let seen = shares(readings);
    // L1 may show more than what the verdict says of everything, while it is active.
    let overall = match readings.l1_pct.is_some_and(|own| own >= NEAR_ROOF_PCT) {
        true => " over the whole kernel",
        false => "",
    };
    let (bound, reason) = if reached >= NEAR_ROOF_PCT {
        let unit = match bound {
            Bound::Dram => "DRAM",
            Bound::L2 => "L2",
            Bound::L1 => "L1",
            _ => "compute",
        };
        (bound, format!("{unit} is at {NEAR_ROOF_PCT} % of its peak or more"))
    } else if compute.is_none() || memory.is_none() {
        let missing = if compute.is_none() { "the multiprocessors" } else { "memory" };
        return none(format!("{seen}: not near a roof, and the throughput of {missing} was not collected"));
    } else if let Some((blocks, sms)) = blocks.zip(sms).filter(|(blocks, sms)| blocks < sms) {
        let plural = if blocks == 1 { "" } else { "s" };
        (
            Bound::TooSmall,
            format!(
                "nothing at {NEAR_ROOF_PCT} % of its peak{overall}, and {blocks} block{plural} for {sms} multiprocessors"
            ),
        )
    } else {
        (Bound::Latency, format!("nothing at {NEAR_ROOF_PCT} % of its peak{overall}"))
    };
    Verdict { bound: Some(bound), reached_pct: Some(reached), reason: format!("{seen}: {reason}") }
}

fn shares(readings: &Readings) -> String {
    let whole_is_low = readings.memory_pct.is_some_and(|whole| whole < NEAR_ROOF_PCT);
    let shares = [
        ("compute", readings.sm_pct),
        ("DRAM", readings.dram_pct),
        ("L2", readings.l2_pct),
        ("L1", readings.l1_pct),
    ];
    let text = |(name, pct): (&str, Option<f64>)| match pct {
        None => format!("{name} not collected"),
        Some(pct) if name == "L1" && whole_is_low && pct >= NEAR_ROOF_PCT => {
            format!("{name} {pct:.1} % while active")
        }
        Some(pct) => format!("{name} {pct:.1} %"),
    };
    shares.map(text).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(sm: f64, dram: f64, l2: f64, l1: f64) -> Readings {
        Readings {
            sm_pct: Some(sm),
            memory_pct: Some(dram.max(l2)),
            dram_pct: Some(dram),
            l2_pct: Some(l2),
            l1_pct: Some(l1),
            ..Readings::default()
        }
    }

    /// Applies the rule on a device of 132 multiprocessors.
    fn with_blocks(blocks: u64, readings: Readings) -> Verdict {
        verdict(&readings, Some(blocks), Some(132))
    }

    #[test]
    fn each_verdict() {
        let bound = |readings| with_blocks(4096, readings).bound;
        assert_eq!(bound(inputs(90.0, 20.0, 30.0, 40.0)), Some(Bound::Compute));
        assert_eq!(bound(inputs(9.0, 76.0, 78.9, 17.0)), Some(Bound::Dram));
        assert_eq!(bound(inputs(9.0, 20.0, 78.9, 17.0)), Some(Bound::L2));
        assert_eq!(
            bound(Readings { memory_pct: Some(85.0), ..inputs(9.0, 20.0, 40.0, 88.0) }),
            Some(Bound::L1)
        );
        assert_eq!(bound(inputs(9.0, 20.0, 40.0, 3.0)), Some(Bound::Latency));
        assert_eq!(with_blocks(4, inputs(9.0, 20.0, 40.0, 3.0)).bound, Some(Bound::TooSmall));
    }

    #[test]
    fn a_small_grid_at_the_roof_is_not_too_small() {
        assert_eq!(with_blocks(126, inputs(5.2, 76.0, 78.9, 17.5)).bound, Some(Bound::Dram));
    }

    #[test]
    fn l1_of_a_kernel_that_hardly_ran_is_no_roof() {
        // 4 blocks: L1 at 57 % of the few cycles it was active in, memory as a whole at 1 %.
        let tiny = Readings { memory_pct: Some(1.0), ..inputs(0.0, 0.1, 1.0, 97.0) };
        assert_eq!(with_blocks(4, tiny).bound, Some(Bound::TooSmall));
    }

    #[test]
    fn half_the_counters_give_no_guess() {
        let only_sm = |pct| verdict(&Readings { sm_pct: Some(pct), ..Readings::default() }, None, None);
        assert_eq!(only_sm(12.0).bound, None);
        assert!(only_sm(12.0).reason.contains("memory was not collected"));
        assert_eq!(only_sm(92.0).bound, Some(Bound::Compute));
        assert_eq!(verdict(&Readings::default(), None, None).bound, None);
    }

    #[test]
    fn a_busy_l1_is_said_to_be_busy_while_active() {
        let verdict =
            with_blocks(4096, Readings { memory_pct: Some(40.6), ..inputs(40.2, 40.2, 39.7, 81.1) });
        assert_eq!(verdict.bound, Some(Bound::Latency));
        assert_eq!(
            verdict.reason,
            "compute 40.2 %, DRAM 40.2 %, L2 39.7 %, L1 81.1 % while active: \
             nothing at 60 % of its peak over the whole kernel"
        );
    }

    #[test]
    fn the_inputs_stand_in_the_reason() {
        let reason = with_blocks(4096, inputs(5.2, 76.0, 78.9, 17.5)).reason;
        assert_eq!(
            reason,
            "compute 5.2 %, DRAM 76.0 %, L2 78.9 %, L1 17.5 %: DRAM is at 60 % of its peak or more"
        );
    }
}
