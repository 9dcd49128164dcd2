//! The rank of the process of a capture: by its process group, else by the variables of its launcher.

use super::file::{failed, open};
use super::place::Place;
use crate::ReadError;
use crate::annotated::GroupMark;
use roofgap_wire::{EventKind, Message, Record};
use std::path::Path;

/// Frames that are searched for the mark of a process group. A program joins its group before it computes.
const MOST_FRAMES: usize = 64;

/// The rank of a capture in a job of several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaptureRank {
    /// Rank.
    pub rank: u32,
    /// Host name, where the capture has it.
    pub host: Option<String>,
}

/// Reads the rank in a job of several from the begin of a capture, which may be compressed with gzip; `None` without one.
///
/// # Errors
/// Fails when the file is not a readable capture.
pub fn rank(path: &Path) -> Result<Option<CaptureRank>, ReadError> {
    let mut reader = open(path)?;
    let mut place = Place::default();
    for _ in 0..MOST_FRAMES {
        let Some(records) = reader.next_frame().map_err(|error| failed(path, error))? else {
            break;
        };
        for record in records {
            place.take(&record);
            if let Record::NvtxEvent(event) = record
                && event.kind == EventKind::Mark
                && let Message::Inline(text) = event.message
                && let Some(mark) = GroupMark::parse(&text.to_str())
                && mark.world_size > 1
            {
                return Ok(Some(CaptureRank { rank: mark.rank, host: place.take_host() }));
            }
        }
    }
    let launched = place.distributed().and_then(|job| job.rank);
    Ok(launched.map(|rank| CaptureRank { rank, host: place.take_host() }))
}
