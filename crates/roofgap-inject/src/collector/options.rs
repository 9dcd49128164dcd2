//! Settings from the environment.

use std::path::PathBuf;
use std::time::Duration;

/// Settings of a recording.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// `ROOFGAP_NATIVE_DIR`: folder of the file. Without it nothing is recorded.
    pub(crate) folder: PathBuf,
    /// `ROOFGAP_NATIVE_COPIES`: copies and sets on the GPU (`0` leaves them out).
    pub(crate) copies: bool,
    /// `ROOFGAP_NATIVE_SYNC`: CUPTI's records of waits (`1` turns them on). The waiting calls are recorded anyway, and these
    /// records cost a launch-bound program a third of its time.
    pub(crate) waits: bool,
    /// `ROOFGAP_NATIVE_GRAPH`: `graph` records a graph launch as a whole, `node` (the default) each kernel.
    pub(crate) whole_graphs: bool,
    /// `ROOFGAP_NATIVE_CALLS`: method of recording CUDA calls.
    pub(crate) calls: Calls,
    /// `ROOFGAP_NATIVE_FLUSH_MS`: interval of CUPTI flushes; 0 for none.
    pub(crate) flush_every: Option<Duration>,
    /// `ROOFGAP_NATIVE_MAX_MB`: size limit of the file.
    pub(crate) limit: u64,
}

/// Method of recording CUDA calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Calls {
    /// The best method of this CUPTI.
    Best,
    /// `activity`: activity records of selected calls.
    Activity,
    /// `callbacks`: callbacks of selected calls.
    Callbacks,
    /// `all`: activity records of all calls.
    All,
}

/// Default flush interval, ms: little is lost when a program is killed, and the cost is negligible.
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
