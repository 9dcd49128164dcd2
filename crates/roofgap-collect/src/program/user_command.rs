//! The command after `--`, with optional annotation of Python.

use std::ffi::OsString;
use std::path::PathBuf;

use super::context::ProgramContext;
use crate::command::CommandLine;

/// The command of the user, unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserCommand {
    /// Program and arguments.
    pub words: Vec<OsString>,
    /// Annotation of Python inside it, if wanted.
    pub annotation: Option<Annotation>,
}

impl UserCommand {
    /// Builds the command line; `None` if there are no words.
    pub fn command(&self, context: &ProgramContext) -> Option<CommandLine> {
        let (program, args) = self.words.split_first()?;
        let mut line = CommandLine::new(program).args(args);
        if let Some(annotation) = &self.annotation {
            // Not only if the program is Python: a shell script may start it.
            line = annotation.apply(line);
        }
        Some(context.apply(line))
    }
}

/// NVTX ranges in an unmodified Python program, from a `sitecustomize` that Python imports at its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Annotation {
    /// Folder of `sitecustomize.py`.
    pub folder: PathBuf,
    /// Wait for the GPU between prefill and decode, so that their times are separate.
    pub sync: bool,
    /// Inherited `PYTHONPATH`.
    pub inherited: Option<OsString>,
}

impl Annotation {
    /// Creates an annotation that keeps the `PYTHONPATH` of this process.
    pub fn from_env(folder: impl Into<PathBuf>, sync: bool) -> Self {
        Annotation { folder: folder.into(), sync, inherited: std::env::var_os("PYTHONPATH") }
    }

    /// Puts the folder first on the `PYTHONPATH`.
    pub fn apply(&self, program: CommandLine) -> CommandLine {
        let own = program.env_value("PYTHONPATH").map(|value| value.map(OsString::from));
        let rest = own.unwrap_or_else(|| self.inherited.clone()).filter(|path| !path.is_empty());
        let mut path = self.folder.clone().into_os_string();
        if let Some(rest) = rest {
            path.push(":");
            path.push(rest);
        }
        program
            .env("PYTHONPATH", path)
            .env("ROOFGAP_ANNOTATE", "1")
            .env("ROOFGAP_ANNOTATE_SYNC", if self.sync { "1" } else { "0" })
    }
}

#[cfg(test)]
mod tests {
    use super::super::context::example;
    use super::*;
    use std::ffi::OsStr;

    fn command(words: &[&str], annotation: Option<Annotation>) -> CommandLine {
        let words = words.iter().map(OsString::from).collect();
        UserCommand { words, annotation }.command(&example()).unwrap()
    }

    #[test]
    fn words_are_unchanged() {
        let words = ["./run.sh", "--x=a b", "", "*"];
        assert_eq!(command(&words, None).argv(), words);
        assert_eq!(command(&words, None).env_value("PYTHONPATH"), None);
        assert_eq!(UserCommand { words: Vec::new(), annotation: None }.command(&example()), None);
    }

    #[test]
    fn python_is_annotated_through_its_path() {
        let annotation =
            Annotation { folder: "/runs/1/annotate".into(), sync: false, inherited: Some("/a:/b".into()) };
        let line = command(&["bash", "serve.sh"], Some(annotation));
        assert_eq!(line.env_value("PYTHONPATH"), Some(Some(OsStr::new("/runs/1/annotate:/a:/b"))));
        assert_eq!(line.env_value("ROOFGAP_ANNOTATE_SYNC"), Some(Some(OsStr::new("0"))));
    }

    #[test]
    fn a_path_the_program_sets_itself_is_the_one_that_is_chained() {
        let annotation = Annotation { folder: "/f".into(), sync: true, inherited: Some("/inherited".into()) };
        let path =
            |line: CommandLine| annotation.apply(line).env_value("PYTHONPATH").unwrap().unwrap().to_owned();
        assert_eq!(path(CommandLine::new("p")), "/f:/inherited");
        assert_eq!(path(CommandLine::new("p").env("PYTHONPATH", "/own")), "/f:/own");
        assert_eq!(path(CommandLine::new("p").env_remove("PYTHONPATH")), "/f");
        assert_eq!(path(CommandLine::new("p").env("PYTHONPATH", "")), "/f");
    }
}
