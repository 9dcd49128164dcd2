//! The files of a run directory.

use std::path::{Path, PathBuf};

/// A run directory by its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    root: PathBuf,
}

macro_rules! files {
    ($($(#[$doc:meta])* $name:ident => $path:literal;)*) => {
        impl Layout {
            $($(#[$doc])* pub fn $name(&self) -> PathBuf { self.root.join($path) })*
        }
    };
}

files! {
    /// The resolved configuration.
    config => "config.yaml";
    /// Tools, driver, GPUs, machine.
    environment => "env.json";
    /// What the program was given.
    inputs => "inputs.yaml";
    /// The analysis.
    metrics => "metrics.json";
    /// Folder of the unwatched run.
    baseline => "baseline";
    /// The program's account of the unwatched run.
    baseline_account => "baseline/workload.json";
    /// Folder of Nsight Systems.
    nsys => "nsys";
    /// Report without its suffix.
    nsys_base => "nsys/run";
    /// Export of the report.
    nsys_sqlite => "nsys/run.sqlite";
    /// The export while it is being made: half of one could be read as if it were all.
    nsys_export => "nsys/.run.tmp.sqlite";
    /// Start of the names of summary files.
    nsys_summary => "nsys/summary";
    /// The program's account under nsys.
    nsys_account => "nsys/workload.json";
    /// Folder of the native collector.
    native => "native";
    /// The program's account under the native collector.
    native_account => "native/workload.json";
    /// Folder of torch.profiler.
    torch => "torch";
    /// Trace of torch.profiler.
    torch_trace => "torch/trace.json.gz";
    /// The program's account of the run under torch.profiler: its operators.
    torch_account => "torch/operators.json";
    /// The program's account of its other repeats in that phase.
    torch_other_account => "torch/workload.json";
    /// Folder of Nsight Compute.
    ncu => "ncu";
    /// What is asked of ncu, and what came back.
    ncu_plan => "ncu/plan.json";
    /// Report of the whole plan without its suffix.
    ncu_base => "ncu/plan";
    /// The report's raw page.
    ncu_raw => "ncu/plan_raw.csv";
    /// The report's details page, which has ncu's own rules.
    ncu_details => "ncu/plan_details.csv";
    /// The program's account under ncu.
    ncu_account => "ncu/workload.json";
    /// Configuration of a model preset, written out for the driver.
    model_config => "model/config.json";
    /// Scripts that were written out for the program.
    scripts => "scripts";
    /// Where a Hydra program writes its own outputs.
    program_outputs => "program";
}

impl Layout {
    /// The layout of a run directory.
    pub fn of(root: &Path) -> Self {
        Layout {
            root: root.to_owned(),
        }
    }

    /// The run directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The report of nsys.
    pub fn nsys_report(&self) -> PathBuf {
        self.nsys_base().with_extension("nsys-rep")
    }

    /// Captures of the native collector, one a process, in the order of their names.
    pub fn native_captures(&self) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(self.native()) else {
            return Vec::new();
        };
        let mut found: Vec<PathBuf> = entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| {
                let name = path.to_string_lossy();
                name.strip_suffix(".gz").unwrap_or(&name).ends_with(".rgcap")
            })
            .collect();
        found.sort();
        found
    }

    /// The raw page of one stage.
    pub fn ncu_stage_raw(&self, stage: &str) -> PathBuf {
        self.ncu().join(format!("{}_raw.csv", file_name(stage)))
    }

    /// The report under the name of one stage.
    pub fn ncu_stage_report(&self, stage: &str) -> PathBuf {
        self.ncu().join(format!("{}.ncu-rep", file_name(stage)))
    }
}

/// A file as it is stored: itself, or packed with gzip as in a run that was compressed; `None` where neither holds anything.
pub fn stored(path: PathBuf) -> Option<PathBuf> {
    let holds = |path: &Path| std::fs::metadata(path).is_ok_and(|facts| facts.is_file() && facts.len() > 0);
    if holds(&path) {
        return Some(path);
    }
    let mut packed = path.into_os_string();
    packed.push(".gz");
    Some(PathBuf::from(packed)).filter(|packed| holds(packed))
}

/// A stage name as part of a file name.
fn file_name(stage: &str) -> String {
    let fine = |c: char| {
        if c.is_ascii_alphanumeric() || "-_".contains(c) {
            c
        } else {
            '_'
        }
    };
    stage.chars().map(fine).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compressed_file_is_found_by_its_name_and_an_empty_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.sqlite");
        assert_eq!(stored(path.clone()), None);
        std::fs::write(&path, "").unwrap();
        assert_eq!(stored(path.clone()), None);
        let packed = folder.path().join("run.sqlite.gz");
        std::fs::write(&packed, "x").unwrap();
        assert_eq!(stored(path.clone()), Some(packed));
        std::fs::write(&path, "x").unwrap();
        assert_eq!(stored(path.clone()), Some(path));
    }

    #[test]
    fn a_stage_name_cannot_leave_the_folder() {
        let layout = Layout::of(Path::new("r"));
        assert_eq!(layout.ncu_stage_raw("../x/y"), Path::new("r/ncu/___x_y_raw.csv"));
        assert_eq!(
            layout.ncu_stage_report("decode"),
            Path::new("r/ncu/decode.ncu-rep")
        );
    }
}
