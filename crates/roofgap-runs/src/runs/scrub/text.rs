//! Cleans documents, logs and pages, plain or compressed.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use roofgap_base::file::{Unpacked, write_atomic};

use super::private::Private;

/// Maximum size of a document, bytes. Larger ones are reported as not clean.
const LARGEST: u64 = 4 << 30;

/// A text file after cleaning.
pub struct CleanText {
    /// Content, uncompressed.
    pub bytes: Vec<u8>,
    pub changed: bool,
    packed: bool,
}

/// Reads a text file and cleans it. Bytes that are not UTF-8 are kept.
pub fn clean(path: &Path, private: &Private, count: &mut BTreeMap<String, u64>) -> io::Result<CleanText> {
    let source = Unpacked::open(path)?;
    let packed = source.is_packed();
    let mut bytes = Vec::new();
    source.take(LARGEST).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == LARGEST {
        return Err(io::Error::other("too large to clean"));
    }
    // Logs may hold any bytes; only the text between them is cleaned.
    let mut clean = Vec::with_capacity(bytes.len());
    let mut changed = false;
    for chunk in bytes.utf8_chunks() {
        match private.clean(chunk.valid(), count) {
            Some(text) => {
                clean.extend_from_slice(text.as_bytes());
                changed = true;
            }
            None => clean.extend_from_slice(chunk.valid().as_bytes()),
        }
        clean.extend_from_slice(chunk.invalid());
    }
    if changed && is_json(&bytes) && !is_json(&clean) {
        return Err(io::Error::other("cleaning would break its JSON"));
    }
    Ok(CleanText { bytes: clean, changed, packed })
}

impl CleanText {
    /// Replaces the file, compressed where it was.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        if !self.packed {
            return write_atomic(path, &self.bytes);
        }
        let mut encoder = GzEncoder::new(Vec::new(), Compression::new(6));
        encoder.write_all(&self.bytes)?;
        write_atomic(path, &encoder.finish()?)
    }
}

fn is_json(bytes: &[u8]) -> bool {
    let starts = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    matches!(starts, Some(b'{' | b'[')) && serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok()
}
