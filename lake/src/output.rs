//! The one place that writes to stdout and stderr, and the formats of answers.

use std::io::{ErrorKind, IsTerminal as _, Write as _, stderr, stdout};
use std::path::Path;

use roofgap_base::file::write_atomic;
use roofgap_base::text::lines_without_controls;
use roofgap_lake::error::LakeError;
use roofgap_lake::page::answer_page;
use roofgap_lake::query::Answer;
use roofgap_lake::query::answer::bars;
use terminal_size::{Width, terminal_size};

use crate::args::Format;

/// Width of a chart that does not go to a terminal.
const WIDTH: usize = 100;

/// Prints an error on stderr.
pub fn print_error(error: &LakeError) {
    let _ = writeln!(stderr(), "error: {}", lines_without_controls(&error.to_string()));
}

/// Prints an answer. A reader that closed the pipe has seen enough.
pub fn print(text: &str) -> Result<(), LakeError> {
    print_bytes(text.as_bytes())
}

fn print_bytes(bytes: &[u8]) -> Result<(), LakeError> {
    let mut out = stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(LakeError::Stdout(error)),
        _ => Ok(()),
    }
}

/// Writes a file.
pub fn save(path: &Path, bytes: &[u8]) -> Result<(), LakeError> {
    write_atomic(path, bytes).map_err(|source| LakeError::store("write", path.display().to_string(), source))
}

/// Prints or saves an answer.
pub fn deliver(answer: &Answer, format: Format, output: Option<&Path>, title: &str) -> Result<(), LakeError> {
    if !fits(format, output, stdout().is_terminal()) {
        let why = "Parquet is not text: give a file with --output, or send the answer into a pipe";
        return Err(LakeError::Usage(why.to_owned()));
    }
    let width = terminal_size().map_or(WIDTH, |(Width(width), _)| width.into());
    let bytes = match format {
        Format::Table => lines_without_controls(&answer.table()?).into_owned().into_bytes(),
        Format::Json => answer.json()?,
        Format::Csv => answer.csv()?,
        Format::Parquet => answer.parquet()?,
        Format::Chart => lines_without_controls(&bars(answer, width)?).into_owned().into_bytes(),
        Format::Html => answer_page(title, answer)?.into_bytes(),
    };
    match output {
        Some(path) => save(path, &bytes),
        None => print_bytes(&bytes),
    }
}

/// Tells whether an answer may be written: a terminal cannot show Parquet.
fn fits(format: Format, output: Option<&Path>, is_terminal: bool) -> bool {
    format != Format::Parquet || output.is_some() || !is_terminal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parquet_never_goes_to_a_terminal() {
        let file = Some(Path::new("answer.parquet"));
        assert!(!fits(Format::Parquet, None, true));
        assert!(fits(Format::Parquet, None, false));
        assert!(fits(Format::Parquet, file, true));
        assert!(fits(Format::Json, None, true));
    }
}
