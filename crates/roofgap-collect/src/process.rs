//! Processes in `/proc`.

use std::collections::HashSet;

/// A process in `/proc/PID/stat`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Process id.
    pub pid: i32,
    /// Name of the program.
    pub name: String,
    /// State letter of the kernel.
    pub state: char,
    /// Process id of the parent.
    pub parent: i32,
    /// Process group.
    pub group: i32,
    /// Start time, clock ticks since boot. With the process id, it identifies a process uniquely.
    pub start: u64,
}

impl Process {
    /// Returns true when the process has ended and waits to be reaped.
    pub fn is_zombie(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

/// Finds the process with this id.
pub fn find(pid: i32) -> Option<Process> {
    parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Lists all visible processes.
pub fn all() -> Vec<Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| find(entry.file_name().to_str()?.parse().ok()?)).collect()
}

/// Returns true when an assignment in the initial environment of a process begins with `start`, such as `NAME=VALUE`.
pub fn has_variable(pid: i32, start: &str) -> bool {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|entry| entry.starts_with(start.as_bytes()))
}

/// Adds the descendants of the processes in `tree`.
pub fn add_descendants(tree: &mut HashSet<i32>, processes: &[Process]) {
    loop {
        let before = tree.len();
        for process in processes {
            if tree.contains(&process.parent) {
                tree.insert(process.pid);
            }
        }
        if tree.len() == before {
            return;
        }
    }
}

/// Sends a signal to a process, which may have ended.
pub fn send(pid: u32, signal: i32) {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    if let (Some(pid), Some(signal)) = (pid, rustix::process::Signal::from_named_raw(signal)) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

fn parse(stat: &str) -> Option<Process> {
    // The name is in parentheses and may contain parentheses and spaces: the last one closes it.
    let (head, rest) = stat.rsplit_once(") ")?;
    let (pid, name) = head.split_once(" (")?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    Some(Process {
        pid: pid.parse().ok()?,
        name: name.to_owned(),
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        start: fields.get(19)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let stat = "42 (a) (b c) S 7 42 42 0 -1 4194304 1 0 0 0 5 6 7 8 20 0 1 0 123456 1 2 3 4 5 6 7 8 9 0 0 0 0 17 1";
        let process = parse(stat).unwrap();
        assert_eq!(
            (process.pid, process.name.as_str(), process.state, process.parent, process.group, process.start),
            (42, "a) (b c", 'S', 7, 42, 123_456)
        );
        assert_eq!(parse("42 (half"), None);
    }

    #[test]
    fn this_process_is_among_all() {
        let me = i32::try_from(std::process::id()).unwrap();
        let this = all().into_iter().find(|process| process.pid == me).unwrap();
        assert_eq!(this.start, find(me).unwrap().start);
    }
}
