//! The cold start of a program among the instances of a stage: compilation, graph capture, first use of kernels and memory.

use crate::result::ColdStart;
use crate::stages::Span;
use roofgap_base::stats::median;
use roofgap_trace::Ns;

/// Wall time of a cold instance over that of the later ones, at least.
const LONGER: f64 = 2.0;
/// GPU time of a cold instance over that of the later ones, at most. More GPU work is another task, such as a longer prompt.
const SAME_WORK: f64 = 1.5;

/// Time of an instance, and of the GPU operations in it, ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstanceTime {
    pub wall: Ns,
    pub gpu: Ns,
}

impl InstanceTime {
    /// Creates the time of an instance without GPU operations.
    pub fn of(span: &Span) -> Self {
        InstanceTime { wall: span.length(), gpu: 0 }
    }
}

/// Finds the instances before the first repeatable one. The later half of the instances is the reference, and two of them are
/// needed to show that they repeat.
pub fn cold_start(instances: &[InstanceTime]) -> Option<ColdStart> {
    let warm = instances.get(instances.len() / 2..).filter(|warm| warm.len() >= 2)?;
    let middle = |of: fn(&InstanceTime) -> Ns| median(&mut warm.iter().map(of).collect::<Vec<Ns>>());
    let (wall, gpu) = (middle(|time| time.wall)?, middle(|time| time.gpu)?);
    let is_longer = |time: &InstanceTime| time.wall as f64 > LONGER * wall as f64;
    if warm.iter().any(is_longer) {
        return None;
    }
    let is_cold = |time: &&InstanceTime| is_longer(time) && time.gpu as f64 <= SAME_WORK * gpu as f64;
    let count = instances.iter().take_while(is_cold).count();
    let (cold, rest) = instances.split_at_checked(count)?;
    (gpu > 0 && count > 0).then(|| ColdStart {
        instances: count as u64,
        mean_ns: mean(cold),
        warm_mean_ns: mean(rest),
    })
}

fn mean(times: &[InstanceTime]) -> Ns {
    times.iter().map(|time| time.wall).sum::<Ns>() / (times.len().max(1) as Ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(times: &[(Ns, Ns)]) -> Option<ColdStart> {
        let times: Vec<InstanceTime> = times.iter().map(|&(wall, gpu)| InstanceTime { wall, gpu }).collect();
        cold_start(&times)
    }

    #[test]
    fn the_first_instance_is_cold_if_it_takes_longer_for_the_same_work() {
        let cold = found(&[(1000, 60), (100, 50), (110, 50)]);
        let expected = ColdStart { instances: 1, mean_ns: 1000, warm_mean_ns: 105 };
        assert_eq!(cold, Some(expected));
        let both = found(&[(1000, 50), (800, 50), (100, 50), (110, 50), (90, 50)]).unwrap();
        assert_eq!((both.instances, both.mean_ns, both.warm_mean_ns), (2, 900, 100));
    }

    #[test]
    fn other_patterns_are_no_cold_start() {
        // A longer prompt; a slow one in the middle; too few; no repeatable ones; no GPU work.
        assert_eq!(found(&[(1000, 500), (100, 50), (110, 50)]), None);
        assert_eq!(found(&[(100, 50), (900, 50), (100, 50), (110, 50), (100, 50)]), None);
        assert_eq!(found(&[(1000, 50), (100, 50)]), None);
        assert_eq!(found(&[(1000, 50), (100, 50), (900, 50)]), None);
        assert_eq!(found(&[(1000, 0), (100, 0), (110, 0)]), None);
        assert_eq!(found(&[]), None);
    }
}
