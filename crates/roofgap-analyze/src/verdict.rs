//! One line on what holds a stage back.

use crate::analysis::Stage;

/// What holds a stage back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// A word or two, such as `launch-bound`.
    pub label: &'static str,
    /// The sentence that says why, with its numbers.
    pub why: String,
}

/// The share of wall time from which on the GPU counts as the limit.
const BUSY: f64 = 0.8;

/// Judges a stage by where its wall time went.
pub fn verdict(stage: &Stage) -> Verdict {
    let (Some(busy), Some(idle), Some(projected)) = (stage.busy_ns, stage.idle, stage.projected_ns) else {
        let why = "no GPU work was recorded for this stage".to_owned();
        return Verdict {
            label: "not measured",
            why,
        };
    };
    let wall = stage.wall_ns.max(1) as f64;
    let share = busy as f64 / wall;
    if share >= BUSY {
        let why = format!("the GPU is busy {:.1} % of the wall time", 100.0 * share.min(1.0));
        return Verdict {
            label: "GPU-bound",
            why,
        };
    }
    let outside = (stage.wall_ns - projected).max(0);
    let causes = [
        (
            idle.launch_ns,
            "launch-bound",
            "the CPU had not launched the next operation yet",
        ),
        (
            idle.sync_ns,
            "sync-bound",
            "the launching thread was waiting for the device",
        ),
        (
            idle.copy_ns,
            "copy-bound",
            "the launching thread was inside a copy call",
        ),
        (
            idle.other_ns,
            "gaps on the GPU",
            "work was launched and had not started",
        ),
        (
            outside,
            "host-bound",
            "the CPU worked before the first or after the last GPU operation",
        ),
    ];
    let lost: i64 = causes.iter().map(|c| c.0).sum();
    let (ns, label, cause) = causes.into_iter().max_by_key(|c| c.0).unwrap_or_default();
    let why = format!(
        "the GPU is idle {:.1} % of the wall time; in {:.0} % of that {cause}",
        100.0 * (1.0 - share),
        100.0 * ns as f64 / lost.max(1) as f64,
    );
    Verdict { label, why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Idle;

    fn stage(wall: i64, projected: i64, busy: i64, idle: Idle) -> Stage {
        Stage {
            wall_ns: wall,
            projected_ns: Some(projected),
            busy_ns: Some(busy),
            idle: Some(idle),
            ..Stage::default()
        }
    }

    #[test]
    fn the_largest_cause_gives_the_label() {
        let launch = Idle {
            launch_ns: 80,
            sync_ns: 5,
            copy_ns: 5,
            other_ns: 0,
        };
        assert_eq!(verdict(&stage(100, 98, 8, launch)).label, "launch-bound");
        assert_eq!(verdict(&stage(100, 98, 90, Idle::default())).label, "GPU-bound");
        assert_eq!(
            verdict(&stage(
                100,
                20,
                18,
                Idle {
                    launch_ns: 2,
                    ..Idle::default()
                }
            ))
            .label,
            "host-bound"
        );
        assert_eq!(verdict(&Stage::default()).label, "not measured");
        assert!(verdict(&stage(100, 98, 8, launch)).why.contains("idle 92.0 %"));
    }
}
