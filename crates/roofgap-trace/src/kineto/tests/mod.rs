//! The reader against a plain one, on real, made-up and broken documents.

mod broken;
mod forms;
mod oracle;
mod snapshot;

use super::pipeline::Division;
use super::read_divided;
use crate::{ReadError, Trace};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// The real trace of the fixtures.
fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/h200/llama4.kineto.json.gz")
}

/// The text of the real trace.
fn fixture_text() -> Vec<u8> {
    let file = std::fs::File::open(fixture()).unwrap();
    let mut text = Vec::new();
    flate2::read::MultiGzDecoder::new(file).read_to_end(&mut text).unwrap();
    text
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

/// Reads bytes as a file, in blocks of a given size.
fn read_bytes(bytes: &[u8], block: usize, threads: usize) -> Result<Trace, ReadError> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    let mut trace = Trace::default();
    read_divided(file.path(), Division { block, threads }, &mut trace).map(|()| trace)
}

/// Reads bytes as a file, the way users do.
fn read_text(text: &str) -> Result<Trace, ReadError> {
    let Division { block, threads } = Division::default();
    read_bytes(text.as_bytes(), block, threads)
}
