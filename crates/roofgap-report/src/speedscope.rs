//! GPU time by ranges and operators as a profile for speedscope.

use crate::bundle::Bundle;
use crate::export::{self, ExportError};
use crate::stacks::{Stack, Stacks, timeline};
use serde_json::{Value, json};
use std::io;
use std::path::Path;

/// Writes the profile to a file.
pub fn save(bundle: Bundle<'_>, path: &Path) -> Result<(), ExportError> {
    let stacks = Stacks::of(bundle, timeline(bundle, path)?);
    let profile = profile(&bundle.context.title, &stacks);
    export::write_whole(path, |out| serde_json::to_writer(out, &profile).map_err(io::Error::from))
}

/// Builds the document: a sampled profile, in which each stack is a sample that weighs its GPU time.
fn profile(title: &str, stacks: &Stacks) -> Value {
    let (samples, weights): (Vec<Vec<u32>>, Vec<i64>) =
        stacks.iter().map(|Stack { frames, ns }| (frames, ns)).unzip();
    let total: i64 = weights.iter().sum();
    let frames: Vec<Value> = stacks.frames.iter().map(|name| json!({ "name": name })).collect();
    json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "name": title,
        "exporter": concat!("roofgap ", env!("CARGO_PKG_VERSION")),
        "activeProfileIndex": 0,
        "shared": { "frames": frames },
        "profiles": [{
            "type": "sampled",
            "name": "GPU time",
            "unit": "nanoseconds",
            "startValue": 0,
            "endValue": total,
            "samples": samples,
            "weights": weights,
        }],
    })
}
