//! The kind of work of a function, by its name and file; the rules are in `kinds.txt`.

use crate::result::HostKind;
use std::sync::LazyLock;

/// Kinds of work, and what to do about each.
pub const TEXT: &str = include_str!("kinds.txt");

/// The lines of the text: kind, field and content.
static LINES: LazyLock<Vec<(HostKind, &str, &str)>> = LazyLock::new(|| {
    let line = |line: &'static str| {
        let (kind, rest) = line.split_once(' ')?;
        let (field, text) = rest.split_once(' ')?;
        Some((HostKind::named(kind)?, field, text))
    };
    TEXT.lines().filter_map(line).collect()
});

/// Returns what to do about a kind of work.
pub fn advice(kind: HostKind) -> &'static str {
    LINES.iter().find(|line| line.0 == kind && line.1 == "advice").map_or("", |line| line.2)
}

/// Modules of Python whose functions only lead from one function of the program to another.
const PLUMBING: [&str; 5] = ["functools.py", "contextlib.py", "<string>", "typing.py", "abc.py"];

/// Tells whether a function stands for the one that called it: those of PyTorch and of some modules of Python.
pub fn is_plumbing(function: &str, file: &str) -> bool {
    let folder = file.starts_with("torch/") || file.contains("/torch/") || file.starts_with("<frozen ");
    let name = file.rsplit('/').next().unwrap_or(file);
    // The outermost code of a program has a line of its own.
    function != "<module>" && !file.contains(".so") && (folder || PLUMBING.contains(&name))
}

fn find(field: &str, fits: impl Fn(&str) -> bool) -> Option<HostKind> {
    LINES.iter().find(|line| line.1 == field && line.2.split(' ').any(&fits)).map(|line| line.0)
}

/// Returns the kind of a function of C or of a system library, by its name.
pub fn of_name(name: &str) -> Option<HostKind> {
    find("functions", |known| match (known.strip_suffix('*'), known.strip_prefix('*')) {
        (Some(start), _) => name.starts_with(start),
        (_, Some(end)) => name.ends_with(end),
        _ => name == known,
    })
}

/// Returns the kind of a function. `called` is the function without a line that has most of its time, `dispatches` tells whether PyTorch
/// has most of it, and `waits` whether it waits for the device.
pub fn kind_of(function: &str, file: &str, called: Option<&str>, dispatches: bool, waits: bool) -> HostKind {
    // A function of a file is known by its file: `read` of a program is no system call.
    let is_native = !file.contains(".py") && !file.contains('<');
    let named = || called.and_then(of_name).or_else(|| of_name(function).filter(|_| is_native));
    let of_file = || find("files", |part| file.contains(part)).filter(|_| !is_native);
    named().or(waits.then_some(HostKind::HiddenSync)).or_else(of_file).unwrap_or(match () {
        () if function.contains("okenize") => HostKind::Tokenizer,
        () if dispatches || function.ends_with("forward") => HostKind::Dispatch,
        () if is_native => HostKind::Native,
        () => HostKind::Python,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofgap_trace::NOT_RUNNING;

    #[test]
    fn kinds_follow_from_names_and_files() {
        use HostKind::*;
        for (function, file, called, kind) in [
            ("Sampler.forward", "vllm/v1/sample/sampler.py", Some("Tensor.item"), HiddenSync),
            ("Sampler.forward", "vllm/v1/sample/sampler.py", Some("softmax"), Dispatch),
            ("run", "app.py", Some("torch.Event.synchronize"), HiddenSync),
            ("run", "app.py", Some("_thread.lock.acquire"), Lock),
            ("run", "app.py", Some("collect"), GarbageCollection),
            ("run", "app.py", Some("sleep"), Sleep),
            ("run", "app.py", Some(NOT_RUNNING), Descheduled),
            (NOT_RUNNING, "", None, Descheduled),
            ("emit", "logging/__init__.py", Some("_io.TextIOWrapper.write"), FileAccess),
            ("emit", "logging/__init__.py", None, Logging),
            ("_encode_plus", "transformers/tokenization_utils_fast.py", None, Tokenizer),
            ("schedule", "vllm/v1/core/sched/scheduler.py", None, Scheduler),
            ("get", "queue.py", None, Lock),
            ("read", "app.py", None, Python),
            ("read", "libc.so.6", None, FileAccess),
            ("pthread_cond_timedwait", "", None, Lock),
            ("at::native::add", "libtorch_cpu.so", None, Native),
        ] {
            assert_eq!(kind_of(function, file, called, false, false), kind, "{function} {file} {called:?}");
        }
        assert_eq!(kind_of("step", "app.py", Some("to"), false, true), HiddenSync);
        assert_eq!(kind_of("step", "app.py", Some("linear"), true, false), Dispatch);
    }

    #[test]
    fn every_kind_has_advice_and_every_line_a_kind() {
        for kind in HostKind::ALL.iter().copied() {
            assert!(!advice(kind).is_empty(), "{kind:?}");
        }
        let lines = TEXT.lines().filter(|line| !line.starts_with('#'));
        assert_eq!(LINES.len(), lines.count());
        assert!(LINES.iter().all(|line| ["functions", "files", "advice"].contains(&line.1)));
    }

    #[test]
    fn code_of_pytorch_stands_for_its_caller() {
        assert!(is_plumbing("linear", "torch/nn/functional.py") && is_plumbing("f", "/opt/torch/_ops.py"));
        assert!(!is_plumbing("forward", "torchvision/models.py") && !is_plumbing("<module>", "<string>"));
        assert!(!is_plumbing("Tensor.item", "") && !is_plumbing("at::add", "/opt/torch/lib/libtorch.so"));
    }
}
