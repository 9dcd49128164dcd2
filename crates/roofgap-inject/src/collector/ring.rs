//! A byte ring from one thread to the writer, with one producer and one consumer.
//!
//! Producers push whole encoded records, so the consumer copies bytes without parsing them. A thread that ends
//! returns its ring, and a later thread reuses it.
//!
//! Buffers for CUPTI: a fixed number, taken and returned without a lock.
//!
//! The memory is one mapping, and the lowest free buffer is always taken first, so a program whose records are written as
//! fast as they arrive touches few pages.

use roofgap_wire::Thread;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Length of a ring, bytes: about twenty thousand events. The writer is woken at half of it.
pub const CAPACITY: usize = 1 << 20;

/// Largest number of recorded threads at a time.
const THREADS: usize = 1024;

const FREE: u8 = 0;
const OWNED: u8 = 1;
const RETIRED: u8 = 2;

/// Result of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pushed {
    /// The record was added.
    In,
    /// The record was added, and the writer should be woken.
    InAndHalfFull,
    /// The ring has no space for the record.
    Full,
}

/// A byte ring.
pub struct Ring {
    bytes: *mut u8,
    head: AtomicUsize,
    tail: AtomicUsize,
    called: AtomicBool,
    state: AtomicU8,
    /// Thread id and pthread handle of the owner, and the time of its first event.
    tid: AtomicU32,
    handle: AtomicU32,
    since: AtomicU64,
}

// SAFETY: `bytes` is written only by the owning thread between `head` and `tail`, and read only by the writer between
// `tail` and `head`; both are published with release and read with acquire.
unsafe impl Sync for Ring {}
// SAFETY: as above; the memory belongs to no thread.
unsafe impl Send for Ring {}

impl Ring {
    /// Creates a ring on pages that are not touched until used.
    fn new() -> Option<Self> {
        let bytes = map(CAPACITY)?;
        Some(Self {
            bytes,
            head: AtomicUsize::new(0),
            tail: AtomicUsize::new(0),
            called: AtomicBool::new(false),
            state: AtomicU8::new(OWNED),
            tid: AtomicU32::new(0),
            handle: AtomicU32::new(0),
            since: AtomicU64::new(0),
        })
    }

    /// Appends a record in two parts, leaving at least `spare` bytes free. Only the owner may call it.
    pub fn push(&self, first: &[u8], second: &[u8], spare: usize) -> Pushed {
        let length = first.len() + second.len();
        let head = self.head.load(Ordering::Relaxed);
        let used = head - self.tail.load(Ordering::Acquire);
        if CAPACITY - used < length + spare {
            return Pushed::Full;
        }
        self.copy_in(head, first);
        self.copy_in(head + first.len(), second);
        self.head.store(head + length, Ordering::Release);
        if used + length > CAPACITY / 2 && !self.called.swap(true, Ordering::Relaxed) {
            return Pushed::InAndHalfFull;
        }
        Pushed::In
    }

    fn copy_in(&self, at: usize, bytes: &[u8]) {
        let at = at % CAPACITY;
        let before_wrap = bytes.len().min(CAPACITY - at);
        // SAFETY: both parts lie within the ring, and `push` made sure that the reader is elsewhere.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), self.bytes.add(at), before_wrap);
            ptr::copy_nonoverlapping(bytes.as_ptr().add(before_wrap), self.bytes, bytes.len() - before_wrap);
        }
    }

    /// Passes the pushed bytes to `take`, in one or two pieces. Only the writer may call it.
    pub fn drain(&self, mut take: impl FnMut(&[u8])) {
        self.called.store(false, Ordering::Relaxed);
        let tail = self.tail.load(Ordering::Relaxed);
        let head = self.head.load(Ordering::Acquire);
        let (length, at) = (head - tail, tail % CAPACITY);
        if length == 0 {
            return;
        }
        let before_wrap = length.min(CAPACITY - at);
        // SAFETY: the producer published these bytes and does not touch them until `tail` moves.
        unsafe {
            take(std::slice::from_raw_parts(self.bytes.add(at), before_wrap));
            if before_wrap < length {
                take(std::slice::from_raw_parts(self.bytes, length - before_wrap));
            }
        }
        self.tail.store(head, Ordering::Release);
    }

    /// Sets the owner. Only the owner may call it.
    pub fn belongs_to(&self, thread: &Thread) {
        self.tid.store(thread.tid, Ordering::Relaxed);
        self.handle.store(thread.handle, Ordering::Relaxed);
        self.since.store(thread.at, Ordering::Relaxed);
    }

    /// Returns the owner, or the last one.
    pub fn owner(&self) -> Thread {
        Thread {
            tid: self.tid.load(Ordering::Relaxed),
            handle: self.handle.load(Ordering::Relaxed),
            at: self.since.load(Ordering::Relaxed),
        }
    }

    /// Marks the ring for reuse when its owner ends.
    pub fn retire(&self) {
        self.state.store(RETIRED, Ordering::Release);
    }
}

/// All rings of a process.
pub struct Rings {
    slots: [AtomicPtr<Ring>; THREADS],
    used: AtomicUsize,
}

impl Rings {
    pub fn new() -> Self {
        Self { slots: [const { AtomicPtr::new(ptr::null_mut()) }; THREADS], used: AtomicUsize::new(0) }
    }

    /// Returns a ring for a new thread; `None` when there are too many threads.
    pub fn claim(&self) -> Option<&'static Ring> {
        for ring in self.iter() {
            if ring.state.compare_exchange(FREE, OWNED, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return Some(ring);
            }
        }
        let at = self.used.fetch_add(1, Ordering::Relaxed);
        let Some(slot) = self.slots.get(at) else {
            self.used.store(THREADS, Ordering::Relaxed);
            return None;
        };
        let ring: &'static Ring = Box::leak(Box::new(Ring::new()?));
        slot.store(ptr::from_ref(ring).cast_mut(), Ordering::Release);
        Some(ring)
    }

    /// Iterates over the rings in use.
    pub fn iter(&self) -> impl Iterator<Item = &'static Ring> + '_ {
        let used = self.used.load(Ordering::Relaxed).min(THREADS);
        self.slots.iter().take(used).filter_map(|slot| {
            let ring = slot.load(Ordering::Acquire);
            // SAFETY: a slot holds nothing or a ring that is never freed.
            (!ring.is_null()).then(|| unsafe { &*ring })
        })
    }

    /// Calls `drain` for every ring, and frees the rings of ended threads.
    pub fn each(&self, mut drain: impl FnMut(usize, &Ring)) {
        for (number, ring) in self.iter().enumerate() {
            // Read before draining: what a thread pushed before it retired is then certainly drained.
            let retired = ring.state.load(Ordering::Acquire) == RETIRED;
            drain(number, ring);
            if retired {
                ring.state.store(FREE, Ordering::Release);
            }
        }
    }
}

/// Maps zeroed anonymous memory without reserving pages.
pub fn map(length: usize) -> Option<*mut u8> {
    // SAFETY: asks for new memory only.
    let memory = unsafe {
        libc::mmap(
            ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    (memory != libc::MAP_FAILED).then_some(memory.cast())
}

/// Number of buffers whose pages are mapped at the start, so that the first launches cause no page faults.
const WARM: usize = 3;

const SLOT_FREE: u32 = 0;
const SLOT_TAKEN: u32 = 1;
const SLOT_FULL: u32 = 2;

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
        let free = || Slot { state: AtomicU32::new(SLOT_FREE), valid: AtomicUsize::new(0) };
        let slots = std::iter::repeat_with(free).take(count).collect();
        Some(Self { memory, size, slots })
    }

    /// Takes a zeroed buffer; returns it with its length.
    pub fn take(&self) -> Option<(*mut u8, usize)> {
        let taken = |slot: &Slot| {
            slot.state.load(Ordering::Relaxed) == SLOT_FREE
                && slot
                    .state
                    .compare_exchange(SLOT_FREE, SLOT_TAKEN, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
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
        slot.state.store(SLOT_FULL, Ordering::Release);
        true
    }

    /// Calls `read` with each full buffer, then zeroes and frees it. Only the writer may call it.
    pub fn drain(&self, mut read: impl FnMut(*mut u8, usize)) {
        for (at, slot) in self.slots.iter().enumerate() {
            if slot.state.load(Ordering::Acquire) != SLOT_FULL {
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
            slot.state.store(SLOT_FREE, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_in_order_across_the_wrap() {
        let ring = Ring::new().unwrap();
        let (mut sent, mut got) = (Vec::new(), Vec::new());
        for round in 0u32..30_000 {
            let first = round.to_le_bytes();
            let second = vec![round as u8; round as usize % 97];
            if ring.push(&first, &second, 0) == Pushed::Full {
                ring.drain(|bytes| got.extend_from_slice(bytes));
                assert_ne!(ring.push(&first, &second, 0), Pushed::Full);
            }
            sent.extend_from_slice(&first);
            sent.extend_from_slice(&second);
        }
        ring.drain(|bytes| got.extend_from_slice(bytes));
        assert!(sent == got);
    }

    #[test]
    fn a_full_ring_takes_nothing_and_calls_once() {
        let ring = Ring::new().unwrap();
        let part = [1u8; 1 << 10];
        let answers: Vec<Pushed> = (0..CAPACITY / part.len()).map(|_| ring.push(&part, &[], 0)).collect();
        assert_eq!(answers.iter().filter(|&&answer| answer == Pushed::InAndHalfFull).count(), 1);
        assert_eq!(ring.push(&[1], &[], 0), Pushed::Full);
        ring.drain(|_| {});
        assert_eq!(ring.push(&[1], &[], CAPACITY), Pushed::Full, "room is kept for pops");
        assert_eq!(ring.push(&[1], &[], 0), Pushed::In);
    }

    #[test]
    fn a_producer_and_the_writer_run_at_once() {
        let ring = Ring::new().unwrap();
        let total = 200_000u64;
        let mut next = 0u64;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for value in 0..total {
                    while ring.push(&value.to_le_bytes(), &[], 0) == Pushed::Full {
                        std::thread::yield_now();
                    }
                }
            });
            let mut left = Vec::new();
            while next < total {
                ring.drain(|bytes| left.extend_from_slice(bytes));
                for value in left.chunks_exact(8) {
                    assert_eq!(u64::from_le_bytes(value.try_into().unwrap()), next);
                    next += 1;
                }
                let whole = left.len() / 8 * 8;
                left.drain(..whole);
            }
        });
        assert_eq!(next, total);
    }

    #[test]
    fn a_ring_given_back_is_taken_over() {
        let rings = Rings::new();
        let first = rings.claim().unwrap();
        first.retire();
        assert!(!ptr::eq(rings.claim().unwrap(), first), "not before it is drained");
        rings.each(|_, ring| ring.drain(|_| {}));
        assert!(ptr::eq(rings.claim().unwrap(), first));
    }

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
