//! Coverage-guided fuzzing: libFuzzer chooses the inputs of the target that `ROOFGAP_FUZZ_TARGET` names. `scripts/fuzz.sh` runs it.

#![no_main]
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../fuzz/mod.rs"]
#[allow(dead_code)]
mod fuzz;

use std::sync::LazyLock;

static TARGET: LazyLock<(String, tempfile::TempDir)> =
    LazyLock::new(|| (std::env::var("ROOFGAP_FUZZ_TARGET").unwrap(), tempfile::tempdir().unwrap()));

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let (target, folder) = &*TARGET;
    if let Err(why) = fuzz::try_input(target, bytes, folder.path()) {
        panic!("{why}");
    }
});
