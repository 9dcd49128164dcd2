//! Sets up CUPTI inside the program, and handles its callbacks; facts of a GPU come from the driver, by the device number of the program.
//!
//! The nodes of CUDA graphs are recorded as they are created and cloned, so that a kernel of a replay gets the ranges that were open while
//! its graph was captured. CUPTI calls back only while a program builds graphs; a replay costs nothing more.

use super::options::Nodes;
use super::ring::Pool;
use super::session::{self, CALLBACKS, CALLS_CHOSEN, COPIES, Callbacks, Counted, Gpu, Session, WHOLE_GRAPHS};
use super::waits::{SyncArguments, without_prefix};
use super::{lock, now, thread};
use crate::cupti::{Api, Failure, Subscriber, Surroundings, sys};
use roofgap_wire::{Device, MEMORY_CALLS, Record, Text};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Number of libraries to try.
const TRIES: usize = 4;

/// Finds CUPTI and sets it up; it records nothing yet. Failures are noted as losses.
pub fn attach(session: &Session) -> Option<Gpu> {
    let surroundings = Surroundings::here();
    let candidates = surroundings.candidates();
    let (mut id, mut failures) = ("cupti.missing", Vec::new());
    for path in candidates.iter().take(TRIES) {
        let opened = Api::open(path).and_then(|api| {
            let subscriber = api.subscribe(on_call)?;
            Ok((api, subscriber))
        });
        match opened {
            Ok((api, subscriber)) => return set_up(session, api, subscriber),
            Err(Failure::Refused { code: sys::MULTIPLE_SUBSCRIBERS, .. }) => {
                let name = other_profiler(path, &surroundings.maps);
                let detail = format!("{name} is attached to this program, and CUPTI serves one profiler");
                session.note("cupti.other_profiler", 1, &detail);
                return None;
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
    None
}

/// Parts of library paths by which a profiler is known, and its name.
const PROFILERS: [(&str, &str); 5] = [
    ("libToolsInjection", "Nsight Systems"),
    ("nsight-systems", "Nsight Systems"),
    ("nsight-compute", "Nsight Compute"),
    ("libdcgm", "DCGM"),
    ("libkineto", "the PyTorch profiler"),
];

/// Names the profiler that keeps us out: by CUPTI's word, else by the libraries of the program.
fn other_profiler(cupti: &Path, maps: &str) -> String {
    let loaded = PROFILERS.iter().find(|(part, _)| maps.contains(part));
    let named = Api::open(cupti).ok().and_then(|api| api.other_subscriber(on_call));
    named.unwrap_or_else(|| loaded.map_or("another profiler", |(_, name)| *name).to_owned())
}

fn set_up(session: &Session, api: Api, subscriber: Subscriber) -> Option<Gpu> {
    let buffers = &session.options.buffers;
    let Some(pool) = Pool::new(buffers.size, buffers.count) else {
        session.note("cupti.no_memory", 1, "the system gave no memory for buffers");
        return None;
    };
    // Older versions clear the buffers themselves, which is slower and as correct.
    api.set_flag(sys::ATTR_ZEROED_BUFFERS, true);
    if session.options.hardware
        && let Err(failure) = api.time_by_hardware()
    {
        session.note("cupti.hardware_refused", 1, &format!("kernels are timed as usual: {failure}"));
    }
    if let Err(failure) = api.register(requested, completed) {
        session.note("cupti.refused", 1, &failure.to_string());
        return None;
    }
    let clocks = session::clocks(&api);
    let mut options = CALLS_CHOSEN;
    let mut kinds = Vec::new();
    if session.options.copies {
        options |= COPIES;
        kinds.extend([
            (sys::KIND_MEMCPY, "copies"),
            (sys::KIND_MEMCPY_PEER, "copies between devices"),
            (sys::KIND_MEMSET, "memory sets"),
        ]);
    }
    if session.options.whole_graphs {
        options |= WHOLE_GRAPHS;
        kinds.push((sys::KIND_GRAPH_TRACE, "graph launches"));
    }
    // Calls that are selected after the program has created its context get no activity records.
    if !api.can_choose_calls() || (!session.options.is_continuous() && api.can_call_back()) {
        options |= CALLBACKS;
    }
    let selected: Vec<_> = selected(&api).collect();
    let waits = selected.iter().filter(|_| api.can_name_streams());
    let waits = waits.filter_map(|&(domain, number, name)| Some((domain, number, SyncArguments::of(name)?)));
    Some(Gpu {
        kinds,
        waits: waits.collect(),
        selected,
        devices_told: AtomicBool::new(false),
        callbacks: Callbacks::default(),
        api,
        subscriber,
        pool,
        options,
        clocks,
    })
}

/// Begins what lasts from the moment that CUPTI is set up.
pub fn attached(session: &Session, gpu: &Gpu) {
    if session.options.nodes == Nodes::Always {
        record_graph_nodes(session, gpu, true);
    }
}

/// Kernel records. CUPTI's serial kind is no alternative: it has no times for kernels of CUDA graphs, and costs other kernels as much.
const KERNELS: (u32, &str) = (sys::KIND_CONCURRENT_KERNEL, "kernels");

/// Kinds that record every call.
const ALL_CALLS: [(u32, &str); 2] =
    [(sys::KIND_RUNTIME, "runtime calls"), (sys::KIND_DRIVER, "driver calls")];

/// Turns the selected calls on or off; returns the number of calls that CUPTI accepted. Callbacks go off when a call returns.
fn set_calls(gpu: &Gpu, on: bool) -> usize {
    if gpu.options & CALLBACKS == 0 {
        return set_selected(gpu, on);
    }
    let mut is_on = lock(&gpu.callbacks.on);
    gpu.callbacks.leaving.store(!on, Ordering::SeqCst);
    if on && !*is_on {
        gpu.callbacks.inside.store(0, Ordering::SeqCst);
        *is_on = set_selected(gpu, true) > 0;
    }
    gpu.selected.len() * usize::from(*is_on)
}

/// Turns callbacks off where a call returns, unless another thread is inside of one.
fn leave_callbacks(gpu: &Gpu) {
    let state = &gpu.callbacks;
    let is_last = state.inside.load(Ordering::SeqCst) <= 0 && state.leaving.load(Ordering::SeqCst);
    if !is_last {
        return;
    }
    if let Ok(mut is_on) = state.on.try_lock()
        && *is_on
        && state.leaving.load(Ordering::SeqCst)
    {
        set_selected(gpu, false);
        // A call that began meanwhile turns them off when it returns.
        *is_on = state.inside.load(Ordering::SeqCst) > 0 && set_selected(gpu, true) > 0;
    }
}

fn set_selected(gpu: &Gpu, on: bool) -> usize {
    let set = |&(domain, number, _): &(u32, u32, &[u8])| match gpu.options & CALLBACKS {
        0 => gpu.api.set_call(domain, number, on),
        _ => gpu.api.set_callback(&gpu.subscriber, domain, number, on),
    };
    gpu.selected.iter().filter(|call| set(call)).count()
}

/// Starts or stops the callbacks of calls that wait or record events, where CUPTI records the calls itself.
fn watch_waits(gpu: &Gpu, on: bool) {
    if gpu.options & CALLBACKS == 0 {
        for &(domain, number, _) in &gpu.waits {
            gpu.api.set_callback(&gpu.subscriber, domain, number, on);
        }
    }
}

/// Begins to record GPU work. Calls come first, so that every kernel has its call.
pub fn enable(session: &Session, gpu: &Gpu) {
    let all_calls = set_calls(gpu, true) == 0;
    watch_waits(gpu, true);
    if session.options.nodes == Nodes::Armed {
        record_graph_nodes(session, gpu, true);
    }
    let mut kinds: Vec<(u32, &str)> = Vec::new();
    if !gpu.devices_told.swap(true, Ordering::Relaxed) {
        kinds.push((sys::KIND_DEVICE, "devices"));
    }
    if all_calls {
        session.note("cupti.all_calls", 1, "every CUDA call is recorded, which slows the program more");
        kinds.extend(ALL_CALLS);
    }
    kinds.extend(&gpu.kinds);
    kinds.push(KERNELS);
    let refused: Vec<String> = kinds
        .iter()
        .filter_map(|(kind, name)| gpu.api.enable(*kind).err().map(|failure| format!("{name}: {failure}")))
        .collect();
    if !refused.is_empty() {
        session.note("cupti.kind_refused", refused.len() as u64, &refused.join("; "));
    }
}

/// Stops recording GPU work, calls last.
pub fn disable(session: &Session, gpu: &Gpu) {
    let mut refused = Vec::new();
    for (kind, name) in [KERNELS].iter().chain(&gpu.kinds) {
        if let Err(failure) = gpu.api.disable(*kind) {
            refused.push(format!("{name}: {failure}"));
        }
    }
    // CUPTI has described the devices by now.
    let _ = gpu.api.disable(sys::KIND_DEVICE);
    if session.options.nodes == Nodes::Armed {
        record_graph_nodes(session, gpu, false);
    }
    watch_waits(gpu, false);
    if set_calls(gpu, false) == 0 {
        for (kind, _) in ALL_CALLS {
            // Refused where it was not enabled.
            let _ = gpu.api.disable(kind);
        }
    }
    if !refused.is_empty() {
        session.note("cupti.disable_refused", refused.len() as u64, &refused.join("; "));
    }
}

/// Handles the entry and the return of a selected call, and new nodes of graphs. CUPTI keeps the time of entry in between.
unsafe extern "C" fn on_call(_: *mut c_void, domain: u32, number: u32, data: *const c_void) {
    let _ = catch_unwind(|| {
        if domain == sys::DOMAIN_RESOURCE {
            // SAFETY: an argument of CUPTI.
            return unsafe { on_resource(number, data) };
        }
        // SAFETY: CUPTI passes this struct to callbacks of the two domains of calls, the only others we enable.
        let Some(data) = (unsafe { data.cast::<sys::CallbackData>().as_ref() }) else {
            return;
        };
        // SAFETY: a place of ours from entry to exit, or null.
        let Some(begun) = (unsafe { data.ours.as_mut() }) else {
            return;
        };
        let runtime = domain == sys::DOMAIN_RUNTIME;
        let Some(gpu) = session::current().and_then(Session::gpu) else {
            return;
        };
        match data.site {
            sys::SITE_ENTER => gpu.callbacks.inside.fetch_add(1, Ordering::SeqCst),
            _ => gpu.callbacks.inside.fetch_sub(1, Ordering::SeqCst),
        };
        match data.site {
            // The window is over; what began in it is still recorded.
            sys::SITE_ENTER if gpu.callbacks.leaving.load(Ordering::Relaxed) => *begun = 0,
            sys::SITE_ENTER => {
                if runtime {
                    thread::enter_runtime(data.correlation);
                }
                *begun = now();
            }
            sys::SITE_EXIT if *begun != 0 => {
                // SAFETY: on exit it points to what the call returned, a number in either domain.
                let result = unsafe { data.result.as_ref() }.copied().unwrap_or(0);
                let call = (gpu.options & CALLBACKS != 0).then(|| (call_key(domain, number), result, *begun));
                let known = gpu.waits.iter().find(|wait| (wait.0, wait.1) == (domain, number));
                let sync = known.filter(|_| result == 0).and_then(|(.., arguments)| {
                    // SAFETY: the arguments are those of the call of this callback.
                    unsafe { arguments.sync_call(&gpu.api, data, *begun) }
                });
                thread::leave(runtime, data.correlation, call, sync);
            }
            _ => {}
        }
        if data.site == sys::SITE_EXIT {
            leave_callbacks(gpu);
        }
    });
}

/// Gives CUPTI a buffer.
unsafe extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize, records: *mut usize) {
    let given = catch_unwind(AssertUnwindSafe(|| {
        let session = session::current()?;
        let taken = session.gpu().and_then(|gpu| gpu.pool.take());
        if taken.is_none() {
            session.count(Counted::NoBuffer);
            session.wake_writer();
        }
        taken
    }));
    let taken = given.ok().flatten();
    // SAFETY: CUPTI gives three places to write to; no buffer means that it drops the records and counts them.
    unsafe {
        (*buffer, *size) = taken.unwrap_or((std::ptr::null_mut(), 0));
        *records = 0;
    }
}

/// Takes a buffer back from CUPTI.
unsafe extern "C" fn completed(_: *mut c_void, _: u32, buffer: *mut u8, _: usize, valid: usize) {
    let _ = catch_unwind(AssertUnwindSafe(|| {
        if let Some(session) = session::owner_of_buffers()
            && let Some(gpu) = session.gpu()
        {
            if !gpu.pool.complete(buffer, valid) {
                // Another user of CUPTI gave out this buffer, so it replaced our functions for a while.
                session.count(Counted::ForeignBuffer);
            }
            session.wake_writer();
        }
    }));
}

/// Starts or stops recording the nodes of graphs.
fn record_graph_nodes(session: &Session, gpu: &Gpu, on: bool) {
    let numbers = [sys::GRAPH_NODE_CREATED, sys::GRAPH_NODE_CLONED];
    let accepted = gpu.api.can_name_graph_nodes()
        && numbers
            .map(|number| gpu.api.set_callback(&gpu.subscriber, sys::DOMAIN_RESOURCE, number, on))
            .iter()
            .all(|accepted| *accepted);
    if on && !accepted {
        let detail = "this CUPTI does not report the nodes of graphs, so kernels of graphs have no layer";
        session.note("cupti.graph_nodes_refused", 1, detail);
    }
}

/// Handles a callback about a resource.
///
/// # Safety
/// `data` must be null or what CUPTI passes to callbacks of the resource domain.
unsafe fn on_resource(number: u32, data: *const c_void) {
    if number != sys::GRAPH_NODE_CREATED && number != sys::GRAPH_NODE_CLONED {
        return;
    }
    let Some(gpu) = session::current().and_then(Session::gpu) else {
        return;
    };
    // SAFETY: as the caller promises; CUPTI passes a graph with these two numbers.
    let graph = unsafe {
        data.cast::<sys::ResourceData>()
            .as_ref()
            .and_then(|resource| resource.descriptor.cast::<sys::GraphData>().as_ref())
    };
    let Some(graph) = graph.filter(|graph| !graph.node.is_null()) else {
        return;
    };
    // SAFETY: both nodes are those of this callback.
    let id = |node: *mut c_void| unsafe { gpu.api.graph_node_id(node) };
    let original = match number {
        sys::GRAPH_NODE_CLONED if graph.original_node.is_null() => return,
        sys::GRAPH_NODE_CLONED => id(graph.original_node),
        _ => Some(0),
    };
    if let (Some(node), Some(original)) = (id(graph.node), original) {
        thread::graph_node(node, original);
    }
}

type DeviceGet = unsafe extern "C" fn(*mut c_int, c_int) -> c_int;
type DeviceName = unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int;
type DeviceMemory = unsafe extern "C" fn(*mut usize, c_int) -> c_int;
type DeviceUuid = unsafe extern "C" fn(*mut u8, c_int) -> c_int;
type DeviceAttribute = unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int;

const CLOCK_KHZ: c_int = 13;
const MULTIPROCESSORS: c_int = 16;
const MEMORY_CLOCK_KHZ: c_int = 36;
const MEMORY_BUS_BITS: c_int = 37;
const L2_BYTES: c_int = 38;
const MAJOR: c_int = 75;
const MINOR: c_int = 76;

/// Queries the driver that the program has loaded and passes the record to `take`; does nothing on failure.
pub fn describe_device(id: u32, take: impl FnOnce(Record<'_>)) {
    // SAFETY: only looks whether the library is loaded already.
    let driver = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    if driver.is_null() {
        return;
    }
    let (Some(get), Some(name), Some(memory), Some(attribute)) = (
        symbol!(driver, "cuDeviceGet", DeviceGet),
        symbol!(driver, "cuDeviceGetName", DeviceName),
        symbol!(driver, "cuDeviceTotalMem_v2", DeviceMemory),
        symbol!(driver, "cuDeviceGetAttribute", DeviceAttribute),
    ) else {
        return;
    };
    let ask_uuid = symbol!(driver, "cuDeviceGetUuid", DeviceUuid);
    // SAFETY: these are functions of the driver with the signatures it has had since CUDA 4. Each writes what its
    // pointer says and nothing else; a driver that is shutting down answers with an error.
    unsafe {
        let mut device = 0;
        let mut text = [0 as c_char; 256];
        if get(&raw mut device, id as c_int) != 0 || name(text.as_mut_ptr(), 255, device) != 0 {
            return;
        }
        let mut uuid = [0u8; 16];
        let known = ask_uuid.is_some_and(|ask| ask(uuid.as_mut_ptr(), device) == 0);
        let mut bytes = 0usize;
        memory(&raw mut bytes, device);
        let ask = |what: c_int| {
            let mut value = 0;
            if attribute(&raw mut value, what, device) == 0 { value.max(0) as u32 } else { 0 }
        };
        // Two transfers a clock: the figure the specification sheets use.
        let bandwidth = u64::from(ask(MEMORY_CLOCK_KHZ)) * 1_000 * 2 * u64::from(ask(MEMORY_BUS_BITS)) / 8;
        take(Record::Device(Device {
            id,
            visible: 1,
            source: 1,
            major: ask(MAJOR),
            minor: ask(MINOR),
            sms: ask(MULTIPROCESSORS),
            clock_khz: ask(CLOCK_KHZ),
            l2_bytes: u64::from(ask(L2_BYTES)),
            memory_bytes: bytes as u64,
            bandwidth,
            name: Text(CStr::from_ptr(text.as_ptr()).to_bytes()),
            uuid: Text(if known { &uuid } else { &[] }),
        }));
    }
}

/// Upper bound of function numbers in any version.
const NUMBERS: u32 = 2_000;

/// Bit that marks calls of the driver API.
const DRIVER: u32 = 1 << 31;

/// Beginnings of the names of calls that are rare and take long, without `cuda` or `cu`, beside those of memory.
const RARE: [&str; 7] = [
    "MemHost",
    "ModuleLoad",
    "LibraryLoad",
    "LinkComplete",
    "GraphInstantiate",
    "StreamBeginCapture",
    "StreamEndCapture",
];

/// Returns true if the call of this name is recorded: one that launches, copies, sets, waits or records an event, and
/// rare ones that explain a slow step: they load code, allocate memory or capture graphs.
///
/// A program makes ten times as many other calls, and recording them is the largest part of the overhead. Calls are selected by name, so that
/// new versions of CUPTI need no new list.
fn wanted(name: &[u8]) -> bool {
    let Some(rest) = without_prefix(name) else {
        return false;
    };
    let begins = |prefix: &str| rest.starts_with(prefix.as_bytes());
    let says = |part: &str| rest.windows(part.len()).any(|window| window == part.as_bytes());
    begins("Launch")
        || begins("GraphLaunch")
        || begins("Memcpy")
        || begins("Memset")
        || begins("StreamWait")
        || begins("EventRecord")
        || says("Synchronize")
        || MEMORY_CALLS.iter().chain(&RARE).any(|prefix| begins(prefix))
}

/// Returns the selected calls: domain, number, name.
fn selected(api: &Api) -> impl Iterator<Item = (u32, u32, &'static [u8])> {
    [sys::DOMAIN_RUNTIME, sys::DOMAIN_DRIVER].into_iter().flat_map(move |domain| {
        (1..NUMBERS).filter_map(move |number| {
            let name = api.call_name(domain, number).filter(|name| wanted(name))?;
            Some((domain, number, name))
        })
    })
}

/// Returns the number of a call in the capture.
pub fn call_key(domain: u32, number: u32) -> u32 {
    if domain == sys::DOMAIN_DRIVER { number | DRIVER } else { number }
}

/// Returns domain and number of a call in the capture.
pub fn split_call_key(key: u32) -> (u32, u32) {
    if key & DRIVER != 0 { (sys::DOMAIN_DRIVER, key & !DRIVER) } else { (sys::DOMAIN_RUNTIME, key) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_copies_and_waits_are_wanted() {
        for name in [
            "cudaLaunchKernel_v7000",
            "__cudaLaunchKernel_ptsz_v13000",
            "cudaLaunchKernelExC_v11060",
            "cuLaunchKernelEx",
            "cudaGraphLaunch_v10000",
            "cuGraphLaunch_ptsz",
            "cudaMemcpyAsync_v3020",
            "cuMemcpyHtoDAsync_v2",
            "cu64MemcpyHtoD",
            "cudaMemsetAsync_v3020",
            "cuMemsetD8Async",
            "cudaStreamSynchronize_v3020",
            "cudaDeviceSynchronize_v3020",
            "cuCtxSynchronize",
            "cuEventSynchronize",
            "cudaStreamWaitEvent_v3020",
            "cudaEventRecordWithFlags_v11010",
            "cudaLaunchCooperativeKernel_v9000",
        ] {
            assert!(wanted(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn rare_calls_that_take_long_are_wanted() {
        for name in
            ["cudaMalloc_v3020", "cudaFree_v3020", "cuMemAlloc_v2", "cuModuleLoadData", "cuGraphInstantiate"]
        {
            assert!(wanted(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn the_many_others_are_not() {
        for name in [
            "cudaGetDevice_v3020",
            "cudaEventQuery_v3020",
            "cudaGraphAddMemcpyNode_v10000",
            "cuMemSetAccess",
            "cudaMemSetMemPool_v13000",
            "cudaStreamIsCapturing_v10000",
            "cuGraphMemsetNodeGetParams",
            "INVALID",
            "",
        ] {
            assert!(!wanted(name.as_bytes()), "{name}");
        }
    }
}
