//! Settings from the environment.

use std::path::PathBuf;
use std::time::Duration;

/// The settings of a recording.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// `ROOFGAP_NATIVE_DIR`: where the file goes. Without it nothing is recorded.
    pub(crate) folder: PathBuf,
    /// `ROOFGAP_NATIVE_COPIES`: copies and sets as they ran on the GPU (`0` leaves them out).
    pub(crate) copies: bool,
    /// `ROOFGAP_NATIVE_SYNC`: waits as CUPTI's own records too (`1` asks for them). The calls that wait are recorded anyway, and
    /// these records cost a launch-bound program a third of its time.
    pub(crate) waits: bool,
    /// `ROOFGAP_NATIVE_GRAPH`: `graph` records a launch as one, `node` (the default) each kernel of it.
    pub(crate) whole_graphs: bool,
    /// `ROOFGAP_NATIVE_CALLS`: how CUDA calls are recorded.
    pub(crate) calls: Calls,
    /// `ROOFGAP_NATIVE_FLUSH_MS`: how often CUPTI is asked for what it has finished; 0 never asks.
    pub(crate) flush_every: Option<Duration>,
    /// `ROOFGAP_NATIVE_MAX_MB`: the size the file may reach.
    pub(crate) limit: u64,
}

/// Method of recording CUDA calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Calls {
    /// In the best way this CUPTI has.
    Best,
    /// `activity`: chosen one by one as activities.
    Activity,
    /// `callbacks`: chosen one by one, timed by ourselves.
    Callbacks,
    /// `all`: every call there is.
    All,
}

/// One second loses little when a program is killed and is rare enough to cost nothing.
const FLUSH_MS: u64 = 1_000;
const MAX_MB: u64 = 4_096;

impl Options {
    /// Reads the environment through `get`; `None` when nothing is to be recorded.
    pub(crate) fn read(get: impl Fn(&str) -> Option<std::ffi::OsString>) -> Option<Self> {
        let folder = get("ROOFGAP_NATIVE_DIR")
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)?;
        let text = |name: &str| get(name).and_then(|value| value.into_string().ok());
        let number = |name: &str, otherwise: u64| {
            text(name)
                .and_then(|value| value.trim().parse().ok())
                .unwrap_or(otherwise)
        };
        let flush = number("ROOFGAP_NATIVE_FLUSH_MS", FLUSH_MS);
        Some(Self {
            folder,
            copies: text("ROOFGAP_NATIVE_COPIES").as_deref() != Some("0"),
            waits: text("ROOFGAP_NATIVE_SYNC").as_deref() == Some("1"),
            whole_graphs: text("ROOFGAP_NATIVE_GRAPH").as_deref() == Some("graph"),
            calls: match text("ROOFGAP_NATIVE_CALLS").as_deref() {
                Some("activity") => Calls::Activity,
                Some("callbacks") => Calls::Callbacks,
                Some("all") => Calls::All,
                _ => Calls::Best,
            },
            flush_every: (flush > 0).then(|| Duration::from_millis(flush)),
            limit: number("ROOFGAP_NATIVE_MAX_MB", MAX_MB)
                .max(1)
                .saturating_mul(1 << 20),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Option<Options> {
        Options::read(|name| pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.into()))
    }

    #[test]
    fn without_a_folder_nothing_is_recorded() {
        assert!(read(&[]).is_none());
        assert!(read(&[("ROOFGAP_NATIVE_DIR", "")]).is_none());
    }

    #[test]
    fn defaults_record_everything() {
        let options = read(&[("ROOFGAP_NATIVE_DIR", "/x")]).unwrap();
        assert!(options.copies && !options.whole_graphs);
        assert_eq!(options.flush_every, Some(Duration::from_secs(1)));
        assert_eq!(options.limit, 4 << 30);
    }

    #[test]
    fn each_setting_is_heard_and_nonsense_is_not() {
        let options = read(&[
            ("ROOFGAP_NATIVE_DIR", "/x"),
            ("ROOFGAP_NATIVE_COPIES", "0"),
            ("ROOFGAP_NATIVE_GRAPH", "graph"),
            ("ROOFGAP_NATIVE_FLUSH_MS", "0"),
            ("ROOFGAP_NATIVE_CALLS", "callbacks"),
            ("ROOFGAP_NATIVE_MAX_MB", "many"),
        ])
        .unwrap();
        assert!(!options.copies && options.whole_graphs);
        assert_eq!((options.flush_every, options.calls), (None, Calls::Callbacks));
        assert_eq!(options.limit, 4 << 30);
    }
}
