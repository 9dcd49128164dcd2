//! Python frames: the functions that they name, and those that delimit the steps of an engine.
//!
//! With stacks, a trace has a frame for every Python call: hundreds of thousands. They become the stacks of their thread; those of the
//! tables below are ranges too.

use crate::{FrameId, HostFrame, NameId, Trace};
use std::sync::LazyLock;

/// Domain of the ranges that stand for Python frames.
pub const FRAME_DOMAIN: &str = "python";

/// Meaning of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FrameRole {
    /// One step of the engine.
    Step,
    /// One call of the model; a step where it is inside a generation.
    ModelCall,
    /// The generation of a whole answer.
    Generation,
    /// The part of a generation that reads the prompt.
    Prefill,
}

/// A frame that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Name of the engine.
    pub engine: &'static str,
    /// Meaning.
    pub role: FrameRole,
    /// End of the file's path; empty for a module's call.
    file: &'static str,
    /// Function, or the end of the module's class.
    function: &'static str,
}

/// The frames of `frames.tsv`.
static FRAMES: LazyLock<Vec<Frame>> = LazyLock::new(|| {
    let frame = |line: &'static str| {
        let mut columns = line.split('\t');
        Some(Frame {
            engine: columns.next()?,
            role: match columns.next()? {
                "step" => FrameRole::Step,
                "generation" => FrameRole::Generation,
                "prefill" => FrameRole::Prefill,
                _ => FrameRole::ModelCall,
            },
            file: columns.next()?,
            function: columns.next()?,
        })
    };
    include_str!("frames.tsv").lines().filter_map(frame).collect()
});

/// Beginning of the frames of a module's call, which end with the number of the module.
pub const MODULE: &str = "nn.Module: ";

impl Frame {
    /// Returns the frame to which the reader gives a name.
    ///
    /// ```
    /// use roofgap_trace::frames::Frame;
    /// let frame = Frame::named("vllm/v1/worker/gpu_worker.py: execute_model");
    /// assert_eq!(frame.map(|frame| frame.engine), Some("vLLM"));
    /// assert_eq!(Frame::named("vllm/v1/worker/gpu_worker.py: profile"), None);
    /// ```
    pub fn named(name: &str) -> Option<&'static Self> {
        FRAMES.iter().find(|frame| match name.strip_prefix(MODULE) {
            Some(class) => frame.file.is_empty() && class.ends_with(frame.function),
            None => name.split_once(": ") == Some((frame.file, frame.function)),
        })
    }
}

/// A name of frames, as the trace has it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NamedFrame {
    pub frame: FrameId,
    /// Domain and name of the range, for a frame of the tables.
    pub step: Option<(NameId, NameId)>,
    /// Domain and name of the module, for a call of one.
    pub module: Option<(NameId, NameId)>,
}

impl NamedFrame {
    /// Reads a name and adds it to a trace.
    pub fn intern(raw: &str, trace: &mut Trace) -> Self {
        let (function, file, line) = function_of(raw);
        let frame =
            HostFrame { function: trace.names.intern(&function), file: trace.names.intern(file), line };
        let mut range = |name: &str| (trace.names.intern(FRAME_DOMAIN), trace.names.intern(name));
        Self {
            step: kept(raw.as_bytes()).map(|name| range(&name)),
            module: is_module(raw.as_bytes()).then(|| range(raw)),
            frame: trace.stacks.intern(frame),
        }
    }
}

/// Folders after which the path of a file is that of its package.
const PACKAGES: [&str; 2] = ["/site-packages/", "/dist-packages/"];

/// Returns function, file and line of the name of a frame. Numbers of modules and addresses of objects are left out, so that all calls of
/// a function have one name. The line is that of the name: where PyTorch wrote it, the line at which the function begins.
fn function_of(raw: &str) -> (String, &str, u32) {
    let placed = || {
        let (path, function) = raw.rsplit_once("): ")?;
        let (file, line) = path.rsplit_once('(')?;
        Some((function, file, line.parse().ok()?))
    };
    if let Some((function, file, line)) = placed() {
        let package = PACKAGES.iter().find_map(|folder| file.rsplit_once(folder));
        return (function.to_owned(), package.map_or(file, |(_, file)| file), line);
    }
    if let Some(class) = raw.strip_prefix(MODULE).and_then(|module| class_of(module.as_bytes())) {
        return (format!("{MODULE}{}", String::from_utf8_lossy(class)), "", 0);
    }
    let builtin = raw.strip_prefix("<built-in ").and_then(|rest| rest.strip_suffix('>'));
    let function = match builtin.and_then(|rest| rest.split_once(' ')) {
        Some(("method", rest)) => match rest.split_once(" of ") {
            Some((method, object)) => {
                let class = object.split_once(" object at ").map_or("", |(class, _)| class);
                // Functions of a module are methods of a type, a capsule or a binding that says nothing.
                match class.is_empty() || ["type", "PyCapsule"].contains(&class) || class.contains("pybind11")
                {
                    true => method.to_owned(),
                    false => format!("{class}.{method}"),
                }
            }
            None => rest.to_owned(),
        },
        Some((_, name)) => name.to_owned(),
        None => raw.split_once(" at 0x").map_or(raw, |(name, _)| name).to_owned(),
    };
    (function, "", 0)
}

/// Returns true for the frame of a module's call, `nn.Module: CLASS_NUMBER`.
pub fn is_module(raw: &[u8]) -> bool {
    raw.strip_prefix(MODULE.as_bytes()).is_some_and(|module| class_of(module).is_some())
}

/// Returns the class of `CLASS_NUMBER`.
fn class_of(module: &[u8]) -> Option<&[u8]> {
    let end = module.iter().rposition(|byte| *byte == b'_')?;
    let (class, number) = module.split_at(end);
    let numbered = number.len() > 1 && number[1..].iter().all(u8::is_ascii_digit);
    numbered.then_some(class)
}

/// Returns the name of a kept frame, `FILE: FUNCTION` or `nn.Module: CLASS`, without folder, line and number; `None` for others.
pub fn kept(raw: &[u8]) -> Option<String> {
    if let Some(module) = raw.strip_prefix(MODULE.as_bytes()) {
        let class = class_of(module)?;
        let model = |frame: &Frame| frame.file.is_empty() && class.ends_with(frame.function.as_bytes());
        return FRAMES.iter().any(model).then(|| format!("{MODULE}{}", String::from_utf8_lossy(class)));
    }
    let frame = FRAMES.iter().find(|frame| !frame.file.is_empty() && is(raw, frame))?;
    Some(format!("{}: {}", frame.file, frame.function))
}

/// Returns true if a name is `[FOLDER/]FILE(LINE): FUNCTION`.
fn is(raw: &[u8], frame: &Frame) -> bool {
    let path = raw.strip_suffix(frame.function.as_bytes()).and_then(|rest| rest.strip_suffix(b"): "));
    let Some(path) = path else { return false };
    let digits = path.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let path = path.get(..path.len() - digits).and_then(|rest| rest.strip_suffix(b"("));
    let folder = path.and_then(|path| path.strip_suffix(frame.file.as_bytes()));
    digits > 0 && folder.is_some_and(|folder| folder.is_empty() || folder.ends_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_the_table_are_kept_without_folder_and_line() {
        for (raw, name) in [
            (
                "vllm/v1/worker/gpu_model_runner.py(2907): execute_model",
                "vllm/v1/worker/gpu_model_runner.py: execute_model",
            ),
            (
                "/sgl-workspace/sglang/python/sglang/srt/managers/scheduler.py(2919): _run_batch_inner",
                "sglang/srt/managers/scheduler.py: _run_batch_inner",
            ),
            ("nn.Module: Qwen2ForCausalLM_0", "nn.Module: Qwen2ForCausalLM"),
            ("nn.Module: GPT2LMHeadModel_12", "nn.Module: GPT2LMHeadModel"),
            (
                "/usr/lib/python3/dist-packages/transformers/generation/utils.py(2711): _sample",
                "transformers/generation/utils.py: _sample",
            ),
        ] {
            assert_eq!(kept(raw.as_bytes()).as_deref(), Some(name));
            assert!(Frame::named(name).is_some(), "{name}");
        }
        for other in [
            "vllm/v1/worker/gpu_model_runner.py(753): _update_states",
            "vllm/v1/worker/gpu_worker.py: execute_model",
            "myvllm/v1/worker/gpu_worker.py(1): execute_model",
            "nn.Module: Linear_3",
            "nn.Module: ForCausalLM_x",
            "nn.Module: ",
            "<built-in method execute_model>",
            "",
        ] {
            assert_eq!(kept(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn functions_have_one_name_whatever_the_object() {
        for (raw, expected) in [
            ("vllm/v1/sample/sampler.py(118): forward", ("forward", "vllm/v1/sample/sampler.py", 118)),
            (
                "/opt/lib/python3.12/site-packages/vllm/engine.py(7): <lambda>",
                ("<lambda>", "vllm/engine.py", 7),
            ),
            ("<string>(1): <module>", ("<module>", "<string>", 1)),
            ("C:\\x (1)\\a.py(3): f", ("f", "C:\\x (1)\\a.py", 3)),
            ("<built-in method item of Tensor object at 0x7f10>", ("Tensor.item", "", 0)),
            ("<built-in method item of numpy.int32 object at 0x7f10>", ("numpy.int32.item", "", 0)),
            ("<built-in method bmm of type object at 0x7f10>", ("bmm", "", 0)),
            ("<built-in method _cuda_synchronize of PyCapsule object at 0x1>", ("_cuda_synchronize", "", 0)),
            ("<built-in function len>", ("len", "", 0)),
            ("nn.Module: Linear_37", ("nn.Module: Linear", "", 0)),
            ("<torch.thing object at 0x7f10>", ("<torch.thing object", "", 0)),
            ("", ("", "", 0)),
        ] {
            let (function, file, line) = function_of(raw);
            assert_eq!((&*function, file, line), expected, "{raw}");
        }
    }

    #[test]
    fn modules_are_known_by_their_number() {
        assert!(is_module(b"nn.Module: Linear_3") && is_module(b"nn.Module: Qwen2ForCausalLM_0"));
        assert!(
            !is_module(b"nn.Module: Linear") && !is_module(b"nn.Module: Linear_") && !is_module(b"Linear_3")
        );
    }

    #[test]
    fn every_frame_of_the_table_is_found_by_its_name() {
        for frame in FRAMES.iter() {
            let raw = match frame.file {
                "" => format!("{MODULE}Model{}_0", frame.function),
                file => format!("/site-packages/{file}(1): {}", frame.function),
            };
            let name = kept(raw.as_bytes()).unwrap();
            assert_eq!(Frame::named(&name), Some(frame), "{raw}");
        }
    }
}
