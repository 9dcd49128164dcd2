//! The collector: receives events from the program's threads and writes them.
//!
//! | file | is |
//! |---|---|
//! | `session` | the recording of one process: start, fork, end |
//! | `options` | settings from the environment |
//! | `switch` | state of the recording of GPU work |
//! | `arming` | recording of GPU work, on and off, and the flush thread |
//! | `duty` | the duty cycle: a part of the steps or of the time |
//! | `control` | the control socket |
//! | `launcher` | rank and host in a distributed job |
//! | `commands` | commands of the control socket |
//! | `thread` | per-thread state |
//! | `ring` | byte ring from one thread to the writer |
//! | `names` | domains, registered strings and other names |
//! | `pool` | buffers for CUPTI |
//! | `gpu` | set-up of CUPTI and its callbacks |
//! | `calls` | selection of CUDA calls |
//! | `graph_nodes` | nodes of CUDA graphs as they are created |
//! | `device` | facts of a GPU from the driver |
//! | `transcode` | CUPTI records to capture records |
//! | `output` | the output file |
//! | `descriptor` | its descriptor, checked before each use |
//! | `writer` | the writer thread |
//!
//! Nothing here parses, formats, locks or allocates on a thread of the program, except for the first event of a thread
//! (its ring) and the registration of a name.

pub mod arming;
pub mod calls;
pub mod commands;
pub mod control;
pub mod descriptor;
pub mod device;
pub mod duty;
pub mod gpu;
pub mod graph_nodes;
pub mod launcher;
pub mod names;
pub mod options;
pub mod output;
pub mod pool;
pub mod ring;
pub mod session;
pub mod switch;
pub mod thread;
pub mod transcode;
pub mod writer;

/// Reads the clock of the capture, which is also CUPTI's default: ns since the epoch.
pub fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
