//! Several devices that do not share the work.

use crate::findings::rule::{Cause, Find, Rule, View, percent};
use crate::numbers::time;
use crate::result::Finding;

/// Share of the stage's time, in %, by which the busiest device must exceed the mean.
const LEAST_UNEVEN_PCT: f64 = 10.0;
/// Devices take turns where at most this part of their work, in %, runs at the same time.
const MOST_SHARED_PCT: f64 = 10.0;

/// A stage on several devices of which one computes longer than the rest. The bound is what an even share would save.
fn uneven(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let devices = view.evidence.map(|e| &e.devices).filter(|d| d.len() > 1)?;
    let most = devices.iter().max_by_key(|d| d.compute_ns)?;
    let least = devices.iter().min_by_key(|d| d.compute_ns)?;
    let sum: i64 = devices.iter().map(|d| d.compute_ns).sum();
    let mean = sum / devices.len() as i64;
    if percent(most.compute_ns - mean, stage.elapsed_ns()) < LEAST_UNEVEN_PCT {
        return None;
    }
    let title = format!(
        "the GPUs of {} are loaded unevenly: GPU {} computes {}, GPU {} {}",
        stage.spoken(),
        most.number,
        time(most.compute_ns),
        least.number,
        time(least.compute_ns)
    );
    let action = "Move work from the busiest GPU to the others: layers or experts placed by their cost, the output head and the \
                  embedding counted too, sequences of equal length for each.";
    view.saves(&[("computation of the busiest GPU", most.compute_ns), ("of an even share", -mean)])
        .with("devices", devices.len())
        .with("busiest_ns", most.compute_ns)
        .with("least_busy_ns", least.compute_ns)
        .with("mean_ns", mean)
        .finish(title, action)
}

/// A stage whose devices compute one after another. The bound is what is left out if all compute at once.
fn take_turns(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let evidence = view.evidence?;
    let any = evidence.any_device_ns?;
    let devices = evidence.devices.len() as i64;
    let sum: i64 = evidence.devices.iter().map(|d| d.compute_ns).sum();
    if devices < 2 || percent(sum - any, sum) > MOST_SHARED_PCT {
        return None;
    }
    let title = format!(
        "the {devices} GPUs of {} take turns: hardly two of them compute at the same time",
        stage.spoken()
    );
    let action = "Split each layer over the GPUs (tensor parallelism) instead of the layers among them, or keep several batches in \
                  flight; a model that fits on one GPU is faster there.";
    view.saves(&[("computation of any GPU", any), ("if all compute at once", -sum / devices)])
        .with("devices", devices)
        .with("compute_ns", sum)
        .with("any_device_ns", any)
        .finish(title, action)
}

pub const UNEVEN: Rule = Rule {
    find: Find::One(uneven),
    cause: Cause::Devices,
    id: "devices-uneven",
    remedy: "an even load of the GPUs",
    meaning: "One GPU of the stage computes longer than the others, which wait for it.",
    computed: "Computing time of the busiest device beyond the mean, from 10 % of the stage's time on. The bound is \
              what an even share would save.",
    fix: "Place layers or experts by their cost; count the embedding and the output head.",
    disproof: "The other GPUs do not wait for the busiest one, such as replicas that serve different requests.",
    ..Rule::BASE
};

pub const TAKE_TURNS: Rule = Rule {
    find: Find::One(take_turns),
    cause: Cause::Devices,
    id: "devices-take-turns",
    remedy: "GPUs that compute at the same time",
    meaning: "The GPUs of the stage compute one after another, as with layers spread over devices and a single \
              batch.",
    computed: "Stages on several devices in which at most 10 % of the work runs at the same time. The bound is what \
              is left out if all compute at once.",
    fix: "Use tensor parallelism, keep several batches in flight, or run on one GPU if the model fits.",
    disproof: "The GPUs serve different requests, one after another.",
    ..Rule::BASE
};
