//! The collector: what the program's threads hand over, and the thread that writes it down.
//!
//! | file | is |
//! |---|---|
//! | `session` | the recording of one process: its parts, its beginning, fork, its end |
//! | `options` | what the environment asks for |
//! | `ring` | one thread's annotations on their way to the writer |
//! | `names` | domains, registered strings and other names, which are rare |
//! | `pool` | the buffers CUPTI fills |
//! | `gpu` | CUPTI set up, its buffers in and out |
//! | `calls` | which CUDA calls are worth recording |
//! | `device` | facts of a GPU from the driver |
//! | `transcode` | CUPTI's records to ours |
//! | `output` | the file, and what happens when it cannot grow |
//! | `writer` | the thread |
//!
//! Nothing here parses, formats, locks or allocates on a thread of the program while it runs: the exceptions are the
//! first event of a thread (its ring) and the registration of a name.

pub(crate) mod calls;
pub(crate) mod device;
pub(crate) mod gpu;
pub(crate) mod names;
pub(crate) mod options;
pub(crate) mod output;
pub(crate) mod pool;
pub(crate) mod ring;
pub(crate) mod session;
pub(crate) mod thread;
pub(crate) mod transcode;
pub(crate) mod writer;

/// The capture's clock, which is the one CUPTI uses unless told otherwise: ns since the epoch.
pub(crate) fn now() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
