//! The printer: answers go to stdout, everything else to stderr. No other module writes to either.

use crate::failure::Failure;
use anstream::{AutoStream, ColorChoice};
use std::borrow::Cow;
use std::fmt::Display;
use std::io::{ErrorKind, IsTerminal, Write, stderr, stdout};
use std::path::Path;

/// Terminal sequences that our own text uses. All other control characters come from files and are replaced.
const STYLES: [&str; 2] = ["\x1b[1m", "\x1b[0m"];
/// Moves to the start of the line and clears it.
const CLEAR_LINE: &str = "\r\x1b[2K";

/// Output settings and the two streams.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Printer {
    quiet: bool,
    verbose: bool,
    color: bool,
    live: bool,
}

impl Printer {
    pub(crate) fn new(quiet: bool, verbose: bool) -> Self {
        Self {
            quiet,
            verbose,
            // Respects NO_COLOR, CLICOLOR and TERM.
            color: AutoStream::choice(&stdout()) != ColorChoice::Never,
            live: stderr().is_terminal() && !quiet,
        }
    }

    /// Returns whether text answers may have bold headings.
    pub(crate) fn color(&self) -> bool {
        self.color
    }

    /// Prints an answer for people.
    pub(crate) fn text(&self, text: &str) -> Result<(), Failure> {
        write_stdout(&printable(text))
    }

    /// Prints the path of a page, as the end of an answer.
    pub(crate) fn page(&self, path: &Path) -> Result<(), Failure> {
        self.text(&format!("\npage: {}\n", path.display()))
    }

    /// Prints an answer for programs. It has control characters in the strings of JSON at most, where they are escaped.
    pub(crate) fn document(&self, text: &str) -> Result<(), Failure> {
        write_stdout(&escaped(text))
    }

    /// Prints an error of the command line.
    pub(crate) fn usage(&self, text: &dyn Display) {
        write_stderr(&printable(&text.to_string()));
    }

    /// Prints a line of progress, unless `--quiet` is set.
    pub(crate) fn progress(&self, text: &dyn Display) {
        if !self.quiet {
            self.line(text);
        }
    }

    /// Replaces the current line on a terminal; prints nothing elsewhere.
    pub(crate) fn status_line(&self, text: &str) {
        if self.live {
            write_stderr(&format!("{CLEAR_LINE}{}", printable(text)));
        }
    }

    /// Prints a line if `--verbose` is set.
    pub(crate) fn detail(&self, text: &dyn Display) {
        if self.verbose {
            self.line(text);
        }
    }

    /// Prints a warning.
    pub(crate) fn warning(&self, text: &dyn Display) {
        self.line(&format_args!("warning: {text}"));
    }

    /// Prints a failure, its causes and its hint.
    pub(crate) fn failure(&self, failure: &Failure) {
        self.line(&format_args!("error: {failure}"));
        let mut cause = std::error::Error::source(failure);
        while let Some(error) = cause {
            self.line(&format_args!("  because: {error}"));
            cause = error.source();
        }
        if let Some(hint) = failure.hint() {
            self.line(&format_args!("hint: {hint}"));
        }
    }

    fn line(&self, text: &dyn Display) {
        write_stderr(&format!("{}\n", printable(&text.to_string())));
    }
}

fn write_stdout(text: &str) -> Result<(), Failure> {
    let mut out = stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // The reader has closed the pipe, as `head` does: not a failure.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(Failure::Stdout),
    }
}

/// Writes to stderr. A failed write is ignored: there is no other place to report it.
fn write_stderr(text: &str) {
    let _ = stderr().lock().write_all(text.as_bytes());
}

/// Tells whether a terminal shows a character as it is: no control character, and none that reverses the writing direction.
fn is_harmless(c: char) -> bool {
    let reverses = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !(c.is_control() || reverses) || c == '\n' || c == '\t'
}

/// Escapes harmful characters as in a string of JSON.
fn escaped(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_harmless) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        if is_harmless(c) {
            clean.push(c);
        } else {
            clean.push_str(&format!("\\u{:04x}", u32::from(c)));
        }
    }
    Cow::Owned(clean)
}

/// Replaces harmful characters other than our own styles with spaces.
fn printable(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_harmless) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let style = STYLES.iter().find(|style| rest.starts_with(**style));
        let length = style.map_or(c.len_utf8(), |style| style.len());
        match style {
            Some(style) => clean.push_str(style),
            None => clean.push(if is_harmless(c) { c } else { ' ' }),
        }
        rest = &rest[length..];
    }
    Cow::Owned(clean)
}

#[cfg(test)]
mod tests {
    use super::{escaped, printable};

    #[test]
    fn control_characters_are_replaced_and_styles_kept() {
        assert_eq!(printable("plain µs\n\ttext"), "plain µs\n\ttext");
        assert_eq!(printable("\x1b[1mHead\x1b[0m\n"), "\x1b[1mHead\x1b[0m\n");
        assert_eq!(
            printable("a\x1b]0;title\x07b\x1b[2Jc\rd\u{9b}31me"),
            "a ]0;title b [2Jc d 31me"
        );
        assert_eq!(printable("a\u{202e}b"), "a b");
    }

    #[test]
    fn documents_stay_valid_json() {
        let json = "{\"a\":\t\"\u{9b}31m\u{7f}\u{2066}µ\"}\n";
        assert_eq!(escaped(json), "{\"a\":\t\"\\u009b31m\\u007f\\u2066µ\"}\n");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&escaped(json)).unwrap(),
            serde_json::from_str::<serde_json::Value>(json).unwrap()
        );
        assert!(matches!(escaped("plain\n"), std::borrow::Cow::Borrowed(_)));
    }
}
