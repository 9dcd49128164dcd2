//! Facts of this machine that may have leaked into the files of a run.

use std::path::PathBuf;

/// Facts of a machine that may have leaked into the files of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostFacts {
    /// Environment variables.
    pub variables: Vec<(String, String)>,
    /// Host name.
    pub host: Option<String>,
    /// User name.
    pub user: Option<String>,
    /// Home folder.
    pub home: Option<PathBuf>,
}

impl HostFacts {
    /// Reads the facts of this process.
    pub fn here() -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
        HostFacts {
            variables: std::env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
                .collect(),
            host: host.map(|name| name.trim().to_owned()).or_else(|| variable("HOSTNAME")),
            user: variable("USER").or_else(|| variable("LOGNAME")),
            home: variable("HOME").map(PathBuf::from),
        }
    }
}
