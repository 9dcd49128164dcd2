//! The collector: receives events from the program's threads and writes them.
//!
//! | file | is |
//! |---|---|
//! | `session` | the recording of one process: what its threads share, and its end |
//! | `options` | settings from the environment; rank and host in a distributed job |
//! | `windows` | turns the recording of GPU work on and off; the flush thread |
//! | `duty` | the duty cycle: a part of the steps or of the time |
//! | `control` | the control socket and its commands |
//! | `thread` | per-thread state; records of calls and graph nodes |
//! | `annotations` | records of ranges and marks; steps; domains, registered strings and other names |
//! | `ring` | byte ring from one thread to the writer; buffers for CUPTI |
//! | `gpu` | set-up of CUPTI, selection of CUDA calls, its callbacks, nodes of CUDA graphs, facts of a GPU |
//! | `waits` | waits and records of events, from the arguments of their calls |
//! | `transcode` | CUPTI records to capture records |
//! | `output` | the output file, and its descriptor, checked before each use |
//! | `writer` | the writer thread |
//!
//! Nothing here parses, formats, locks or allocates on a thread of the program, except for the first event of a thread
//! (its ring) and the registration of a name. A step that turns the recording on or off takes a lock that no other step wants.

pub mod annotations;
pub mod control;
pub mod duty;
pub mod gpu;
pub mod options;
pub mod output;
pub mod ring;
pub mod session;
pub mod thread;
pub mod transcode;
pub mod waits;
pub mod windows;
pub mod writer;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Reads the clock of the capture, which is also CUPTI's default: ns since the epoch.
pub fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Locks a mutex. A panic of another thread leaves nothing half done.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
