//! Python frames that delimit the steps of an engine.
//!
//! With stacks, a trace has a frame for every Python call: hundreds of thousands. The reader keeps those of [`FRAMES`], as ranges.

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
    /// Engine, in its own spelling.
    pub engine: &'static str,
    /// Meaning.
    pub role: FrameRole,
    /// End of the file's path; empty for a module's call.
    file: &'static str,
    /// Function, or the end of the module's class.
    function: &'static str,
}

const fn frame(engine: &'static str, role: FrameRole, file: &'static str, function: &'static str) -> Frame {
    Frame { engine, role, file, function }
}

const GENERATE: &str = "transformers/generation/utils.py";

/// Every frame that is kept.
pub const FRAMES: &[Frame] = &[
    frame("vLLM", FrameRole::Step, "vllm/v1/worker/gpu_worker.py", "execute_model"),
    frame("vLLM", FrameRole::Step, "vllm/v1/worker/gpu_model_runner.py", "execute_model"),
    frame("vLLM", FrameRole::Step, "vllm/v1/worker/gpu/model_runner.py", "execute_model"),
    frame("vLLM", FrameRole::Step, "vllm/worker/worker_base.py", "execute_model"),
    frame("vLLM", FrameRole::Step, "vllm/worker/model_runner.py", "execute_model"),
    frame("SGLang", FrameRole::Step, "sglang/srt/managers/scheduler.py", "run_batch"),
    frame("SGLang", FrameRole::Step, "sglang/srt/managers/scheduler.py", "_run_batch_inner"),
    frame("transformers", FrameRole::Generation, GENERATE, "generate"),
    frame("transformers", FrameRole::Generation, GENERATE, "_sample"),
    frame("transformers", FrameRole::Generation, GENERATE, "sample"),
    frame("transformers", FrameRole::Generation, GENERATE, "_greedy_search"),
    frame("transformers", FrameRole::Generation, GENERATE, "greedy_search"),
    frame("transformers", FrameRole::Prefill, GENERATE, "_prefill"),
    frame("transformers", FrameRole::ModelCall, "", "ForCausalLM"),
    frame("transformers", FrameRole::ModelCall, "", "ForConditionalGeneration"),
    frame("transformers", FrameRole::ModelCall, "", "LMHeadModel"),
];

/// Beginning of the frames of a module's call, which end with the number of the module.
pub const MODULE: &str = "nn.Module: ";

impl Frame {
    /// Finds the frame of a name that the reader gave to a range.
    ///
    /// ```
    /// use roofgap_trace::frames::{Frame, FrameRole};
    /// let frame = Frame::named("vllm/v1/worker/gpu_worker.py: execute_model").unwrap();
    /// assert_eq!((frame.engine, frame.role), ("vLLM", FrameRole::Step));
    /// assert_eq!(Frame::named("vllm/v1/worker/gpu_worker.py: profile"), None);
    /// ```
    pub fn named(name: &str) -> Option<&'static Self> {
        let module = name.strip_prefix(MODULE);
        FRAMES.iter().find(|frame| match module {
            Some(class) => frame.file.is_empty() && class.ends_with(frame.function),
            None => name.split_once(": ") == Some((frame.file, frame.function)),
        })
    }
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
    let found = FRAMES.iter().find(|frame| !frame.file.is_empty() && is(raw, frame))?;
    Some(format!("{}: {}", found.file, found.function))
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
    fn modules_are_known_by_their_number() {
        assert!(is_module(b"nn.Module: Linear_3") && is_module(b"nn.Module: Qwen2ForCausalLM_0"));
        assert!(
            !is_module(b"nn.Module: Linear") && !is_module(b"nn.Module: Linear_") && !is_module(b"Linear_3")
        );
    }

    #[test]
    fn every_frame_of_the_table_is_found_by_its_name() {
        for frame in FRAMES {
            let raw = match frame.file {
                "" => format!("{MODULE}Model{}_0", frame.function),
                file => format!("/site-packages/{file}(1): {}", frame.function),
            };
            let name = kept(raw.as_bytes()).unwrap();
            assert_eq!(Frame::named(&name), Some(frame), "{raw}");
        }
    }
}
