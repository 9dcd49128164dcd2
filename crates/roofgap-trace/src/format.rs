//! The formats of inputs. What is known about a format beside its content is one row, which stands beside its reader.

use crate::input::{Input, Sniffed};
use crate::{ReadError, account, kineto, native, ncu, nsys, perfetto, stats, vitals};

/// A format of input files.
#[derive(Debug)]
pub struct Format {
    /// Name in reports and JSON.
    pub name: &'static str,
    /// Description in messages, with an article; formats with the same one are listed once.
    pub description: &'static str,
    /// Profiler that writes it; empty for none.
    pub profiler: &'static str,
    /// True for a timeline, of which one command takes one.
    pub is_timeline: bool,
    /// Endings of file names, for the search of folders; also with `.gz` behind them. The content decides.
    pub endings: &'static [&'static str],
    /// Setting of the profiler that records GPU work, as the end of a sentence; may be empty.
    pub gpu_work_advice: &'static str,
    /// Advice for naming the stages of a program, as the end of a sentence.
    pub stages_advice: &'static str,
    /// Word for a range of the program.
    pub range_word: &'static str,
    pub(crate) detect: fn(&Head) -> Detected,
    pub(crate) read: fn(&Sniffed, &mut Input) -> Result<(), ReadError>,
}

impl Format {
    /// Values that most formats share.
    pub(crate) const DEFAULT: Self = Self {
        name: "",
        description: "",
        profiler: "",
        is_timeline: false,
        endings: &[],
        gpu_work_advice: "",
        stages_advice: "add NVTX ranges to the program (for an LLM in the domain LLM: prefill, decode_all, decode_step)",
        range_word: "range",
        detect: |_| Detected::No,
        read: |_, _| Ok(()),
    };
}

/// First bytes of a file, unpacked.
pub struct Head {
    pub(crate) bytes: Vec<u8>,
    /// True if these are all bytes of the file.
    pub(crate) whole: bool,
}

/// Result of detecting a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detected {
    /// The file has this format.
    Yes,
    /// The file has another format.
    No,
    /// More bytes are needed to decide.
    NeedMore,
}

impl From<bool> for Detected {
    fn from(is_format: bool) -> Self {
        if is_format { Self::Yes } else { Self::No }
    }
}

macro_rules! formats {
    ($($(#[$doc:meta])* $variant:ident => $row:path;)*) => {
        /// Format of an input file.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum SourceFormat {
            $($(#[$doc])* $variant,)*
        }

        impl SourceFormat {
            /// All formats, in the order in which a file is compared with them.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Returns what is known about the format.
            pub fn facts(self) -> &'static Format {
                match self { $(Self::$variant => &$row,)* }
            }
        }
    };
}

formats! {
    /// SQLite export of an nsys report.
    NsysSqlite => nsys::EXPORT;
    /// nsys report.
    NsysReport => nsys::REPORT;
    /// Capture of the native collector.
    Native => native::FORMAT;
    /// Nsight Compute report.
    NcuReport => ncu::REPORT;
    /// Raw page of `ncu --csv`.
    NcuRawPage => ncu::RAW_PAGE;
    /// Details page of `ncu --csv`.
    NcuDetailsPage => ncu::DETAILS_PAGE;
    /// Kernel summary of `nsys stats`.
    KernelSummary => stats::FORMAT;
    /// Workload account of the profiled program.
    WorkloadAccount => account::FORMAT;
    /// Vitals of the GPUs.
    Vitals => vitals::FORMAT;
    /// Trace of Perfetto.
    Perfetto => perfetto::FORMAT;
    /// PyTorch profiler trace.
    Kineto => kineto::FORMAT;
}

impl SourceFormat {
    /// Returns the format of a name in reports and JSON.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|format| format.as_str() == name)
    }

    /// Returns the name used in reports and JSON.
    pub fn as_str(self) -> &'static str {
        self.facts().name
    }

    /// Returns true for totals of kernels, which have no times of launches.
    pub fn is_summary(self) -> bool {
        self == Self::KernelSummary
    }

    /// Returns true for a timeline, of which one command takes one.
    pub fn is_timeline(self) -> bool {
        self.facts().is_timeline
    }

    /// Lists the descriptions of all formats for a message.
    pub(crate) fn expected() -> String {
        let mut described: Vec<&str> = Self::ALL.iter().map(|format| format.facts().description).collect();
        described.retain(|description| !description.is_empty());
        described.dedup();
        format!("{}, or a run directory", described.join(", "))
    }
}

impl std::fmt::Display for SourceFormat {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.as_str())
    }
}

impl From<SourceFormat> for String {
    fn from(format: SourceFormat) -> Self {
        format.as_str().to_owned()
    }
}
