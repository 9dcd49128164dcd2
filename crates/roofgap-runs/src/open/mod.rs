//! The one loader: captures and runs in, trace and analysis out.
//!
//! - [`load`]: loads the inputs a user names, captures or one run directory;
//! - [`capture`]: loads capture files as one analysis;
//! - `input`: reads capture files, detected from content;
//! - `ranks`: several captures as ranks of one job;
//! - [`nsys_report`]: exports nsys reports, which only nsys can read;
//! - [`run`]: loads a run directory with its configuration and record;
//! - [`side`]: loads one side of a comparison;
//! - `accounts`: the program's own accounts, and profiler overhead from them;
//! - [`overrides`]: facts stated by the user, which win over those in the files.

pub mod capture;
pub mod error;
pub mod nsys_report;
pub mod overrides;
pub mod run;
pub mod side;

pub mod accounts;
pub mod input;
mod loaded;
mod ranks;
mod workload;

use std::path::PathBuf;

pub use error::LoadError;
pub use loaded::Loaded;
pub use nsys_report::{Exporter, is_report};
pub use overrides::Overrides;
pub use ranks::{CAPTURES, capture_format};
pub use side::{LoadedSide, load_side};

pub use crate::run_dir::locate::is_run;

/// Loads the inputs a user names: captures, joined into one analysis, or one run directory. Writes nothing beside the inputs.
pub fn load(paths: &[PathBuf], overrides: &Overrides, exporter: &Exporter) -> Result<Loaded, LoadError> {
    // Wrong stages are reported before a long read.
    overrides.options()?;
    let Some(run) = paths.iter().find(|path| is_run(path)) else {
        return capture::load(paths, overrides, exporter);
    };
    match paths.iter().find(|path| *path != run) {
        Some(other) => Err(LoadError::NotAlone { path: run.clone(), other: other.clone() }),
        None => Ok(run::Run::open(run)?.load(overrides)),
    }
}
