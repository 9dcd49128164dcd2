//! Recording: profiling sessions, running programs, load for servers, and trials of changes.
//!
//! - [`run`]: a profiling session and its phases; a window of a program that runs
//! - [`stage1`]: Stage 1 runners and other Hydra modules
//! - [`select`]: the kernels that ncu measures
//! - [`traffic`]: load for a server, and its latency
//! - [`trial`]: `roofgap try`: measures the changes that findings suggest

pub mod run;
pub mod select;
pub mod stage1;
pub mod traffic;
pub mod trial;

/// Returns each of some values once, in the order of the first.
fn distinct<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for value in values {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}
