//! The host name in a capture, which is in its first frame.

use super::file::{content, failed, open};
use crate::ReadError;
use roofgap_wire::{FrameBuilder, HEADER_LEN, Host, Record, Text};
use std::io::{self, Read, Write};
use std::path::Path;

/// Returns the host name; `None` without one.
///
/// # Errors
/// Fails when the file is not a readable capture.
pub fn host(path: &Path) -> Result<Option<String>, ReadError> {
    let mut reader = open(path)?;
    let first = reader.next_frame().map_err(|error| failed(path, error))?;
    let host = |record: Record<'_>| match record {
        Record::Host(host) => Some(host.name.to_str().into_owned()).filter(|name| !name.is_empty()),
        _ => None,
    };
    Ok(first.into_iter().flatten().find_map(host))
}

/// Writes a capture without its host name, uncompressed.
///
/// # Errors
/// Fails when the file is not a readable capture, or cannot be written.
pub fn write_without_host(path: &Path, to: &mut dyn Write) -> Result<(), ReadError> {
    let mut reader = open(path)?;
    let mut frame = FrameBuilder::new();
    let first = reader.next_frame().map_err(|error| failed(path, error))?;
    for record in first.into_iter().flatten() {
        // An empty name keeps the frame: a frame without records would be missing from the sequence.
        let nameless = Record::Host(Host { name: Text(b"") });
        let is_host = matches!(record, Record::Host(_));
        frame.put(if is_host { &nameless } else { &record });
    }
    let first_frame = reader.offset().saturating_sub(HEADER_LEN as u64);
    let mut content = content(path)?;
    let mut copied = || -> io::Result<()> {
        let mut header = [0; HEADER_LEN];
        content.read_exact(&mut header)?;
        to.write_all(&header)?;
        to.write_all(frame.close())?;
        io::copy(&mut (&mut content).take(first_frame), &mut io::sink())?;
        io::copy(&mut content, to).map(drop)
    };
    copied().map_err(|error| ReadError::io(path, error))
}
