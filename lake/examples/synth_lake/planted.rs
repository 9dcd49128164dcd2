//! The answers that a synthetic lake has.

use jiff::ToSpan as _;
use jiff::civil::Date;
use serde::Serialize;

/// First day of every synthetic lake.
const FIRST: Date = Date::constant(2026, 3, 1);

/// Days that a commit is in use.
const DAYS_PER_COMMIT: usize = 2;

/// Projects.
pub const PROJECTS: [&str; 2] = ["chat", "search"];

/// GPUs; a host has GPUs of one kind.
pub const GPUS: [&str; 2] = ["NVIDIA H100 80GB HBM3", "NVIDIA H200"];

/// A model, the number of ranks that it runs on, and the time of a token in decode, ns.
pub const MODELS: [(&str, i64, i64); 3] =
    [("llama-3.1-8b", 1, 6_000_000), ("qwen3-32b", 1, 18_000_000), ("llama-3.1-70b", 8, 12_000_000)];

/// Extent of a synthetic lake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Number of runs.
    pub runs: usize,
    /// Number of days.
    pub days: usize,
    /// Number of hosts.
    pub hosts: usize,
    /// Seed of the noise.
    pub seed: u64,
}

impl Extent {
    /// Returns a date.
    pub fn date(&self, day: usize) -> Date {
        let days = i64::try_from(day).unwrap_or(0);
        FIRST.checked_add(days.days()).unwrap_or(FIRST)
    }

    /// Returns the name of a host.
    pub fn host(&self, host: usize) -> String {
        format!("gpu-{host:02}")
    }

    /// Returns the commit of a project on a day.
    pub fn commit(&self, project: usize, day: usize) -> String {
        let number = day / DAYS_PER_COMMIT;
        format!("{:040x}", ((project as u128 + 1) << 64) | ((number as u128 + 1) * 0x0001_0001_0001))
    }

    /// Returns the first day of the slower commit.
    pub fn slow_day(&self) -> usize {
        self.days * 2 / 3 / DAYS_PER_COMMIT * DAYS_PER_COMMIT
    }

    /// Returns the first day of the newer driver.
    pub fn driver_day(&self) -> usize {
        self.days / 3
    }

    /// Returns the slow host.
    pub fn slow_host(&self) -> usize {
        self.hosts.saturating_sub(1)
    }

    /// Returns the planted answers.
    pub fn planted(&self) -> Planted {
        let utilisation = (0..MODELS.len()).flat_map(|model| (0..GPUS.len()).map(move |gpu| (model, gpu)));
        let utilisation = utilisation.map(|(model, gpu)| Utilisation {
            model: MODELS.get(model).map_or("", |model| model.0),
            gpu: GPUS.get(gpu).copied().unwrap_or_default(),
            prefill_mfu_pct: prefill_mfu_pct(model, gpu),
            decode_mbu_pct: decode_mbu_pct(model, gpu),
        });
        Planted {
            regression: Regression {
                project: PROJECTS[0],
                model: MODELS[0].0,
                stage: "decode",
                git_commit: self.commit(0, self.slow_day()),
                change_pct: 20.0,
            },
            batch_change: BatchChange {
                project: PROJECTS[1],
                model: MODELS[1].0,
                git_commit: self.commit(1, self.slow_day()),
                batch: LARGER_BATCH,
            },
            slow_host: SlowHost { host: self.host(self.slow_host()), slowdown_pct: 15.0 },
            slow_driver: SlowDriver {
                driver: NEW_DRIVER,
                previous_driver: OLD_DRIVER,
                short_name: SLOW_KERNEL,
                change_pct: 30.0,
            },
            slow_rank: SlowRank { rank: SLOW_RANK, slowdown_pct: 25.0 },
            utilisation: utilisation.collect(),
        }
    }
}

/// Driver of the first days.
pub const OLD_DRIVER: &str = "550.54.15";
/// Driver of the other days.
pub const NEW_DRIVER: &str = "560.28.03";
/// Batch size.
pub const BATCH: i64 = 8;
/// Batch size of one model and project since the slower commit: other work, not a slower commit.
pub const LARGER_BATCH: i64 = 16;
/// Kernel that the newer driver makes slower.
pub const SLOW_KERNEL: &str = "flash_fwd_kernel";
/// Rank that computes longer than the others.
pub const SLOW_RANK: i64 = 5;

/// Returns the MFU of prefill for a model and a GPU, by position.
pub fn prefill_mfu_pct(model: usize, gpu: usize) -> f64 {
    40.0 + 5.0 * model as f64 + 2.5 * gpu as f64
}

/// Returns the MBU of decode for a model and a GPU, by position.
pub fn decode_mbu_pct(model: usize, gpu: usize) -> f64 {
    60.0 - 5.0 * model as f64 + 1.25 * gpu as f64
}

/// Answers that queries must give.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Planted {
    pub regression: Regression,
    pub batch_change: BatchChange,
    pub slow_host: SlowHost,
    pub slow_driver: SlowDriver,
    pub slow_rank: SlowRank,
    pub utilisation: Vec<Utilisation>,
}

/// A stage of one model and project that takes longer from one commit on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Regression {
    pub project: &'static str,
    pub model: &'static str,
    pub stage: &'static str,
    pub git_commit: String,
    pub change_pct: f64,
}

/// A model and project whose stages take longer from one commit on because the batch is larger. No query may call it slower.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BatchChange {
    pub project: &'static str,
    pub model: &'static str,
    pub git_commit: String,
    pub batch: i64,
}

/// A host on which every stage takes longer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SlowHost {
    pub host: String,
    pub slowdown_pct: f64,
}

/// A driver with which one kernel takes longer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SlowDriver {
    pub driver: &'static str,
    pub previous_driver: &'static str,
    pub short_name: &'static str,
    pub change_pct: f64,
}

/// A rank that computes longer than the others of its jobs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SlowRank {
    pub rank: i64,
    pub slowdown_pct: f64,
}

/// The utilisation of every run of a model on a GPU.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Utilisation {
    pub model: &'static str,
    pub gpu: &'static str,
    pub prefill_mfu_pct: f64,
    pub decode_mbu_pct: f64,
}
