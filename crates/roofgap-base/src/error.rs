//! The one error above the libraries. A library has typed errors where a caller decides on them; a command only reports.

use std::fmt;
use std::io;
use std::path::Path;

use crate::exit::Exit;
use crate::text::lines_without_controls;

/// Failure of a command, with what to do about it and the exit status.
#[derive(Debug)]
pub struct Error {
    message: String,
    hint: Option<&'static str>,
    exit: Exit,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// Makes an error of a message, with the exit status of wrong usage.
    pub fn new(message: impl Into<String>) -> Self {
        Error { message: message.into(), hint: None, exit: Exit::Usage, source: None }
    }

    /// Makes an error of the error of a library.
    pub fn of(source: impl std::error::Error + Send + Sync + 'static) -> Self {
        let message = source.to_string();
        Error { source: Some(Box::new(source)), ..Error::new(message) }
    }

    /// Returns a function that adds the failed action and its file to a system error.
    pub fn io(action: &str, path: &Path) -> impl FnOnce(io::Error) -> Error + use<> {
        let attempt = format!("cannot {action} {}", path.display());
        move |source| Error { message: format!("{attempt}: {source}"), ..Error::of(source) }
    }

    /// Sets the exit status.
    #[must_use]
    pub fn with_exit(self, exit: Exit) -> Self {
        Error { exit, ..self }
    }

    /// Sets what to do about it, where the message does not already say so.
    #[must_use]
    pub fn with_hint(self, hint: &'static str) -> Self {
        Error { hint: Some(hint), ..self }
    }

    /// Returns the exit status that a command ends with.
    pub fn exit(&self) -> Exit {
        self.exit
    }

    /// Returns what to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        self.hint
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A message quotes file names and content, which may come from anywhere.
        f.write_str(&lines_without_controls(&self.message))
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let source: &(dyn std::error::Error + 'static) = self.source.as_deref()?;
        Some(source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_file_and_its_cause() {
        let error = Error::io("write", Path::new("a/b"))(io::Error::other("full"));
        assert_eq!((error.to_string().as_str(), error.exit()), ("cannot write a/b: full", Exit::Usage));
        let error = Error::of(error).with_exit(Exit::Partial).with_hint("make room");
        assert_eq!((error.to_string().as_str(), error.exit()), ("cannot write a/b: full", Exit::Partial));
        assert_eq!(error.hint(), Some("make room"));
        assert!(std::error::Error::source(&error).is_some());
    }

    #[test]
    fn quoted_text_controls_no_terminal() {
        let error = Error::io("read", Path::new("a\x1b[31mb"))(io::Error::other("c\x1b[8md\u{202e}e\nf"));
        assert_eq!(error.to_string(), "cannot read a [31mb: c [8md e\nf");
    }
}
