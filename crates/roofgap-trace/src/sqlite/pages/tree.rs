//! The tree of a table: from its root to the numbers of its leaves.

use super::file::{PADDING, PageFile, four, two};
use crate::ReadError;

/// The first byte of a leaf of a table.
pub const LEAF: u8 = 0x0d;
/// The first byte of an inner page of a table.
const INNER: u8 = 0x05;
/// Offset of the cell pointers of an inner page, bytes.
const INNER_HEADER: usize = 12;

/// Returns the leaves of the tree in row order.
///
/// All leaves of a sound tree lie equally deep, so the tree is opened level by level and no leaf need be read to know
/// that it is one. A page that is met twice is an error, which also ends every cycle.
pub fn leaves(file: &PageFile, root: u32) -> Result<Vec<u32>, ReadError> {
    let mut seen = vec![0u64; file.last as usize / 64 + 1];
    let mut buffer = Vec::new();
    let mut level = vec![root];
    loop {
        let Some(&first) = level.first() else {
            return Ok(level);
        };
        file.read(first, 1, &mut buffer)?;
        match buffer.first() {
            Some(&LEAF) => return Ok(level),
            Some(&INNER) => {}
            other => return Err(file.damaged(format!("page {first} of a table begins with {other:?}"))),
        }
        let mut below = Vec::new();
        for &page in &level {
            file.read(page, 1, &mut buffer)?;
            let before = below.len();
            children(&buffer, &mut below)
                .ok_or_else(|| file.damaged(format!("page {page} is not an inner page of a table")))?;
            for &child in below.get(before..).unwrap_or_default() {
                let Some(word) =
                    seen.get_mut(child as usize / 64).filter(|_| child > 1 && child <= file.last)
                else {
                    return Err(file.damaged(format!("page {page} refers to page {child} of {}", file.last)));
                };
                let bit = 1 << (child % 64);
                if child == root || *word & bit != 0 {
                    return Err(file.damaged(format!("page {child} is referred to twice")));
                }
                *word |= bit;
            }
        }
        level = below;
    }
}

/// Appends the pages below an inner page, which are at least two.
fn children(padded: &[u8], below: &mut Vec<u32>) -> Option<()> {
    let page = padded.get(..padded.len().checked_sub(PADDING)?)?;
    if page.first() != Some(&INNER) {
        return None;
    }
    let cells = two(page, 3).filter(|n| *n > 0)?;
    for cell in 0..cells {
        let at = two(page, INNER_HEADER + 2 * cell).filter(|at| *at >= INNER_HEADER + 2 * cells)?;
        below.push(four(page, at)?);
    }
    below.push(four(page, 8)?);
    Some(())
}
