//! Launches, copies and waits of a program, timed without CUPTI where this library is preloaded (`LD_PRELOAD`).
//!
//! The CUDA runtime, also one that is linked statically, finds the driver by `dlsym` and `cuGetProcAddress`, as libraries above it do. Both
//! answer with functions from here, which call the driver and record the time of the call. The name of a launch tells its function by a
//! number, and its shape: a call is all that this recording has of a kernel.

use crate::collector::annotations::{Named, add_name};
use crate::collector::{now, thread};
use crate::nvtx::narrow;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHasher};
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

/// A function of the driver. None has more arguments, and none has one that is not passed like a pointer.
type Entry = unsafe extern "C" fn(
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
) -> c_int;

/// The kinds of functions that are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Finds others: text, place of the answer, ...
    Lookup,
    /// Launches: function, grid, block, ...
    Launch,
    /// Launches: configuration, which begins with grid and block, function, ...
    LaunchEx,
    /// Launches: graph, ...
    Graph,
    Other,
}

/// Returns the kind of a function by its name; `None` for one that stays as it is.
fn kind_of(name: &[u8]) -> Option<Kind> {
    let rest = name.strip_prefix(b"cu")?;
    let is = |begin: &str| rest.starts_with(begin.as_bytes());
    match rest {
        _ if is("GetProcAddress") => Some(Kind::Lookup),
        _ if is("LaunchKernelEx") => Some(Kind::LaunchEx),
        _ if is("LaunchKernel") || is("LaunchCooperativeKernel") && !is("LaunchCooperativeKernelM") => {
            Some(Kind::Launch)
        }
        _ if is("GraphLaunch") => Some(Kind::Graph),
        _ if is("Memcpy") || is("Memset") || rest.windows(11).any(|part| part == b"Synchronize") => {
            Some(Kind::Other)
        }
        _ => None,
    }
}

/// A function of the driver that is replaced.
struct Replaced {
    real: usize,
    kind: Kind,
    name: Box<str>,
}

/// The replaced functions. The runtime asks for fewer than a hundred, with their variants for streams of threads.
static REPLACED: [OnceLock<Replaced>; 128] = [const { OnceLock::new() }; 128];

macro_rules! entries {
    ($($at:literal)*) => {
        [$(call::<{ 8 * $at }>, call::<{ 8 * $at + 1 }>, call::<{ 8 * $at + 2 }>, call::<{ 8 * $at + 3 }>,
           call::<{ 8 * $at + 4 }>, call::<{ 8 * $at + 5 }>, call::<{ 8 * $at + 6 }>, call::<{ 8 * $at + 7 }>,)*]
    };
}

/// A function for each place in [`REPLACED`].
static ENTRIES: [Entry; REPLACED.len()] = entries!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);

/// Number of launches so far.
static LAUNCHES: AtomicU64 = AtomicU64::new(0);

/// Returns the number of kernels and graphs that this process has launched, where the library is preloaded.
#[unsafe(no_mangle)]
pub extern "C" fn roofgap_launch_count() -> u64 {
    LAUNCHES.load(Ordering::Relaxed)
}

/// Returns the function to call in place of `real`: one that records it, or itself.
fn replace(name: &[u8], real: usize) -> usize {
    let Some(kind) = kind_of(name).filter(|_| real != 0) else { return real };
    for (at, (place, entry)) in REPLACED.iter().zip(ENTRIES).enumerate() {
        let known = place.get_or_init(|| {
            add_name(Named::Call { api: plain(at) }, name);
            Replaced { real, kind, name: String::from_utf8_lossy(name).into() }
        });
        if known.real == real {
            return entry as usize;
        }
    }
    real
}

/// Calls the replaced function at a place, and records it.
unsafe extern "C" fn call<const AT: usize>(
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
    g: usize,
    h: usize,
    i: usize,
    j: usize,
    k: usize,
) -> c_int {
    /// Answer of the driver for a function that is missing.
    const NOT_FOUND: c_int = 500;
    let Some(replaced) = REPLACED.get(AT).and_then(OnceLock::get) else { return NOT_FOUND };
    let begun = match replaced.kind {
        Kind::Lookup => None,
        _ => crate::is_recording().then(now),
    };
    // SAFETY: the driver's own function, with the arguments of the caller. Those beyond its own are ignored: the caller removes them.
    let result = unsafe {
        let real: Entry = std::mem::transmute::<usize, Entry>(replaced.real);
        real(a, b, c, d, e, f, g, h, i, j, k)
    };
    let _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: a lookup that succeeded has written its answer.
        if let (Kind::Lookup, 0, Some(answer)) =
            (replaced.kind, result, unsafe { (b as *mut usize).as_mut() })
        {
            // SAFETY: the driver read the same text.
            *answer = replace(unsafe { narrow(a as *const c_char) }, *answer);
        }
        if matches!(replaced.kind, Kind::Launch | Kind::LaunchEx | Kind::Graph) {
            LAUNCHES.fetch_add(1, Ordering::Relaxed);
        }
        let Some(begun) = begun else { return };
        let number = match replaced.kind {
            Kind::Launch => token(AT, replaced, a, [b, c, d, e, f, g].map(|side| side as u32)),
            Kind::LaunchEx => {
                // SAFETY: the driver has read the configuration.
                let shape = unsafe { (a as *const [u32; 6]).as_ref() }.copied().unwrap_or_default();
                token(AT, replaced, b, shape)
            }
            Kind::Graph => token(AT, replaced, a, [0; 6]),
            _ => plain(AT),
        };
        thread::leave(true, 0, Some((number, result as u32, begun)), None);
    }));
    result
}

/// Number of launches of different functions or shapes that have names of their own.
const TOKENS: usize = 1 << 14;

/// The number of a call that has no name of its own.
fn plain(at: usize) -> u32 {
    (TOKENS + at) as u32
}

/// Returns the number of a launch, and names it on its first use.
fn token(at: usize, replaced: &Replaced, function: usize, shape: [u32; 6]) -> u32 {
    /// The places hold a hash of what is launched; 0 is none.
    static KEYS: [AtomicU64; TOKENS] = [const { AtomicU64::new(0) }; TOKENS];
    /// Numbers of the functions, and of the graphs.
    static NUMBERS: Mutex<FxHashMap<usize, usize>> = Mutex::new(HashMap::with_hasher(FxBuildHasher));
    const PROBES: usize = 16;
    let mut hasher = FxHasher::default();
    (at, function, shape).hash(&mut hasher);
    let key = hasher.finish() | 1;
    let places = (0..PROBES).map(|probe| (key as usize).wrapping_add(probe) % TOKENS);
    for place in places {
        match KEYS[place].load(Ordering::Acquire) {
            known if known == key => return place as u32,
            0 => {}
            _ => continue,
        }
        // Held by another thread, perhaps before a fork: this launch goes without.
        let Ok(mut numbers) = NUMBERS.try_lock() else { break };
        if KEYS[place].load(Ordering::Acquire) != 0 {
            break;
        }
        let next = numbers.len();
        let number = *numbers.entry(function).or_insert(next);
        let [x, y, z, block @ ..] = shape;
        let name = match replaced.kind {
            Kind::Graph => format!("{} g{number}", replaced.name),
            _ => format!("{} f{number} {:?} {block:?}", replaced.name, [x, y, z]),
        };
        add_name(Named::Call { api: place as u32 }, name.as_bytes());
        KEYS[place].store(key, Ordering::Release);
        return place as u32;
    }
    plain(at)
}

/// The answer to a `dlsym`, or the function that is to answer.
#[repr(C)]
struct Found {
    answer: usize,
    ask: usize,
}

type Find = unsafe extern "C" fn(*mut c_void, *const c_char) -> usize;

/// Finds a symbol that is replaced.
extern "C" fn find(handle: *mut c_void, name: *const c_char) -> Found {
    static REAL: AtomicUsize = AtomicUsize::new(0);
    const VERSION: &std::ffi::CStr =
        if cfg!(target_arch = "aarch64") { c"GLIBC_2.17" } else { c"GLIBC_2.2.5" };
    let mut ask = REAL.load(Ordering::Relaxed);
    if ask == 0 {
        // SAFETY: asks for a function of the C library, which stays.
        ask = unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), VERSION.as_ptr()) } as usize;
        REAL.store(ask, Ordering::Relaxed);
    }
    let answer = catch_unwind(|| {
        // SAFETY: the caller passes a text.
        let text = unsafe { narrow(name) };
        if handle == libc::RTLD_NEXT || kind_of(text).is_none() || ask == 0 {
            return 0;
        }
        // SAFETY: the C library's function, with the arguments of the caller.
        replace(text, unsafe { std::mem::transmute::<usize, Find>(ask)(handle, name) })
    });
    Found { answer: answer.unwrap_or(0), ask }
}

/// Answers `dlsym` for the functions that are replaced. Otherwise that of the C library goes on in its place, because it looks at who called.
///
/// # Safety
/// As `dlsym`.
#[cfg_attr(feature = "preload", unsafe(export_name = "dlsym"))]
#[unsafe(naked)]
pub unsafe extern "C" fn preloaded_dlsym(handle: *mut c_void, name: *const c_char) -> usize {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {find}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jne 2f",
        "jmp rdx",
        "2: ret",
        find = sym find,
    );
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!(
        "stp x29, x30, [sp, #-32]!",
        "stp x0, x1, [sp, #16]",
        "bl {find}",
        "mov x2, x0",
        "mov x16, x1",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "cbz x2, 2f",
        "mov x0, x2",
        "ret",
        "2: br x16",
        find = sym find,
    );
}
