//! Buffers for CUPTI: a fixed number, taken and returned without a lock.
//!
//! The memory is one mapping, and the lowest free buffer is always taken first, so a program whose records are written as
//! fast as they arrive touches few pages.

use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use super::ring::map;

/// Number of buffers whose pages are mapped at the start, so that the first launches cause no page faults.
const WARM: usize = 3;

const FREE: u32 = 0;
const TAKEN: u32 = 1;
const FULL: u32 = 2;

struct Slot {
    state: AtomicU32,
    valid: AtomicUsize,
}

/// The buffers.
pub struct Pool {
    memory: *mut u8,
    /// Length of a buffer, bytes.
    size: usize,
    slots: Box<[Slot]>,
}

// SAFETY: a buffer belongs to whoever moved its slot's state last, and the states are handed on with release/acquire.
unsafe impl Sync for Pool {}
// SAFETY: as above.
unsafe impl Send for Pool {}

impl Pool {
    /// Maps `count` buffers of `size` bytes.
    pub fn new(size: usize, count: usize) -> Option<Self> {
        let memory = map(size.checked_mul(count)?)?;
        // SAFETY: within the mapping, which nobody else knows yet.
        unsafe { ptr::write_bytes(memory, 0, size * WARM.min(count)) };
        let free = || Slot { state: AtomicU32::new(FREE), valid: AtomicUsize::new(0) };
        let slots = std::iter::repeat_with(free).take(count).collect();
        Some(Self { memory, size, slots })
    }

    /// Takes a zeroed buffer; returns it with its length.
    pub fn take(&self) -> Option<(*mut u8, usize)> {
        let taken = |slot: &Slot| {
            slot.state.load(Ordering::Relaxed) == FREE
                && slot.state.compare_exchange(FREE, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let at = self.slots.iter().position(taken)?;
        // SAFETY: `at` is below the number of buffers.
        Some((unsafe { self.memory.add(at * self.size) }, self.size))
    }

    /// Takes back a buffer with `valid` bytes of records; returns false for a foreign buffer.
    pub fn complete(&self, buffer: *const u8, valid: usize) -> bool {
        let offset = (buffer as usize).wrapping_sub(self.memory as usize);
        if !offset.is_multiple_of(self.size) {
            return false;
        }
        let Some(slot) = self.slots.get(offset / self.size) else {
            return false;
        };
        slot.valid.store(valid.min(self.size), Ordering::Relaxed);
        slot.state.store(FULL, Ordering::Release);
        true
    }

    /// Calls `read` with each full buffer, then zeroes and frees it. Only the writer may call it.
    pub fn drain(&self, mut read: impl FnMut(*mut u8, usize)) {
        for (at, slot) in self.slots.iter().enumerate() {
            if slot.state.load(Ordering::Acquire) != FULL {
                continue;
            }
            // SAFETY: within the mapping; the slot is full, so it is the writer's until it is free again.
            let buffer = unsafe { self.memory.add(at * self.size) };
            let valid = slot.valid.load(Ordering::Relaxed);
            if valid > 0 {
                read(buffer, valid);
                // SAFETY: as above.
                unsafe { ptr::write_bytes(buffer, 0, self.size) };
            }
            slot.state.store(FREE, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 64 << 10;

    #[test]
    fn every_buffer_is_given_once_and_comes_back_zeroed() {
        let pool = Pool::new(SIZE, 8).unwrap();
        let mut taken = Vec::new();
        while let Some((buffer, size)) = pool.take() {
            assert_eq!(size, SIZE);
            assert!(!taken.contains(&buffer));
            taken.push(buffer);
        }
        assert_eq!(taken.len(), 8);
        let first = taken[0];
        // SAFETY: the buffer was just taken.
        unsafe { ptr::write_bytes(first, 9, 100) };
        assert!(pool.complete(first, 100));
        let mut drained = Vec::new();
        pool.drain(|buffer, valid| drained.push((buffer, valid)));
        assert_eq!(drained, [(first, 100)]);
        assert_eq!(pool.take(), Some((first, SIZE)));
        // SAFETY: taken again.
        assert!(unsafe { std::slice::from_raw_parts(first, SIZE) }.iter().all(|&byte| byte == 0));
    }

    #[test]
    fn a_strangers_buffer_is_refused() {
        let pool = Pool::new(SIZE, 8).unwrap();
        let stranger = [0u8; 16];
        assert!(!pool.complete(stranger.as_ptr(), 16));
        let inside = pool.take().unwrap().0.wrapping_add(8);
        assert!(!pool.complete(inside, 16));
    }
}
