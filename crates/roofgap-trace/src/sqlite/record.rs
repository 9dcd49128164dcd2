//! One row: a header of types, then the values.

use super::Value;
use super::file::varint;
use super::scan::MOST_COLUMNS;
use super::schema::TableSchema;

/// Columns of a record to keep, and their positions in the result.
#[derive(Debug)]
pub struct Plan {
    /// The page on which the table's tree begins.
    pub root: u32,
    /// Handling of each stored column, up to the last requested one.
    pub steps: Vec<Step>,
    /// Number of requested columns.
    pub width: usize,
    /// The fewest bytes of a leaf that a row takes: its place in the list, two lengths, its id and a type for each column.
    pub least: usize,
}

#[derive(Debug, Clone, Copy)]
pub struct Step {
    /// The place among the values asked for; [`SKIP`] for a column nobody asked for.
    pub slot: u8,
    /// True if the value is the row id.
    pub row_id: bool,
    /// True if an integer stands for a floating-point number.
    pub real: bool,
    /// True if a row older than the column has a value that only the schema tells.
    default: bool,
}

pub const SKIP: u8 = u8::MAX;

impl Plan {
    /// Creates a plan for the columns, which are different ones.
    pub fn new(table: &TableSchema, columns: &[&str]) -> Self {
        debug_assert!(columns.len() <= MOST_COLUMNS);
        let mut steps = Vec::new();
        for (slot, name) in columns.iter().enumerate() {
            let column = table.position(name).and_then(|at| Some((at, table.columns.get(at)?)));
            let Some((position, column)) = column else { continue };
            if steps.len() <= position {
                steps.resize(position + 1, Step { slot: SKIP, row_id: false, real: false, default: false });
            }
            steps[position] =
                Step { slot: slot as u8, row_id: column.row_id, real: column.real, default: column.default };
        }
        Self { root: table.root, steps, width: columns.len(), least: table.columns.len() + 5 }
    }
}

/// Result of decoding a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All values asked for are there.
    Done,
    /// A value asked for, or the header, lies behind the local part.
    Beyond,
    /// The record cannot be.
    Damaged(&'static str),
}

/// A record, or the part of it that lies on the leaf.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// The bytes it lies in; they may go on behind its end.
    pub bytes: &'a [u8],
    /// Offset of the record.
    pub start: usize,
    /// End of the part on this leaf.
    pub local_end: usize,
    /// End of the record, were all of it on this leaf.
    pub end: usize,
    /// The row's id.
    pub row_id: i64,
}

impl<'a> Record<'a> {
    /// Puts the values that the plan asks for in their places.
    #[inline]
    pub fn decode(&self, plan: &Plan, values: &mut [Value<'a>]) -> Outcome {
        let bytes = self.bytes;
        let Some((header, mut at)) = varint(bytes, self.start) else {
            return Outcome::Damaged("no header");
        };
        let header_end = self.start.saturating_add(header as usize);
        if header_end > self.local_end || header > self.end as u64 {
            return if header_end > self.end {
                Outcome::Damaged("a header longer than the record")
            } else {
                Outcome::Beyond
            };
        }
        if at > header_end {
            return Outcome::Damaged("a header shorter than its own length");
        }
        let mut body = header_end;
        for (i, step) in plan.steps.iter().enumerate() {
            if at >= header_end {
                // A row written before the column was added.
                if body != self.end || i == 0 {
                    return Outcome::Damaged("more values than types, or none");
                }
                return nothing_from(plan, i, values);
            }
            let Some((kind, next)) = varint(bytes, at) else {
                return Outcome::Damaged("a type cut off");
            };
            at = next;
            let begin = body;
            // Widths of up to 2^31 and some thousand columns cannot exceed 64 bits.
            let Some(width) = width(kind) else {
                return Outcome::Damaged("an unknown type");
            };
            body += width;
            if step.slot == SKIP {
                continue;
            }
            if body > self.local_end {
                return if body > self.end {
                    Outcome::Damaged("a value longer than the record")
                } else {
                    Outcome::Beyond
                };
            }
            let Some(place) = values.get_mut(usize::from(step.slot)) else {
                continue;
            };
            let Some(value) = value(bytes, begin, body, kind) else {
                return Outcome::Damaged("a value cut off");
            };
            *place = if step.row_id {
                Value::Int(self.row_id)
            } else {
                match value {
                    Value::Int(v) if step.real => Value::Real(v as f64),
                    other => other,
                }
            };
        }
        if at > header_end || body > self.end || (at == header_end && body != self.end) {
            return Outcome::Damaged("types that do not fit the values");
        }
        Outcome::Done
    }
}

/// Bytes of the integer and floating-point types.
const WIDTHS: [u8; 10] = [0, 1, 2, 3, 4, 6, 8, 8, 0, 0];

/// Bytes of a value of a type.
#[inline]
pub fn width(kind: u64) -> Option<usize> {
    match kind {
        0..=9 => WIDTHS.get(kind as usize).map(|w| usize::from(*w)),
        10 | 11 => None,
        _ if kind <= u64::from(u32::MAX) => Some((kind as usize - 12) / 2),
        _ => None,
    }
}

/// Decodes a value.
#[inline]
fn value(bytes: &[u8], begin: usize, end: usize, kind: u64) -> Option<Value<'_>> {
    Some(match kind {
        0 => Value::Null,
        1..=6 => {
            // One load and one shift, whatever the width: there is padding behind every record.
            let eight: [u8; 8] = bytes.get(begin..begin + 8)?.try_into().ok()?;
            Value::Int(i64::from_be_bytes(eight) >> (64 - 8 * (end - begin)))
        }
        7 => {
            let eight: [u8; 8] = bytes.get(begin..end)?.try_into().ok()?;
            let number = f64::from_be_bytes(eight);
            // SQLite has no NaN: it reads one as null.
            if number.is_nan() { Value::Null } else { Value::Real(number) }
        }
        8 => Value::Int(0),
        9 => Value::Int(1),
        even if even % 2 == 0 => Value::Blob(bytes.get(begin..end)?),
        _ => Value::Text(bytes.get(begin..end)?),
    })
}

/// Nulls in the places of the columns from `first` on.
#[cold]
fn nothing_from<'a>(plan: &Plan, first: usize, values: &mut [Value<'a>]) -> Outcome {
    for step in plan.steps.get(first..).unwrap_or_default() {
        if step.default {
            return Outcome::Damaged("a row older than a column that has a default value");
        }
        if let Some(place) = values.get_mut(usize::from(step.slot)) {
            *place = Value::Null;
        }
    }
    Outcome::Done
}
