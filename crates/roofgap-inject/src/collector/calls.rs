//! Selects the CUDA calls to record: those that launch, copy, set or wait, and the rare ones that explain a slow step: they load code,
//! allocate memory or capture graphs.
//!
//! A program makes ten times as many other calls, and recording them is the largest part of the overhead. Calls are
//! selected by name, so that new versions of CUPTI need no new list.

use crate::cupti::{Api, sys};
use roofgap_wire::MEMORY_CALLS;

/// Upper bound of function numbers in any version.
const NUMBERS: u32 = 2_000;

/// Bit that marks calls of the driver API.
pub const DRIVER: u32 = 1 << 31;

/// Calls to record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selection {
    /// Calls that launch, copy, set or wait, and rare ones that take long.
    All,
    /// Calls that launch, copy or set.
    Launches,
}

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

/// Returns true if the call of this name is in a selection.
pub fn wanted(name: &[u8], selection: Selection) -> bool {
    let name = name.strip_prefix(b"__").unwrap_or(name);
    let Some(rest) = name
        .strip_prefix(b"cuda")
        .or_else(|| name.strip_prefix(b"cu64"))
        .or_else(|| name.strip_prefix(b"cu"))
    else {
        return false;
    };
    let begins = |prefix: &str| rest.starts_with(prefix.as_bytes());
    let says = |part: &str| rest.windows(part.len()).any(|window| window == part.as_bytes());
    begins("Launch")
        || begins("GraphLaunch")
        || begins("Memcpy")
        || begins("Memset")
        || selection == Selection::All
            && (begins("StreamWait")
                || says("Synchronize")
                || MEMORY_CALLS.iter().chain(&RARE).any(|prefix| begins(prefix)))
}

/// Returns the selected calls: domain, number, name.
pub fn selected(api: &Api, selection: Selection) -> impl Iterator<Item = (u32, u32, &'static [u8])> {
    [sys::DOMAIN_RUNTIME, sys::DOMAIN_DRIVER].into_iter().flat_map(move |domain| {
        (1..NUMBERS).filter_map(move |number| {
            let name = api.call_name(domain, number).filter(|name| wanted(name, selection))?;
            Some((domain, number, name))
        })
    })
}

/// Returns the number of a call in the capture.
pub fn key(domain: u32, number: u32) -> u32 {
    if domain == sys::DOMAIN_DRIVER { number | DRIVER } else { number }
}

/// Returns domain and number of a call in the capture.
pub fn split(key: u32) -> (u32, u32) {
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
            "cudaLaunchCooperativeKernel_v9000",
        ] {
            assert!(wanted(name.as_bytes(), Selection::All), "{name}");
            let waits = name.contains("Synchronize") || name.contains("Wait");
            assert_eq!(wanted(name.as_bytes(), Selection::Launches), !waits, "{name}");
        }
    }

    #[test]
    fn rare_calls_that_take_long_are_wanted() {
        for name in
            ["cudaMalloc_v3020", "cudaFree_v3020", "cuMemAlloc_v2", "cuModuleLoadData", "cuGraphInstantiate"]
        {
            assert!(wanted(name.as_bytes(), Selection::All), "{name}");
            assert!(!wanted(name.as_bytes(), Selection::Launches), "{name}");
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
            assert!(!wanted(name.as_bytes(), Selection::All), "{name}");
        }
    }
}
