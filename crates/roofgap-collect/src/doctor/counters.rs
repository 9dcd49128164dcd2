//! Access to the performance counters of the GPU: by default only for administrators.

/// Access of this process to performance counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CounterAccess {
    /// All users may read them.
    Everybody,
    /// Only administrators may read them, and this process is one.
    Administrator,
    /// Only administrators may read them, and this process is not one.
    Closed,
    /// Unknown: no driver, or a container hides it.
    Unknown,
}

/// Bit of `CAP_SYS_ADMIN` in a capability mask.
const SYS_ADMIN: u64 = 1 << 21;

impl CounterAccess {
    /// Determines the access of this process.
    pub fn current() -> CounterAccess {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        access(&read("/proc/driver/nvidia/params"), &read("/proc/self/status"))
    }
}

fn access(params: &str, status: &str) -> CounterAccess {
    let administrator = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & SYS_ADMIN != 0);
    let restricted =
        params.lines().find_map(|line| line.strip_prefix("RmProfilingAdminOnly:")).map(str::trim);
    match restricted {
        Some("0") => CounterAccess::Everybody,
        Some(_) if administrator => CounterAccess::Administrator,
        Some(_) => CounterAccess::Closed,
        None => CounterAccess::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_by_driver_and_capabilities() {
        let root = "Name:\tx\nCapEff:\t000001ffffffffff\n";
        // Root in docker has no CAP_SYS_ADMIN.
        let docker_root = "CapEff:\t00000000a80425fb\n";
        let params = |value| format!("ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: {value}\n");
        assert_eq!(access(&params(0), docker_root), CounterAccess::Everybody);
        assert_eq!(access(&params(1), root), CounterAccess::Administrator);
        assert_eq!(access(&params(1), docker_root), CounterAccess::Closed);
        assert_eq!(access("", root), CounterAccess::Unknown);
    }
}
