//! The one way out: the answer to stdout, everything else to stderr.
#![allow(clippy::print_stderr)] // this is the place for it

use std::fmt::Display;
use std::io::{IsTerminal, Write};

/// Prints for the whole program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Printer {
    quiet: bool,
    verbose: bool,
    color: bool,
    terminal: bool,
}

impl Printer {
    pub(crate) fn new(quiet: bool, verbose: bool) -> Self {
        let plain = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        let color = !plain && std::io::stdout().is_terminal();
        Self {
            quiet,
            verbose,
            color,
            terminal: std::io::stderr().is_terminal(),
        }
    }

    /// Whether the answer may have bold headings.
    pub(crate) fn color(&self) -> bool {
        self.color
    }

    /// Whether progress may rewrite its line.
    pub(crate) fn live(&self) -> bool {
        self.terminal && !self.quiet
    }

    /// The answer.
    pub(crate) fn answer(&self, text: &str) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            // Whoever reads has seen enough.
            Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            other => other,
        }
    }

    /// Something worth knowing while it goes.
    pub(crate) fn progress(&self, text: &dyn Display) {
        if !self.quiet {
            eprintln!("{text}");
        }
    }

    /// Progress that replaces itself on a terminal and is left out elsewhere.
    pub(crate) fn tick(&self, text: &str) {
        if self.live() {
            eprint!("\r\x1b[2K{text}");
        }
    }

    /// Detail for those who ask.
    pub(crate) fn detail(&self, text: &dyn Display) {
        if self.verbose {
            eprintln!("{text}");
        }
    }

    /// Something that may mislead.
    pub(crate) fn warning(&self, text: &dyn Display) {
        eprintln!("warning: {text}");
    }

    /// Why the command failed, with its causes.
    pub(crate) fn error(&self, error: &dyn std::error::Error) {
        eprintln!("error: {error}");
        let mut cause = error.source();
        while let Some(error) = cause {
            eprintln!("  because: {error}");
            cause = error.source();
        }
    }
}
