//! What a machine would not want to be known for.

use std::path::PathBuf;

/// The surroundings of a run: what may have leaked into its files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Environment variables.
    pub variables: Vec<(String, String)>,
    /// Name of the machine.
    pub host: Option<String>,
    /// Name of the user.
    pub user: Option<String>,
    /// The user's home.
    pub home: Option<PathBuf>,
}

impl Surroundings {
    /// Those of this process.
    pub fn here() -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
        Surroundings {
            variables: std::env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
                .collect(),
            host: host
                .map(|name| name.trim().to_owned())
                .or_else(|| variable("HOSTNAME")),
            user: variable("USER").or_else(|| variable("LOGNAME")),
            home: variable("HOME").map(PathBuf::from),
        }
    }
}
