//! Caches the positions of values for records with equal headers.
//!
//! The rows of a table share a few headers, so most rows need no walk over their types.

use super::Value;
use super::record::{Plan, Record, SKIP, width};
use super::scan::MOST_COLUMNS;

/// Headers up to this length are remembered.
const LONGEST: usize = 32;
/// Bytes of a record in which every cached offset lies with the eight bytes from there on.
const WINDOW: usize = 256 + 7;
/// Headers remembered at once.
const PLACES: usize = 1024;

/// A header as numbers, zero behind its end.
type Words = [u64; LONGEST / 8];

/// An integer asked for. All are decoded alike, without a branch that depends on the header: `load >> shift & mask | told`.
#[derive(Debug, Clone, Copy)]
pub struct Piece {
    /// Position among the requested values.
    slot: u8,
    /// Bits that do not belong to it.
    shift: u8,
    /// Offset from the start of the record, bytes.
    offset: u8,
    /// No bits of an integer that the type alone tells.
    mask: i64,
    /// The integer that the type alone tells, or 0.
    told: i64,
}

/// Cached positions for one header.
#[derive(Debug, Clone, Default)]
pub struct Layout {
    pieces: Vec<Piece>,
    /// Positions of requested values that are null, and that are the row id.
    nulls: Vec<u8>,
    row_ids: Vec<u8>,
    /// Bytes of a record with this header: exactly so many, or at least so many where not all types were looked at.
    length: usize,
    exact: bool,
}

/// The headers met so far; a new one takes the place of an older one where both want the same.
pub struct Layouts(Vec<(Words, Layout)>);

impl Layouts {
    pub fn new() -> Self {
        Self(vec![([0; LONGEST / 8], Layout::default()); PLACES])
    }

    /// Puts the values of a record in their places if its header is known; otherwise says so.
    #[inline]
    pub fn decode<'a>(&self, record: &Record<'a>, values: &mut [Value<'a>; MOST_COLUMNS]) -> bool {
        let Some(content) = record.bytes.get(record.start..) else {
            return false;
        };
        let Some(words) = header(content) else { return false };
        let Some((known, layout)) = self.0.get(place(&words)) else {
            return false;
        };
        let length = record.end - record.start;
        let fits = if layout.exact { length == layout.length } else { length >= layout.length };
        if !same(known, &words) || !fits || record.local_end != record.end {
            return false;
        }
        // Most records are far enough from the end of their page for a window in which every offset lies.
        let filled = match content.first_chunk::<WINDOW>() {
            Some(window) => put(&layout.pieces, |at| window.get(at..at + 8)?.first_chunk().copied(), values),
            None => put(&layout.pieces, |at| content.get(at..)?.first_chunk().copied(), values),
        };
        if filled.is_none() {
            return false;
        }
        let others = [(&layout.nulls, Value::Null), (&layout.row_ids, Value::Int(record.row_id))];
        for (slots, value) in others {
            for slot in slots {
                if let Some(place) = values.get_mut(usize::from(*slot)) {
                    *place = value;
                }
            }
        }
        true
    }

    /// Remembers the layout of a record that was taken apart the long way.
    pub fn keep(&mut self, record: &Record<'_>, layout: Layout) {
        if let Some(words) = record.bytes.get(record.start..).and_then(header)
            && let Some(entry) = self.0.get_mut(place(&words))
        {
            *entry = (words, layout);
        }
    }
}

/// Puts integers in their places. `eight` loads the bytes from an offset on.
#[inline(always)]
fn put(
    pieces: &[Piece],
    eight: impl Fn(usize) -> Option<[u8; 8]>,
    values: &mut [Value<'_>; MOST_COLUMNS],
) -> Option<()> {
    for piece in pieces {
        let number = i64::from_be_bytes(eight(usize::from(piece.offset))?);
        let number = number.wrapping_shr(piece.shift.into()) & piece.mask | piece.told;
        values[usize::from(piece.slot) % MOST_COLUMNS] = Value::Int(number);
    }
    Some(())
}

impl Plan {
    /// Returns the positions of the requested values in a valid record, if they can be cached: integers in a header whose
    /// types have one byte each.
    pub fn layout(&self, record: &Record<'_>) -> Option<Layout> {
        let header = usize::from(*record.bytes.get(record.start)?);
        let types = record.bytes.get(record.start + 1..record.start + header)?;
        let mut layout =
            Layout { length: header, exact: types.len() == self.steps.len(), ..Layout::default() };
        for (step, &kind) in self.steps.iter().zip(types) {
            let offset = u8::try_from(layout.length).ok();
            if kind >= 0x80 {
                return None;
            }
            layout.length += width(u64::from(kind))?;
            if step.slot == SKIP {
                continue;
            }
            let slot = step.slot;
            match kind {
                _ if step.row_id => layout.row_ids.push(slot),
                0 => layout.nulls.push(slot),
                1..=6 if !step.real => {
                    let shift = (64 - 8 * width(u64::from(kind))?) as u8;
                    layout.pieces.push(Piece { slot, shift, offset: offset?, mask: -1, told: 0 });
                }
                8 | 9 if !step.real => {
                    let told = i64::from(kind) - 8;
                    layout.pieces.push(Piece { slot, shift: 0, offset: 0, mask: 0, told });
                }
                _ => return None,
            }
        }
        (types.len() >= self.steps.len()).then_some(layout)
    }
}

/// The bits of a header by its length, bytes.
const MASKS: [Words; LONGEST + 1] = {
    let mut masks = [[0; LONGEST / 8]; LONGEST + 1];
    let mut byte = 0;
    while byte < LONGEST * (LONGEST + 1) {
        let (length, at) = (byte / LONGEST, byte % LONGEST);
        if at < length {
            masks[length][at / 8] |= 0xff << (8 * (at % 8));
        }
        byte += 1;
    }
    masks
};

/// Returns the header of the record at the start of `bytes` with its length; `None` if it is too long.
#[inline]
fn header(bytes: &[u8]) -> Option<Words> {
    let bytes: &[u8; LONGEST] = bytes.first_chunk()?;
    let length = usize::from(bytes[0]);
    // No header has length 0, which marks a free place.
    if length == 0 || length > LONGEST {
        return None;
    }
    let mut words = MASKS[length];
    for (word, eight) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word &= u64::from_le_bytes(*eight);
    }
    Some(words)
}

/// Compares two headers inline, without a call to `memcmp`.
#[inline]
fn same(a: &Words, b: &Words) -> bool {
    a.iter().zip(b).fold(0, |rest, (a, b)| rest | (a ^ b)) == 0
}

#[inline]
fn place(words: &Words) -> usize {
    const FACTORS: Words =
        [0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb, 0xd6e8_feb8_6659_fd93];
    // The products do not wait for one another.
    let mixed = words.iter().zip(FACTORS).fold(0, |mix, (word, factor)| mix ^ word.wrapping_mul(factor));
    // Every byte reaches the highest bits.
    (mixed >> (u64::BITS - PLACES.ilog2())) as usize
}
