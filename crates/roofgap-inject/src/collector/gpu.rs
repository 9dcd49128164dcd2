//! Sets up CUPTI inside the program, and handles its callbacks.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use super::options::Calls;
use super::pool::{self, Pool};
use super::session::{self, CALLBACKS, CALLS_CHOSEN, COPIES, Gpu, Session, WHOLE_GRAPHS};
use super::{calls, now, thread};
use crate::cupti::library::Surroundings;
use crate::cupti::{Api, Failure, Subscriber, sys};

/// Number of libraries to try.
const TRIES: usize = 4;

/// Finds CUPTI and starts recording. Failures are noted as losses.
pub(crate) fn start(session: &'static Session) {
    let candidates = Surroundings::here().candidates();
    let (mut id, mut failures) = ("cupti.missing", Vec::new());
    for path in candidates.iter().take(TRIES) {
        let opened = Api::open(path).and_then(|api| {
            let subscriber = api.subscribe(on_call)?;
            Ok((api, subscriber))
        });
        match opened {
            Ok((api, subscriber)) => return begin(session, api, subscriber),
            Err(Failure::Refused {
                code: sys::MULTIPLE_SUBSCRIBERS,
                ..
            }) => {
                let detail = "another profiler is attached to this program, and CUPTI serves one";
                return session.note("cupti.other_profiler", 1, detail);
            }
            // A CUPTI newer than the driver refuses; an older one beside it may not.
            Err(failure) => {
                if matches!(failure, Failure::Refused { .. }) {
                    id = "cupti.refused";
                }
                failures.push(format!("{}: {failure}", path.display()));
            }
        }
    }
    session.note(id, 1, &failures.join("; "));
}

fn begin(session: &'static Session, api: Api, subscriber: Subscriber) {
    let Some(pool) = Pool::new() else {
        session.note("cupti.no_memory", 1, "the system gave no memory for buffers");
        return;
    };
    api.promise_zeroed_buffers();
    let clocks = session::clocks(&api);
    let mut options = 0;
    if session.options.copies {
        options |= COPIES;
    }
    if session.options.whole_graphs {
        options |= WHOLE_GRAPHS;
    }
    options |= match session.options.calls {
        Calls::Best | Calls::Activity if api.can_choose_calls() => CALLS_CHOSEN,
        Calls::Best | Calls::Callbacks if api.can_call_back() => CALLS_CHOSEN | CALLBACKS,
        _ => 0,
    };
    let Ok(gpu) = session.begin_gpu(Gpu {
        api,
        subscriber,
        pool,
        options,
        clocks,
    }) else {
        return;
    };
    if let Err(failure) = gpu.api.register(requested, completed) {
        session.note("cupti.refused", 1, &failure.to_string());
        return;
    }
    enable(session, gpu);
}

fn enable(session: &Session, gpu: &Gpu) {
    let mut kinds = vec![
        (sys::KIND_DEVICE, "devices"),
        (sys::KIND_CONCURRENT_KERNEL, "kernels"),
    ];
    if session.options.waits {
        kinds.push((sys::KIND_SYNCHRONIZATION, "waits"));
    }
    if session.options.copies {
        kinds.extend([
            (sys::KIND_MEMCPY, "copies"),
            (sys::KIND_MEMCPY_PEER, "copies between devices"),
            (sys::KIND_MEMSET, "memory sets"),
        ]);
    }
    if session.options.whole_graphs {
        kinds.push((sys::KIND_GRAPH_TRACE, "graph launches"));
    }
    gpu.api.leave_out_queries();
    let chosen = match gpu.options {
        options if options & CALLBACKS != 0 => calls::choose_callbacks(&gpu.api, &gpu.subscriber),
        options if options & CALLS_CHOSEN != 0 => calls::choose(&gpu.api),
        _ => 0,
    };
    if chosen == 0 {
        kinds.extend([
            (sys::KIND_RUNTIME, "runtime calls"),
            (sys::KIND_DRIVER, "driver calls"),
        ]);
    }
    let refused: Vec<String> = kinds
        .iter()
        .filter_map(|(kind, name)| {
            gpu.api
                .enable(*kind)
                .err()
                .map(|failure| format!("{name}: {failure}"))
        })
        .collect();
    if !refused.is_empty() {
        session.note("cupti.kind_refused", refused.len() as u64, &refused.join("; "));
    }
}

/// Handles the entry and the return of a selected call. CUPTI keeps the time of entry in between.
unsafe extern "C" fn on_call(_: *mut c_void, domain: u32, number: u32, data: *const c_void) {
    let _ = catch_unwind(|| {
        // SAFETY: CUPTI passes this struct to callbacks of these two domains, the only ones we enable.
        let Some(data) = (unsafe { data.cast::<sys::CallbackData>().as_ref() }) else {
            return;
        };
        // SAFETY: a place of ours from entry to exit, or null.
        let Some(begun) = (unsafe { data.ours.as_mut() }) else {
            return;
        };
        let runtime = domain == sys::DOMAIN_RUNTIME;
        match data.site {
            sys::SITE_ENTER => {
                if runtime {
                    thread::enter_runtime(data.correlation);
                }
                *begun = now();
            }
            sys::SITE_EXIT if *begun != 0 => {
                // SAFETY: on exit it points to what the call returned, a number in either domain.
                let result = unsafe { data.result.as_ref() }.copied().unwrap_or(0);
                thread::leave(
                    runtime,
                    calls::key(domain, number),
                    data.correlation,
                    result,
                    *begun,
                );
            }
            _ => {}
        }
    });
}

/// Gives CUPTI a buffer.
unsafe extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize, records: *mut usize) {
    let found = catch_unwind(AssertUnwindSafe(|| {
        let session = session::current()?;
        let taken = session.gpu().and_then(|gpu| gpu.pool.take());
        if taken.is_none() {
            session.counters.no_buffer.fetch_add(1, Ordering::Relaxed);
            session.wake();
        }
        taken
    }));
    let taken = found.ok().flatten();
    // SAFETY: CUPTI gives three places to write to; no buffer means that it drops the records and counts them.
    unsafe {
        *buffer = taken.unwrap_or(std::ptr::null_mut());
        *size = if taken.is_some() { pool::SIZE } else { 0 };
        *records = 0;
    }
}

/// Takes a buffer back from CUPTI.
unsafe extern "C" fn completed(_: *mut c_void, _: u32, buffer: *mut u8, _: usize, valid: usize) {
    let _ = catch_unwind(AssertUnwindSafe(|| {
        if let Some(session) = session::owner_of_buffers()
            && session.gpu().is_some_and(|gpu| gpu.pool.complete(buffer, valid))
        {
            session.wake();
        }
    }));
}
