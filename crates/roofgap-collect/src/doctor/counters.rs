//! Who may read the GPU's counters: by default only the administrator.

use serde::Serialize;

/// Whether this process may read the GPU's counters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "access", rename_all = "snake_case")]
pub enum CounterAccess {
    /// The driver gives them to everybody.
    Everybody,
    /// The driver gives them to the administrator, and this is one.
    Administrator,
    /// The driver gives them to the administrator, and this is none.
    Closed,
    /// The driver does not say (no driver, or a container that hides it).
    Unknown,
}

/// The bit of `CAP_SYS_ADMIN` in a capability mask.
const SYS_ADMIN: u64 = 1 << 21;

impl CounterAccess {
    /// Of this process.
    pub fn here() -> CounterAccess {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        judge(&read("/proc/driver/nvidia/params"), &read("/proc/self/status"))
    }
}

fn judge(params: &str, status: &str) -> CounterAccess {
    let administrator = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & SYS_ADMIN != 0);
    let restricted = params
        .lines()
        .find_map(|line| line.strip_prefix("RmProfilingAdminOnly:"))
        .map(str::trim);
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
    fn who_may() {
        let root = "Name:\tx\nCapEff:\t000001ffffffffff\n";
        // What docker gives to root: no CAP_SYS_ADMIN.
        let docker_root = "CapEff:\t00000000a80425fb\n";
        let params = |value| format!("ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: {value}\n");
        assert_eq!(judge(&params(0), docker_root), CounterAccess::Everybody);
        assert_eq!(judge(&params(1), root), CounterAccess::Administrator);
        assert_eq!(judge(&params(1), docker_root), CounterAccess::Closed);
        assert_eq!(judge("", root), CounterAccess::Unknown);
    }
}
