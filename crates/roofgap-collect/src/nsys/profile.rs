//! `nsys profile`: what is recorded, and how.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::command::{CommandLine, Planned};
use crate::range::NvtxRange;
use crate::tool::Nsys;

/// How a CUDA graph is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GraphTrace {
    /// Each kernel of it: what an attribution to stages needs.
    #[default]
    Node,
    /// One row a launch: cheaper.
    Graph,
}

/// What happens where a capture range closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CaptureEnd {
    /// The program goes on, unrecorded.
    #[default]
    Stop,
    /// The program is ended (status 143).
    StopShutdown,
    /// Each of the first `n` instances goes into a report of its own.
    Repeat(u32),
}

/// Recording only inside a range. It cuts off what is still queued on the GPU when the range closes, so it is for those
/// who ask for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gate {
    /// The range; it must be written exactly as the program writes it.
    pub range: NvtxRange,
    /// What happens where it closes.
    pub end: CaptureEnd,
}

/// What is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// The report without its suffix: nsys adds `.nsys-rep`.
    pub output: PathBuf,
    /// What is traced, by the names nsys has for it: `cuda`, `nvtx`, `osrt` (which can be far heavier than the others), ...
    pub trace: Vec<String>,
    /// Whose CPU samples are taken: `none`, `process-tree` or `system-wide`.
    pub sample: String,
    /// Whose context switches are recorded, in the same words.
    pub cpuctxsw: String,
    /// How CUDA graphs are recorded.
    pub graph: GraphTrace,
    /// CUDA events: they cost and are not needed.
    pub events: bool,
    /// Recording only inside a range.
    pub gate: Option<Gate>,
    /// Arguments the user adds, before the program.
    pub extra: Vec<String>,
}

impl Profile {
    /// CUDA and NVTX, ungated.
    pub fn to(output: impl Into<PathBuf>) -> Self {
        Profile {
            output: output.into(),
            trace: vec!["cuda".to_owned(), "nvtx".to_owned()],
            sample: "none".to_owned(),
            cpuctxsw: "none".to_owned(),
            graph: GraphTrace::Node,
            events: false,
            gate: None,
            extra: Vec::new(),
        }
    }

    /// The report nsys leaves. Its existence is the only proof that something was recorded.
    pub fn report(&self) -> PathBuf {
        with_suffix(
            &self.output,
            match &self.gate {
                Some(Gate {
                    end: CaptureEnd::Repeat(_),
                    ..
                }) => ".1.nsys-rep",
                _ => ".nsys-rep",
            },
        )
    }

    /// What is left instead of a report where the import failed.
    pub fn unimported(&self) -> PathBuf {
        with_suffix(&self.output, ".qdstrm")
    }

    /// `nsys profile ... program ...`, with the options this nsys lists.
    pub fn command(&self, nsys: &Nsys, program: &CommandLine) -> Planned {
        let mut left_out = Vec::new();
        let help = &nsys.profile;
        let mut line = CommandLine::new(&nsys.path).arg("profile");
        line = line.option("--trace", self.apis(nsys, &mut left_out).join(","));
        // Both have other defaults than none, and cost.
        line = line
            .option("--sample", &self.sample)
            .option("--cpuctxsw", &self.cpuctxsw);
        if help.has("--cuda-graph-trace") {
            let graph = match self.graph {
                GraphTrace::Node => "node",
                GraphTrace::Graph => "graph",
            };
            line = line.option("--cuda-graph-trace", graph);
        }
        if help.has("--cuda-event-trace") {
            line = line.option("--cuda-event-trace", if self.events { "true" } else { "false" });
        }
        if let Some(gate) = &self.gate {
            line = line
                .option("--capture-range", "nvtx")
                .option("--nvtx-capture", gate.range.for_nsys());
            let end = match gate.end {
                CaptureEnd::Stop => "stop".to_owned(),
                CaptureEnd::StopShutdown => "stop-shutdown".to_owned(),
                CaptureEnd::Repeat(count) => format!("repeat:{count}"),
            };
            line = line.option("--capture-range-end", end);
            // Without this only registered strings open the gate, and most programs register none.
            line = line.env("NSYS_NVTX_PROFILER_REGISTER_ONLY", "0");
        }
        line = line
            .option("--force-overwrite", "true")
            .option("--output", literal(&self.output));
        let command = line.args(self.extra.iter().map(String::as_str)).around(program);
        Planned { command, left_out }
    }

    /// One unknown name would end nsys, so a name this version does not list is left out.
    fn apis(&self, nsys: &Nsys, left_out: &mut Vec<String>) -> Vec<&str> {
        let mut apis: Vec<&str> = Vec::new();
        for api in &self.trace {
            if !nsys.profile.has("--trace") || nsys.profile.offers("--trace", api) {
                apis.push(api);
            } else {
                left_out.push(format!("--trace={api}: this nsys cannot trace it"));
            }
        }
        if apis.is_empty() { vec!["none"] } else { apis }
    }
}

/// A path in which nsys is not to see `%p`, `%h`, `%q{...}` and the like.
fn literal(path: &Path) -> OsString {
    match path.to_str() {
        Some(text) => text.replace('%', "%%").into(),
        None => path.as_os_str().to_owned(),
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(OsStr::new(suffix));
    name.into()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::tool::{Help, Import, Place, Version};

    /// An nsys of the given version whose help lists `options`.
    pub(crate) fn nsys(version: &str, options: &str, reports: &[&str]) -> Nsys {
        Nsys {
            path: "/opt/nsys".into(),
            place: Place::Path,
            version: Version::find(version),
            profile: Help::read(options),
            export: Help::read("\t-l, --lazy=\n\t-q, --quiet=\n"),
            reports: reports.iter().map(|&name| name.to_owned()).collect(),
            import: Import::Unknown { why: String::new() },
        }
    }

    const OLD: &str = "\t--cuda-graph-trace=\n\n\t-t, --trace=\n\n\t   'cuda', 'nvtx', 'cublas', 'osrt'\n";
    const NEW: &str = "\t--cuda-graph-trace=\n\n\t--cuda-event-trace=\n\n\t-t, --trace=\n\n\t   'cuda', 'cuda-hw', 'nvtx', 'osrt'\n";

    fn program() -> CommandLine {
        CommandLine::new("python3")
            .args(["run.py", "--n", "1"])
            .env("ROOFGAP_PHASE", "timeline")
    }

    #[test]
    fn the_default_is_ungated() {
        let line = Profile::to("/runs/1/nsys/run")
            .command(&nsys("2023.4.4", OLD, &[]), &program())
            .command;
        assert_eq!(
            line.to_string(),
            "env ROOFGAP_PHASE=timeline /opt/nsys profile --trace=cuda,nvtx --sample=none --cpuctxsw=none \
             --cuda-graph-trace=node --force-overwrite=true --output=/runs/1/nsys/run python3 run.py --n 1"
        );
    }

    #[test]
    fn events_are_left_out_only_where_that_is_an_option() {
        let profile = Profile {
            trace: ["cuda", "nvtx", "osrt"].map(str::to_owned).to_vec(),
            graph: GraphTrace::Graph,
            ..Profile::to("r")
        };
        let line = profile
            .command(&nsys("2025.3.1", NEW, &[]), &program())
            .command
            .to_string();
        assert!(line.contains("--trace=cuda,nvtx,osrt "), "{line}");
        assert!(
            line.contains("--cuda-graph-trace=graph --cuda-event-trace=false"),
            "{line}"
        );
    }

    #[test]
    fn a_gate_is_rendered_in_the_order_nsys_wants() {
        let gate = |end| {
            Some(Gate {
                range: NvtxRange::parse("LLM@decode_all").unwrap(),
                end,
            })
        };
        let profile = Profile {
            gate: gate(CaptureEnd::Stop),
            ..Profile::to("r")
        };
        let line = profile.command(&nsys("2025.3.1", NEW, &[]), &program()).command;
        let text = line.to_string();
        assert!(
            text.contains("--capture-range=nvtx --nvtx-capture=decode_all@LLM --capture-range-end=stop"),
            "{text}"
        );
        assert_eq!(
            line.env_value("NSYS_NVTX_PROFILER_REGISTER_ONLY"),
            Some(Some(OsStr::new("0")))
        );
        assert_eq!(profile.report(), Path::new("r.nsys-rep"));

        let profile = Profile {
            gate: gate(CaptureEnd::Repeat(3)),
            ..Profile::to("r")
        };
        assert!(
            profile
                .command(&nsys("2025.3.1", NEW, &[]), &program())
                .command
                .to_string()
                .contains("=repeat:3")
        );
        assert_eq!(profile.report(), Path::new("r.1.nsys-rep"));
    }

    #[test]
    fn a_percent_sign_in_a_path_is_not_a_pattern() {
        let line = Profile::to("/a/100%p/run")
            .command(&nsys("2023.4.4", OLD, &[]), &program())
            .command;
        assert!(line.args.contains(&OsString::from("--output=/a/100%%p/run")));
        assert_eq!(
            Profile::to("/a/100%p/run").unimported(),
            Path::new("/a/100%p/run.qdstrm")
        );
    }

    #[test]
    fn an_api_this_version_does_not_list_is_left_out() {
        let profile = Profile {
            trace: ["cuda", "nvtx", "cublas", "python-gil"]
                .map(str::to_owned)
                .to_vec(),
            ..Profile::to("r")
        };
        let planned = profile.command(&nsys("2022.4.2", OLD, &[]), &program());
        assert!(
            planned.command.to_string().contains("--trace=cuda,nvtx,cublas "),
            "{}",
            planned.command
        );
        assert_eq!(
            planned.left_out,
            ["--trace=python-gil: this nsys cannot trace it"]
        );
    }
}
