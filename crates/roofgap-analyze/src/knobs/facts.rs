//! Facts about the workload of a run, from its configuration.

/// The settings of a workload that a knob can change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkloadFacts {
    /// The embedded model.
    Embedded {
        /// Keeps keys and values of earlier positions.
        kv_cache: bool,
        /// Most positions that a step without a KV cache reads again.
        context_limit: Option<u64>,
    },
    /// A Hugging Face model, run by the driver.
    Hf(HfFacts),
    /// A program or a server after `--`.
    Program(ProgramFacts),
}

/// Settings of a Hugging Face model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HfFacts {
    /// Uses torch.compile for decode.
    pub compile: bool,
    /// Replays decode as a CUDA graph.
    pub cuda_graphs: bool,
    /// Sequences at once.
    pub batch: u64,
    /// Number format of the weights.
    pub dtype: String,
    /// Attention implementation, where one is set.
    pub attention: Option<String>,
    /// Experts implementation, where one is set.
    pub experts: Option<String>,
}

/// A program after `--`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProgramFacts {
    /// Program and arguments.
    pub words: Vec<String>,
    /// Serving engine whose own command it is, such as `vllm serve`; its flags are those of the engine. `None` for a script, whose
    /// flags are its own.
    pub engine_command: Option<String>,
}

impl ProgramFacts {
    /// Returns a flag as the program has it. Engines accept underscores for dashes.
    pub(super) fn flag(&self, name: &str) -> Option<Flag<'_>> {
        let same = |word: &str| word.replace('_', "-") == name;
        self.words.iter().enumerate().find_map(|(at, word)| {
            let (flag, value) = match word.split_once('=') {
                Some((flag, value)) => (flag, Some(value)),
                None => (word.as_str(), None),
            };
            let next = self.words.get(at + 1).map(String::as_str);
            (flag.starts_with("--") && same(flag)).then_some(Flag { spelled: flag, value: value.or(next) })
        })
    }
}

/// A flag of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flag<'a> {
    /// The flag as written.
    pub(super) spelled: &'a str,
    /// Text after `=`, else the next word, which is the value of a flag that takes one.
    pub(super) value: Option<&'a str>,
}
