//! A Hugging Face model through the driver, and annotation of other Python programs.

use std::ffi::OsString;
use std::path::PathBuf;

use super::setting::Setting;
use crate::command::CommandLine;

/// The driver of Hugging Face models: a script this binary writes into the run directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HfDriver {
    /// The Python that runs it.
    pub python: PathBuf,
    /// Where the script lies.
    pub script: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
}

impl HfDriver {
    /// `python3 hf_driver.py ARG...`
    pub fn command(&self, setting: &Setting) -> CommandLine {
        let line = CommandLine::new(&self.python)
            .arg(&self.script)
            .args(self.args.iter().map(String::as_str));
        // Output held back in a buffer would be lost when the program is ended from outside.
        setting.apply(line.env("PYTHONUNBUFFERED", "1"))
    }
}

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
    use super::super::setting::example;
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn the_driver_is_a_script_of_the_run() {
        let driver = HfDriver {
            python: "python3".into(),
            script: "/runs/1/hf_driver.py".into(),
            args: ["--model", "/models/a b"].map(str::to_owned).to_vec(),
        };
        let line = driver.command(&example());
        assert_eq!(
            line.argv(),
            ["python3", "/runs/1/hf_driver.py", "--model", "/models/a b"]
        );
        assert_eq!(
            line.env_value("ROOFGAP_PHASE"),
            Some(Some(OsStr::new("baseline")))
        );
    }

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
