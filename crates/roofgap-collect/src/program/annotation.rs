//! Annotation of Python programs.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::command::CommandLine;

/// Ranges added to a Python program without touching it: a `sitecustomize` on its path, which Python imports by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Annotation {
    /// The folder with `sitecustomize.py`.
    pub folder: PathBuf,
    /// Wait for the GPU between prefill and decode, so that their times are their own.
    pub sync: bool,
    /// The `PYTHONPATH` the program would have had.
    pub inherited: Option<OsString>,
}

impl Annotation {
    /// With the `PYTHONPATH` of this process.
    pub fn here(folder: impl Into<PathBuf>, sync: bool) -> Self {
        Annotation {
            folder: folder.into(),
            sync,
            inherited: std::env::var_os("PYTHONPATH"),
        }
    }

    /// Puts the folder before the path the program would have had.
    pub fn apply(&self, program: CommandLine) -> CommandLine {
        let own = program
            .env_value("PYTHONPATH")
            .map(|value| value.map(OsString::from));
        let before = own
            .unwrap_or_else(|| self.inherited.clone())
            .filter(|path| !path.is_empty());
        let mut path = self.folder.clone().into_os_string();
        if let Some(before) = before {
            path.push(":");
            path.push(before);
        }
        program
            .env("PYTHONPATH", path)
            .env("ROOFGAP_ANNOTATE", "1")
            .env("ROOFGAP_ANNOTATE_SYNC", if self.sync { "1" } else { "0" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_the_program_sets_itself_is_the_one_that_is_chained() {
        let annotation = Annotation {
            folder: "/f".into(),
            sync: true,
            inherited: Some("/inherited".into()),
        };
        let path = |line: CommandLine| {
            annotation
                .apply(line)
                .env_value("PYTHONPATH")
                .unwrap()
                .unwrap()
                .to_owned()
        };
        assert_eq!(path(CommandLine::new("p")), "/f:/inherited");
        assert_eq!(path(CommandLine::new("p").env("PYTHONPATH", "/own")), "/f:/own");
        assert_eq!(path(CommandLine::new("p").env_remove("PYTHONPATH")), "/f");
        assert_eq!(path(CommandLine::new("p").env("PYTHONPATH", "")), "/f");
    }
}
