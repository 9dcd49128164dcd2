//! Serving engines, recognised from a command.

use std::ffi::OsString;
use std::path::Path;

/// Command or Python module of each engine, and its name.
const ENGINES: &[(&str, &str)] =
    &[("vllm", "vLLM"), ("sglang", "SGLang"), ("tensorrt_llm", "TensorRT-LLM"), ("trtllm", "TensorRT-LLM")];

/// Returns the serving engine that a command starts, such as `vllm serve ...` or `python3 -m sglang.launch_server ...`. Such an
/// engine runs in several processes.
pub fn serving_engine(words: &[OsString]) -> Option<&'static str> {
    let program = words.first().and_then(|word| Path::new(word).file_name());
    let after_m = words.iter().skip_while(|word| *word != "-m").nth(1);
    [program, after_m.map(OsString::as_os_str)].into_iter().flatten().find_map(|name| {
        let name = name.to_str()?;
        let first = name.split(['.', '-']).next()?;
        ENGINES.iter().find_map(|(known, engine)| (*known == first).then_some(*engine))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_known_by_command_and_module() {
        let of = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            serving_engine(&words)
        };
        assert_eq!(of("/usr/bin/vllm serve Qwen/Qwen3-8B"), Some("vLLM"));
        assert_eq!(of("python3 -m vllm.entrypoints.openai.api_server"), Some("vLLM"));
        assert_eq!(of("python3 -u -m sglang.launch_server --model x"), Some("SGLang"));
        assert_eq!(of("trtllm-serve model"), Some("TensorRT-LLM"));
        assert_eq!(of("python3 vllm_offline.py"), None);
        assert_eq!(of("./run --tool vllm"), None);
        assert_eq!(serving_engine(&[]), None);
    }
}
