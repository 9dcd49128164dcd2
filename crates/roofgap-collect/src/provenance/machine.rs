//! CPU, memory and operating system.

use serde::{Deserialize, Serialize};

/// The machine of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// CPU model.
    pub cpu: Option<String>,
    /// CPUs available to a program.
    pub cores: Option<usize>,
    /// Memory size, bytes.
    pub memory_bytes: Option<u64>,
    /// Memory limit of the control group, bytes.
    pub memory_limit_bytes: Option<u64>,
    /// Operating system.
    pub os: Option<String>,
    /// Kernel release.
    pub kernel: Option<String>,
    /// CPU architecture.
    pub arch: String,
    /// Container runtime, if one is detected.
    pub container: Option<String>,
}

impl Machine {
    /// Reads the facts of this machine.
    pub fn current() -> Machine {
        let read = |path: &str| std::fs::read_to_string(path).ok();
        let system = rustix::system::uname();
        Machine {
            cpu: read("/proc/cpuinfo").and_then(|text| cpu_model(&text)),
            cores: std::thread::available_parallelism().ok().map(std::num::NonZeroUsize::get),
            memory_bytes: read("/proc/meminfo").and_then(|text| memory_total(&text)),
            memory_limit_bytes: read("/sys/fs/cgroup/memory.max").and_then(|text| text.trim().parse().ok()),
            os: read("/etc/os-release").and_then(|text| os_name(&text)),
            kernel: Some(system.release().to_string_lossy().into_owned()),
            arch: std::env::consts::ARCH.to_owned(),
            container: container(),
        }
    }
}

fn cpu_model(text: &str) -> Option<String> {
    let model = text.lines().find(|line| line.starts_with("model name"))?;
    Some(model.split_once(':')?.1.trim().to_owned())
}

fn memory_total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

fn os_name(text: &str) -> Option<String> {
    let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(name.trim_matches('"').to_owned())
}

fn container() -> Option<String> {
    if std::path::Path::new("/.dockerenv").exists() {
        return Some("docker".to_owned());
    }
    if std::path::Path::new("/run/.containerenv").exists() {
        return Some("podman".to_owned());
    }
    std::env::var_os("KUBERNETES_SERVICE_HOST").map(|_| "kubernetes".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_out_of_proc() {
        assert_eq!(
            cpu_model("processor\t: 0\nmodel name\t: AMD EPYC 9654: X\n").as_deref(),
            Some("AMD EPYC 9654: X")
        );
        assert_eq!(memory_total("MemTotal:       131072000 kB\nMemFree: 1 kB\n"), Some(131_072_000 * 1024));
        assert_eq!(os_name("ID=debian\nPRETTY_NAME=\"Debian 13\"\n").as_deref(), Some("Debian 13"));
        assert_eq!((cpu_model(""), memory_total("MemTotal: many"), os_name("")), (None, None, None));
    }

    #[test]
    fn this_machine_has_cores_and_a_kernel() {
        let machine = Machine::current();
        assert!(machine.cores.is_some_and(|cores| cores > 0));
        assert!(machine.kernel.is_some());
    }
}
