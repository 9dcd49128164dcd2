//! The printer: answers go to stdout, everything else to stderr. No other module writes to either.

use crate::args::{ColorWhen, Format, Global};
use anstream::{AutoStream, ColorChoice};
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_base::text::{is_harmless, lines_without_controls, without_controls};
use roofgap_report::text::TextOptions;
use roofgap_report::{Screen, Tone};
use std::borrow::Cow;
use std::fmt::Display;
use std::io::{ErrorKind, IsTerminal, Write, stderr, stdout};
use std::os::fd::AsFd;
use std::path::Path;
use terminal_size::Width;

/// Terminal sequences that our own text uses, where it is coloured. All other control characters come from files and are replaced.
const STYLES: [&str; 5] = ["\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"];
/// Moves to the start of the line and clears it.
const CLEAR_LINE: &str = "\r\x1b[2K";

/// Output settings and the two streams.
#[derive(Debug, Clone, Copy)]
pub struct Printer {
    quiet: bool,
    verbose: bool,
    format: Format,
    /// Place of answers.
    screen: Screen,
    /// Place of everything else.
    messages: Screen,
    live: bool,
}

impl Printer {
    pub fn new(global: &Global) -> Self {
        let Global { quiet, verbose, color, format, .. } = *global;
        // The choice of a stream respects NO_COLOR, CLICOLOR and TERM.
        let colored = |choice: ColorChoice| match color {
            ColorWhen::Auto => choice != ColorChoice::Never,
            ColorWhen::Always => true,
            ColorWhen::Never => false,
        };
        Self {
            quiet,
            verbose,
            format,
            screen: Screen {
                color: colored(AutoStream::choice(&stdout())),
                width: width(terminal_size_of(stdout())),
            },
            messages: Screen {
                color: colored(AutoStream::choice(&stderr())),
                width: width(terminal_size_of(stderr())),
            },
            live: stderr().is_terminal() && !quiet,
        }
    }

    /// Returns the format of answers.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Returns the width and the colours of answers.
    pub fn screen(&self) -> Screen {
        self.screen
    }

    /// Returns the options of an analysis or a comparison as text.
    pub fn text_options(&self, kernels: usize) -> TextOptions {
        TextOptions { screen: self.screen, kernels, ..TextOptions::default() }
    }

    /// Tells whether a line of progress can be replaced by the next.
    pub fn is_live(&self) -> bool {
        self.live
    }

    /// Colours a status in a message.
    pub fn word(&self, status: &str) -> String {
        self.messages.status(status)
    }

    /// Prints an answer for people.
    pub fn text(&self, text: &str) -> Result<(), Error> {
        write_stdout(&printable(text, self.screen.color))
    }

    /// Prints the path of a page, as the end of an answer.
    pub fn page(&self, path: &Path) -> Result<(), Error> {
        self.text(&format!("\npage: {}\n", path.display()))
    }

    /// Prints an answer for programs. It has control characters in the strings of JSON at most, where they are escaped.
    pub fn document(&self, text: &str) -> Result<(), Error> {
        write_stdout(&escaped(text))
    }

    /// Prints a line of progress, unless `--quiet` is set.
    pub fn progress(&self, text: &dyn Display) {
        if !self.quiet {
            self.line(text);
        }
    }

    /// Replaces the current line on a terminal; prints nothing elsewhere.
    pub fn status_line(&self, text: &str) {
        if self.live {
            // A line that wraps could not be replaced.
            let most = self.messages.width.map_or(usize::MAX, |width| width.saturating_sub(1));
            let line: String = without_controls(text).chars().take(most).collect();
            write_stderr(&format!("{CLEAR_LINE}{line}"));
        }
    }

    /// Prints an error of the command line, or a question, to be answered on the same line.
    pub fn plain(&self, text: &dyn Display) {
        write_stderr(&lines_without_controls(&text.to_string()));
    }

    /// Prints a line if `--verbose` is set.
    pub fn detail(&self, text: &dyn Display) {
        if self.verbose {
            self.line(text);
        }
    }

    /// Prints a warning.
    pub fn warning(&self, text: &dyn Display) {
        let word = self.messages.toned("warning:", Some(Tone::Notice));
        self.line(&format_args!("{word} {}", lines_without_controls(&text.to_string())));
    }

    /// Prints warnings.
    pub fn warnings(&self, texts: &[String]) {
        texts.iter().for_each(|text| self.warning(text));
    }

    /// Says that a file was written.
    pub fn wrote(&self, path: &Path) {
        self.progress(&format_args!("wrote {}", path.display()));
    }

    /// Prints a failure, its causes and its hint.
    pub fn failure(&self, failure: &Error) {
        let word = self.messages.toned("error:", Some(Tone::Bad));
        let mut said = failure.to_string();
        self.line(&format_args!("{word} {said}"));
        let mut cause = std::error::Error::source(failure);
        while let Some(error) = cause {
            let text = lines_without_controls(&error.to_string()).into_owned();
            // Many messages end with their cause.
            if !said.contains(&text) {
                self.line(&format_args!("  because: {text}"));
                said.push_str(&text);
            }
            cause = error.source();
        }
        if let Some(hint) = failure.hint() {
            self.line(&format_args!("hint: {hint}"));
        }
    }

    fn line(&self, text: &dyn Display) {
        let text = text.to_string();
        let lines = text.lines().map(|line| self.messages.wrapped(line, 2));
        let text = lines.collect::<Vec<_>>().join("\n");
        write_stderr(&format!("{}\n", printable(&text, self.messages.color)));
    }
}

/// Returns the width of text: that of `COLUMNS`, else of the terminal; `None` for a pipe or a file.
fn width(terminal: Option<usize>) -> Option<usize> {
    let columns = std::env::var("COLUMNS").ok();
    let columns = columns.and_then(|text| text.trim().parse::<usize>().ok());
    columns.filter(|columns| *columns > 0).or(terminal)
}

fn terminal_size_of(stream: impl AsFd) -> Option<usize> {
    let (Width(width), _) = terminal_size::terminal_size_of(stream)?;
    (width > 0).then(|| usize::from(width))
}

fn write_stdout(text: &str) -> Result<(), Error> {
    let mut out = stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // The reader has closed the pipe, as `head` does: not a failure.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|error| {
            // As on a full disk: the work is done, its answer is incomplete.
            Error::new(format!("cannot write to standard output: {error}")).with_exit(Exit::Partial)
        }),
    }
}

/// Writes to stderr. A failed write is ignored: there is no other place to report it.
fn write_stderr(text: &str) {
    let _ = stderr().lock().write_all(text.as_bytes());
}

/// Escapes harmful characters as in a string of JSON.
fn escaped(text: &str) -> Cow<'_, str> {
    let stays = |c: char| is_harmless(c) || matches!(c, '\n' | '\t');
    if text.chars().all(stays) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        if stays(c) {
            clean.push(c);
        } else {
            clean.push_str(&format!("\\u{:04x}", u32::from(c)));
        }
    }
    Cow::Owned(clean)
}

/// Replaces harmful characters with spaces; our own styles stay where text is coloured.
fn printable(text: &str, color: bool) -> Cow<'_, str> {
    if !color || text.chars().all(is_harmless) {
        return lines_without_controls(text);
    }
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\x1b') {
        let (before, from) = rest.split_at(at);
        let style = STYLES.iter().find(|style| from.starts_with(**style));
        clean.push_str(&lines_without_controls(before));
        clean.push_str(style.unwrap_or(&" "));
        rest = from.get(style.map_or(1, |style| style.len())..).unwrap_or_default();
    }
    clean.push_str(&lines_without_controls(rest));
    Cow::Owned(clean)
}

#[cfg(test)]
mod tests {
    use super::{escaped, printable};

    #[test]
    fn control_characters_are_replaced_and_styles_kept() {
        let colored = |text| printable(text, true);
        assert_eq!(colored("plain µs\n\ttext"), "plain µs\n\ttext");
        assert_eq!(colored("\x1b[1mHead\x1b[0m\n"), "\x1b[1mHead\x1b[0m\n");
        assert_eq!(colored("a\x1b]0;title\x07b\x1b[2Jc\rd\u{9b}31me"), "a ]0;title b [2Jc d 31me");
        assert_eq!(colored("a\u{202e}b"), "a b");
        assert_eq!(printable("\x1b[1ma\x1b[8mb\n", false), " [1ma [8mb\n");
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
