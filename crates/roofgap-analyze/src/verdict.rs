//! The limit of a stage in one line.

use crate::result::Stage;

/// The limit of a stage.
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
    let (Some(busy), Some(idle), Some(projected)) = (stage.busy_ns, stage.causes(), stage.projected_ns)
    else {
        let why = "no GPU work was recorded for this stage".to_owned();
        return Verdict {
            label: "not measured",
            why,
        };
    };
    // Work of other ranges and threads keeps the GPU busy too.
    let elapsed = stage.elapsed_ns().max(1) as f64;
    let foreign = stage.each_device(stage.foreign_ns()) as f64 / elapsed;
    let own = stage.busy_share().unwrap_or(0.0);
    let share = (own + foreign).min(1.0_f64.max(own));
    let of_each = if stage.device_count > 1 {
        format!(" on the average of {} GPUs", stage.device_count)
    } else {
        String::new()
    };
    // GPU work that ran after the ranges belongs to the stage too.
    let time = if stage.period_ns.is_some() {
        "the time of its steps"
    } else if stage.closes_early() {
        "the time from the start of the stage to the end of its GPU work"
    } else {
        "the wall time"
    };
    if share >= BUSY {
        let copies = stage.memcpy_ns.unwrap_or(0);
        if copies > stage.kernel_ns.unwrap_or(0) && copies > busy / 2 {
            let why = format!(
                "the GPU is busy {:.1} % of {time}{of_each}, most of that with copies",
                100.0 * share
            );
            return Verdict {
                label: "copy-bound",
                why,
            };
        }
        let why = format!("the GPU is busy {:.1} % of {time}{of_each}", 100.0 * share);
        return Verdict {
            label: "GPU-bound",
            why,
        };
    }
    let (outside, queued, between) = if stage.period_ns.is_some() {
        (0, 0, stage.between_ns)
    } else {
        let outside = (stage.elapsed_ns() - projected).max(0);
        (outside, stage.each_device(stage.queued_ns).min(outside), 0)
    };
    let apart = if stage.devices_per_instance > 1.0 {
        let known = stage.each_device(busy.saturating_add(idle.total_ns()));
        stage
            .elapsed_ns()
            .saturating_sub(known.saturating_add(outside))
            .max(0)
    } else {
        0
    };
    let causes = [
        (
            stage.each_device(idle.launch_ns),
            "launch-bound",
            "the CPU had not launched the next operation yet",
        ),
        (
            stage.each_device(idle.sync_ns),
            "sync-bound",
            "the launching thread was waiting for the device, or late because it had waited",
        ),
        (
            stage.each_device(idle.copy_ns),
            "copy-bound",
            "the launching thread was inside a copy call, or late because of one",
        ),
        (
            stage.each_device(idle.other_ns),
            "gaps on the GPU",
            "work was launched and had not started",
        ),
        (
            queued,
            "queued",
            "the GPU still worked for what came before the stage",
        ),
        (
            apart,
            "uneven",
            "one GPU had nothing to do before its first or after its last operation, while another worked",
        ),
        (
            between,
            "gaps between steps",
            "the CPU had not launched the next step yet",
        ),
        (
            outside - queued,
            "host-bound",
            "the CPU worked before the first or after the last GPU operation",
        ),
    ];
    let lost: i64 = causes.iter().map(|c| c.0).sum();
    let (ns, label, cause) = causes.into_iter().max_by_key(|c| c.0).unwrap_or_default();
    let why = format!(
        "the GPU is idle {:.1} % of {time}{of_each}; in {:.0} % of that {cause}",
        100.0 * (1.0 - share),
        100.0 * ns as f64 / lost.max(1) as f64,
    );
    Verdict { label, why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Idle;

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
