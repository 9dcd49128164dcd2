//! The rank of the process of a capture: by its process group, else by the variables of its launcher.

use super::place::Place;
use super::reader::failed;
use crate::ReadError;
use crate::annotated::GroupMark;
use flate2::read::MultiGzDecoder;
use roofgap_wire::{EventKind, Message, Reader, Record};
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
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
    let mut reader = Reader::open(open(path)?).map_err(|error| failed(path, error))?;
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
                return Ok(Some(CaptureRank {
                    rank: mark.rank,
                    host: place.take_host(),
                }));
            }
        }
    }
    let launched = place.distributed().and_then(|job| job.rank);
    Ok(launched.map(|rank| CaptureRank {
        rank,
        host: place.take_host(),
    }))
}

fn open(path: &Path) -> Result<Box<dyn Read>, ReadError> {
    let failed = |error| ReadError::io(path, error);
    let mut file = File::open(path).map_err(failed)?;
    let mut start = Vec::new();
    (&mut file).take(2).read_to_end(&mut start).map_err(failed)?;
    file.seek(SeekFrom::Start(0)).map_err(failed)?;
    Ok(if start == [0x1f, 0x8b] {
        Box::new(MultiGzDecoder::new(BufReader::new(file)))
    } else {
        Box::new(BufReader::new(file))
    })
}
