//! Whatever stands after `--`, unchanged.

use std::ffi::OsString;

use super::annotation::Annotation;
use super::setting::Setting;
use crate::command::CommandLine;

/// A program and its arguments as the user wrote them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verbatim {
    /// The words; the first is the program.
    pub words: Vec<OsString>,
    /// How Python inside it is annotated; `None` leaves it alone.
    pub annotation: Option<Annotation>,
}

impl Verbatim {
    /// The command line; `None` where there is no word at all.
    pub fn command(&self, setting: &Setting) -> Option<CommandLine> {
        let (program, args) = self.words.split_first()?;
        let mut line = CommandLine::new(program).args(args);
        if let Some(annotation) = &self.annotation {
            // Not only where the first word is Python: a shell script may start it.
            line = annotation.apply(line);
        }
        Some(setting.apply(line))
    }
}

#[cfg(test)]
mod tests {
    use super::super::setting::example;
    use super::*;
    use std::ffi::OsStr;

    fn verbatim(words: &[&str], annotation: Option<Annotation>) -> CommandLine {
        let words = words.iter().map(OsString::from).collect();
        Verbatim { words, annotation }.command(&example()).unwrap()
    }

    #[test]
    fn words_are_not_touched() {
        let words = ["./run.sh", "--x=a b", "", "*"];
        assert_eq!(verbatim(&words, None).argv(), words);
        assert_eq!(verbatim(&words, None).env_value("PYTHONPATH"), None);
        assert_eq!(
            Verbatim {
                words: Vec::new(),
                annotation: None
            }
            .command(&example()),
            None
        );
    }

    #[test]
    fn python_is_annotated_through_its_path() {
        let annotation = Annotation {
            folder: "/runs/1/annotate".into(),
            sync: false,
            inherited: Some("/a:/b".into()),
        };
        let line = verbatim(&["bash", "serve.sh"], Some(annotation));
        assert_eq!(
            line.env_value("PYTHONPATH"),
            Some(Some(OsStr::new("/runs/1/annotate:/a:/b")))
        );
        assert_eq!(
            line.env_value("ROOFGAP_ANNOTATE_SYNC"),
            Some(Some(OsStr::new("0")))
        );
    }
}
