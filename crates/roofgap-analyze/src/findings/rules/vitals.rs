//! Clocks below the highest, and other users of the GPU.

use super::View;
use crate::counters::Bound;
use crate::result::{Finding, Kernel, OtherTenant, ThrottleReason};
use roofgap_base::numbers::time;

/// Least share of the samples of a stage with a reason, %: a touch of a limit is no finding.
const LEAST_PCT: f64 = 50.0;

/// Least samples of a stage.
const LEAST_SAMPLES: u64 = 5;

/// Least use of the GPU by another process over the run, %.
const LEAST_USE_PCT: f64 = 2.0;

/// A clock that a limit keeps below the highest for most of a stage. Kernels at the roof of the memory gain nothing from a higher one.
pub fn throttled(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let vitals = stage.vitals.as_ref().filter(|vitals| vitals.samples >= LEAST_SAMPLES)?;
    let throttle = vitals.throttle.first().filter(|throttle| throttle.pct >= LEAST_PCT)?;
    let gpus = &view.inputs.analysis.vitals.as_ref()?.gpus;
    let highest = gpus.iter().filter_map(|gpu| gpu.max_sm_mhz).reduce(f64::max)?;
    let mhz = vitals.sm_mhz.filter(|mhz| *mhz > 0.0 && *mhz < highest)?;
    let computes = view.roofs.compute_ns > view.roofs.memory_ns;
    let follows = |kernel: &&Kernel| match kernel.counters.as_ref().and_then(|row| row.bound.as_deref()) {
        Some(bound) => bound != Bound::Dram.to_string(),
        None => computes,
    };
    let kernel_ns: i64 = stage.kernels.iter().filter(follows).map(|kernel| kernel.total_ns).sum();
    let gained = (kernel_ns as f64 * (1.0 - mhz / highest)).round() as i64;
    let reason = throttle.reason;
    let title = format!(
        "the GPU runs {} at {mhz:.0} of {highest:.0} MHz ({reason}, {:.0} % of the samples); the clock decides about {} of its kernels",
        stage.spoken(),
        throttle.pct,
        view.time(kernel_ns)
    );
    let action = match reason {
        ThrottleReason::PowerCap => view.action("power limit"),
        ThrottleReason::Thermal | ThrottleReason::HwThermal => view.action("temperature"),
        ThrottleReason::ClockSetting | ThrottleReason::Unstated => view.action("clock setting"),
        _ => view.action("hardware"),
    };
    let limit = gpus.iter().filter_map(|gpu| gpu.limit_w).reduce(f64::min);
    view.saves_on_devices(&[("time that these kernels would take less at the highest clock", gained)])
        .with("reason", reason.as_str())
        .with_number("reason_pct", throttle.pct)
        .with_number("sm_mhz", mhz)
        .with_number("max_sm_mhz", highest)
        .with("kernel_ns", kernel_ns)
        .with_number("limit_w", limit)
        .finish(title, action)
}

/// A clock that is low while a stage begins.
pub fn clock_ramp(view: &View<'_>) -> Option<Finding> {
    let (stage, vitals) = (view.stage, view.stage.vitals.as_ref()?);
    let (ramp, mhz) = vitals.ramp.as_ref().zip(vitals.sm_mhz)?;
    let slow = stage.elapsed_ns() as f64 * ramp.pct / 100.0;
    let gained = (slow * (1.0 - ramp.sm_mhz / mhz)).round() as i64;
    let title = format!(
        "{} begins at {:.0} MHz: the clock reaches {mhz:.0} MHz after {}",
        stage.spoken(),
        ramp.sm_mhz,
        time(slow.round() as i64)
    );
    view.saves(&[("time that the beginning would take less at the clock of the rest", gained)])
        .with_number("ramp_pct", ramp.pct)
        .with_number("ramp_mhz", ramp.sm_mhz)
        .with_number("sm_mhz", mhz)
        .finish(title, view.action("warm up"))
}

/// A process that is not of the program and uses its GPU.
pub fn other_tenant(view: &View<'_>) -> Option<Finding> {
    let gpus = &view.inputs.analysis.vitals.as_ref()?.gpus;
    let others = gpus.iter().flat_map(|gpu| gpu.others.iter().map(move |other| (gpu.device, other)));
    let most = |a: &(u32, &OtherTenant), b: &(u32, &OtherTenant)| a.1.sm_pct.total_cmp(&b.1.sm_pct);
    let (device, other) = others.max_by(most).filter(|(_, other)| other.sm_pct >= LEAST_USE_PCT)?;
    let name = other.name.as_deref().unwrap_or("a process");
    let title = format!(
        "{name} (process {}) used the multiprocessors of GPU {device} for {:.0} % of the run beside the program",
        other.pid, other.sm_pct
    );
    let lost = (view.stage.elapsed_ns() as f64 * other.sm_pct.min(100.0) / 100.0).round() as i64;
    view.saves(&[("time in which the other process used the GPU", lost)])
        .with("pid", other.pid)
        .with("name", other.name.clone())
        .with_number("sm_pct", other.sm_pct)
        .finish(title, view.action("end it"))
}
