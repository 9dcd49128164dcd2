//! All rows of a table, leaf after leaf.

use super::file::{LEAF, PADDING, PageFile, four, page_header, two, varint};
use super::layout::Layouts;
use super::record::{Outcome, Plan, Record};
use super::{Value, on_threads};
use crate::ReadError;
use std::num::NonZero;

/// The most columns a scan may ask for.
pub const MOST_COLUMNS: usize = 32;

/// Bytes read at once, where the leaves lie together.
const SPAN: usize = 1 << 19;

/// Fewer leaves than this are not worth another thread.
const LEAVES_A_PART: usize = 64;

/// Offset of the cell pointers of a leaf, bytes.
const LEAF_HEADER: usize = 8;

/// Goes through all rows in parts, one a processor, and returns the states of the parts in row order.
pub fn scan<S: Send>(
    file: &PageFile,
    plan: &Plan,
    new: impl Fn(usize) -> S + Sync,
    row: impl Fn(&mut S, &[Value<'_>]) + Sync,
) -> Result<Vec<S>, ReadError> {
    let leaves = file.leaves(plan.root)?;
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    let parts = processors.min(leaves.len() / LEAVES_A_PART).max(1);
    let a_leaf = rows_a_leaf(file, plan, &leaves)?;
    let part = |(at, part): (usize, &[u32])| {
        // The first part collects the others, so it has room for all.
        let mut state = new(a_leaf * if at == 0 { leaves.len() } else { part.len() });
        through(file, plan, part, &mut |values| row(&mut state, values))?;
        Ok(state)
    };
    if parts == 1 {
        return Ok(vec![part((0, &leaves))?]);
    }
    on_threads(leaves.chunks(leaves.len().div_ceil(parts)).enumerate(), part)
}

/// Estimates the number of rows per leaf from the first one, within the possible maximum.
fn rows_a_leaf(file: &PageFile, plan: &Plan, leaves: &[u32]) -> Result<usize, ReadError> {
    let Some(&first) = leaves.first() else {
        return Ok(0);
    };
    let mut buffer = Vec::new();
    file.read(first, 1, &mut buffer)?;
    let cells = two(&buffer, 3).unwrap_or(0) + 1;
    Ok(cells.min(file.usable / plan.least + 1))
}

/// Goes through all rows in order.
pub fn each(file: &PageFile, plan: &Plan, row: &mut impl FnMut(&[Value<'_>])) -> Result<(), ReadError> {
    through(file, plan, &file.leaves(plan.root)?, row)
}

/// Goes through the rows of some leaves.
fn through(
    file: &PageFile,
    plan: &Plan,
    leaves: &[u32],
    row: &mut impl FnMut(&[Value<'_>]),
) -> Result<(), ReadError> {
    let mut buffer = Vec::new();
    let mut long = Long {
        whole: Vec::new(),
        // No page belongs to two rows, so all rows together are no longer than the file.
        left: file.page_size as u64 * u64::from(file.last),
    };
    let mut layouts = Layouts::new();
    let mut rest = leaves;
    while let Some(&first) = rest.first() {
        let (together, pages) = span(rest, SPAN / file.page_size);
        file.read(first, pages, &mut buffer)?;
        let (now, later) = rest.split_at(together);
        for &leaf in now {
            let skipped = (leaf - first) as usize * file.page_size;
            let page = buffer.get(skipped..skipped + file.page_size + PADDING).unwrap_or_default();
            let rows = rows_of(file, plan, (page, page_header(leaf)), &mut layouts, &mut long, row)
                .map_err(|e| e.at(file, leaf))?;
            if rows == 0 && leaf != plan.root {
                return Err(Fault::Damaged("no rows").at(file, leaf));
            }
        }
        rest = later;
    }
    Ok(())
}

/// Returns the number of leaves to read at once, and the number of pages they span.
///
/// Leaves of tables that were written at the same time alternate, so pages in between are read along as long as they are
/// no more than the leaves themselves.
fn span(leaves: &[u32], most: usize) -> (usize, usize) {
    let Some(&first) = leaves.first() else {
        return (0, 0);
    };
    let mut best = (1, 1);
    let mut before = first;
    for (i, &leaf) in leaves.iter().enumerate().skip(1) {
        let pages = (leaf.wrapping_sub(first) as usize).saturating_add(1);
        if leaf <= before || pages > most.max(1) || pages > 2 * (i + 1) {
            break;
        }
        before = leaf;
        best = (i + 1, pages);
    }
    best
}

/// Rows that go on on other pages.
struct Long {
    /// The one that is looked at.
    whole: Vec<u8>,
    /// Bytes left for other such rows.
    left: u64,
}

/// Error on a leaf.
enum Fault {
    /// The leaf, or one of its cells, cannot be.
    Damaged(&'static str),
    /// Another page could not be read.
    Other(ReadError),
}

impl Fault {
    fn at(self, file: &PageFile, leaf: u32) -> ReadError {
        match self {
            Self::Damaged(what) => file.damaged(format!("page {leaf} of a table holds {what}")),
            Self::Other(error) => error,
        }
    }
}

/// Goes through the rows of one leaf, which has padding behind it and its header at `header`, and says how many there were.
#[inline]
fn rows_of(
    file: &PageFile,
    plan: &Plan,
    (page, header): (&[u8], usize),
    layouts: &mut Layouts,
    long: &mut Long,
    row: &mut impl FnMut(&[Value<'_>]),
) -> Result<usize, Fault> {
    let damaged = |what| Err(Fault::Damaged(what));
    if page.get(header) != Some(&LEAF) {
        return damaged("no leaf where one should be");
    }
    let cells = two(page, header + 3).unwrap_or(0);
    let first = header + LEAF_HEADER;
    let listed = first + 2 * cells;
    if listed > file.usable {
        return damaged("more cells than fit on it");
    }
    let most_local = file.usable - 35;
    let mut values = [Value::Null; MOST_COLUMNS];
    for cell in 0..cells {
        let at = two(page, first + 2 * cell).filter(|at| *at >= listed && *at < file.usable);
        let Some((payload, at)) = at.and_then(|at| varint(page, at)) else {
            return damaged("a cell outside of it");
        };
        let Some((row_id, start)) = varint(page, at) else {
            return damaged("a cell without a row id");
        };
        if payload > file.page_size as u64 * u64::from(file.last) {
            return damaged("a row longer than the file");
        }
        let payload = payload as usize;
        let local = if payload <= most_local { payload } else { local_part(payload, file.usable) };
        let record = Record {
            bytes: page,
            start,
            local_end: start + local,
            end: start + payload,
            row_id: row_id as i64,
        };
        if record.local_end > file.usable {
            return damaged("a row that reaches over its end");
        }
        if layouts.decode(&record, &mut values) {
            row(values.get(..plan.width).unwrap_or_default());
            continue;
        }
        match record.decode(plan, &mut values) {
            Outcome::Done => {
                if let Some(layout) = plan.layout(&record) {
                    layouts.keep(&record, layout);
                }
                row(values.get(..plan.width).unwrap_or_default());
            }
            Outcome::Beyond => {
                overflowing(file, record, long)?;
                let record =
                    Record { bytes: &long.whole, start: 0, local_end: payload, end: payload, ..record };
                // Values that borrow from the copy must not outlive this row.
                let mut values = [Value::Null; MOST_COLUMNS];
                match record.decode(plan, &mut values) {
                    Outcome::Done => row(values.get(..plan.width).unwrap_or_default()),
                    Outcome::Beyond => return damaged("a row without an end"),
                    Outcome::Damaged(what) => return damaged(what),
                }
            }
            Outcome::Damaged(what) => return damaged(what),
        }
    }
    Ok(cells)
}

/// Returns the length of the local part of a row that is too long for a leaf, bytes.
fn local_part(payload: usize, usable: usize) -> usize {
    let least = (usable - 12) * 32 / 255 - 23;
    let local = least + (payload - least) % (usable - 4);
    if local <= usable - 35 { local } else { least }
}

/// Collects a row that goes on on other pages, with padding behind it.
#[cold]
fn overflowing(file: &PageFile, record: Record<'_>, long: &mut Long) -> Result<(), Fault> {
    let damaged = |what| Err(Fault::Damaged(what));
    let payload = record.end - record.start;
    let Some(local) = record.bytes.get(record.start..record.local_end) else {
        return damaged("a row cut off");
    };
    // The number of the next page is on the leaf behind the local part, then at the beginning of each page.
    let Some(mut next) = four(record.bytes, record.local_end).filter(|_| record.local_end + 4 <= file.usable)
    else {
        return damaged("a row that goes on nowhere");
    };
    let Some(left) = long.left.checked_sub(payload as u64) else {
        return damaged("rows longer than the file");
    };
    long.left = left;
    let whole = &mut long.whole;
    whole.clear();
    whole.extend_from_slice(local);
    let mut buffer = Vec::new();
    while whole.len() < payload {
        if next < 2 || next > file.last {
            return damaged("a row that goes on on a page that is not there");
        }
        file.read(next, 1, &mut buffer).map_err(Fault::Other)?;
        let wanted = (payload - whole.len()).min(file.usable - 4);
        let Some(part) = buffer.get(4..4 + wanted) else {
            return damaged("a row cut off");
        };
        whole.extend_from_slice(part);
        next = four(&buffer, 0).unwrap_or(0);
    }
    whole.extend_from_slice(&[0; PADDING]);
    Ok(())
}
