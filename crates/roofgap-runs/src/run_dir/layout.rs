//! Paths of the files in a run directory.

use std::path::{Path, PathBuf};

use roofgap_collect::entries;

use crate::run_dir::PhaseName;
use crate::run_dir::folder::list_runs;

/// The files of a run directory.
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
    /// Record of the session.
    session => "session.json";
    /// Resolved configuration.
    config => "config.yaml";
    /// Tools, driver, GPUs and machine.
    environment => "env.json";
    /// Analysis.
    metrics => "metrics.json";
    /// Changes of the workload that were tried.
    trial => "try.json";
    /// Moment that `roofgap watch --record` kept the run for.
    incident => "incident.json";
    /// Page with all results.
    page => "report.html";
    /// Folder of the baseline run.
    baseline => "baseline";
    /// Workload account of the baseline run.
    baseline_account => "baseline/workload.json";
    /// Folder of Nsight Systems.
    nsys => "nsys";
    /// nsys report without its suffix.
    nsys_base => "nsys/run";
    /// SQLite export of the nsys report.
    nsys_sqlite => "nsys/run.sqlite";
    /// SQLite export in progress. A partial export must never be read as a complete one.
    nsys_export => "nsys/.run.tmp.sqlite";
    /// Prefix of the nsys summary files.
    nsys_summary => "nsys/summary";
    /// Agreement of the two recordings of the timeline.
    agreement => "agreement.json";
    /// Workload account under nsys.
    nsys_account => "nsys/workload.json";
    /// Folder of the native collector.
    native => "native";
    /// Shared library of the native collector, present while it is in use.
    native_library => "native/libroofgap_inject.so";
    /// Workload account under the native collector.
    native_account => "native/workload.json";
    /// Folder of torch.profiler.
    torch => "torch";
    /// Trace of torch.profiler.
    torch_trace => "torch/trace.json.gz";
    /// Workload account under torch.profiler, with the operators.
    torch_account => "torch/operators.json";
    /// Workload account of the unprofiled repeats of that phase.
    torch_other_account => "torch/workload.json";
    /// Folder of Nsight Compute.
    ncu => "ncu";
    /// ncu report of the whole plan, without its suffix.
    ncu_base => "ncu/plan";
    /// Raw page of the ncu report.
    ncu_raw => "ncu/plan_raw.csv";
    /// Details page of the ncu report, with ncu's rules.
    ncu_details => "ncu/plan_details.csv";
    /// Workload account under ncu.
    ncu_account => "ncu/workload.json";
    /// `config.json` of a model preset, written for the driver.
    model_config => "model/config.json";
    /// Scripts written for the program.
    scripts => "scripts";
    /// Output folder of a Hydra program.
    program_outputs => "program";
}

impl Layout {
    /// Creates the layout of a run directory.
    pub fn of(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Returns the run directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the path of the nsys report.
    pub fn nsys_report(&self) -> PathBuf {
        self.nsys_base().with_extension("nsys-rep")
    }

    /// Lists the captures of the native collector by name, one per process; those of a job lie in the runs of its nodes.
    pub fn native_captures(&self) -> Vec<PathBuf> {
        let mut captures = Vec::new();
        for folder in std::iter::once(self.root.clone()).chain(self.node_runs()) {
            captures.extend(captures_in(&Self::of(&folder).native()));
        }
        captures.sort();
        captures
    }

    /// Lists the captures of the baseline run, one per process: ranges and calls.
    pub fn baseline_captures(&self) -> Vec<PathBuf> {
        captures_in(&self.baseline()).collect()
    }

    /// Lists the entries of a job's folder of nodes, sorted by name, runs or not. A run of one node has none.
    pub fn nodes(&self) -> Vec<PathBuf> {
        entries(&nodes_in(&self.root))
    }

    /// Lists the runs of the nodes of a job, oldest first, also linked ones; none in any other run.
    pub fn node_runs(&self) -> Vec<PathBuf> {
        let runs = list_runs(&nodes_in(&self.root)).unwrap_or_default();
        runs.into_iter().map(|(_, path)| path).collect()
    }

    /// Returns the path of the vitals of the GPUs during a phase.
    pub fn vitals(&self, phase: PhaseName) -> PathBuf {
        self.root.join(format!("vitals/{phase}.jsonl"))
    }

    /// Returns the path of the raw page of one stage.
    pub fn ncu_stage_raw(&self, stage: &str) -> PathBuf {
        self.ncu().join(format!("{}_raw.csv", file_name(stage)))
    }

    /// Returns the path of the ncu report under the name of one stage.
    pub fn ncu_stage_report(&self, stage: &str) -> PathBuf {
        self.ncu().join(format!("{}.ncu-rep", file_name(stage)))
    }
}

fn captures_in(folder: &Path) -> impl Iterator<Item = PathBuf> {
    entries(folder).into_iter().filter(|path| {
        let name = path.to_string_lossy();
        name.strip_suffix(".gz").unwrap_or(&name).ends_with(".rgcap")
    })
}

/// Returns the folder of the runs of the nodes of a job.
pub fn nodes_in(job: &Path) -> PathBuf {
    job.join("nodes")
}

/// Returns the folder of the job that has a run among its nodes; `None` for any other run.
pub fn job_of_node(run: &Path) -> Option<&Path> {
    let nodes = run.parent()?;
    nodes.parent().filter(|job| nodes_in(job) == nodes)
}

/// Returns true for a regular file that is not empty.
pub fn has_content(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|facts| facts.is_file() && facts.len() > 0)
}

/// Finds a file as it is stored, plain or compressed with gzip. `None` where both are missing or empty.
pub fn stored(path: PathBuf) -> Option<PathBuf> {
    let packed = path.with_added_extension("gz");
    [path, packed].into_iter().find(|path| has_content(path))
}

/// Replaces the characters of a stage name that do not suit a file name.
fn file_name(stage: &str) -> String {
    let replace = |c: char| {
        if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '_' }
    };
    stage.chars().map(replace).collect()
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
    fn only_runs_are_nodes_of_a_job() {
        let folder = tempfile::tempdir().unwrap();
        let nodes = nodes_in(folder.path());
        for name in ["20260101-000000", ".nfs01", "copy"] {
            std::fs::create_dir_all(nodes.join(name)).unwrap();
        }
        std::os::unix::fs::symlink(nodes.join("copy"), nodes.join("20260101-000000-2")).unwrap();
        let runs = ["20260101-000000", "20260101-000000-2"].map(|name| nodes.join(name));
        let job = Layout::of(folder.path());
        assert_eq!(job.node_runs(), runs);
        // What is no run can hold private data all the same.
        assert_eq!(job.nodes().len(), 4);
        assert_eq!(job_of_node(&runs[0]), Some(folder.path()));
        assert_eq!(job_of_node(folder.path()), None);
    }

    #[test]
    fn a_stage_name_cannot_leave_the_folder() {
        let layout = Layout::of(Path::new("r"));
        assert_eq!(layout.ncu_stage_raw("../x/y"), Path::new("r/ncu/___x_y_raw.csv"));
        assert_eq!(layout.ncu_stage_report("decode"), Path::new("r/ncu/decode.ncu-rep"));
    }
}
