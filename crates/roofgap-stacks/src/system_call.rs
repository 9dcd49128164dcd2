//! The system call in which a thread waits.

/// Numbers of the calls in which threads wait, as the functions of C call them.
#[cfg(target_arch = "x86_64")]
const CALLS: [(u64, &str); 24] = [
    (0, "read"),
    (1, "write"),
    (7, "poll"),
    (16, "ioctl"),
    (17, "pread64"),
    (18, "pwrite64"),
    (23, "select"),
    (24, "sched_yield"),
    (35, "nanosleep"),
    (44, "sendto"),
    (45, "recvfrom"),
    (46, "sendmsg"),
    (47, "recvmsg"),
    (61, "wait4"),
    (74, "fsync"),
    (202, "futex"),
    (230, "clock_nanosleep"),
    (232, "epoll_wait"),
    (247, "waitid"),
    (257, "openat"),
    (262, "stat"),
    (270, "select"),
    (271, "ppoll"),
    (281, "epoll_wait"),
];

/// Numbers of the calls in which threads wait, as the functions of C call them.
#[cfg(not(target_arch = "x86_64"))]
const CALLS: [(u64, &str); 18] = [
    (22, "epoll_wait"),
    (29, "ioctl"),
    (56, "openat"),
    (63, "read"),
    (64, "write"),
    (67, "pread64"),
    (68, "pwrite64"),
    (72, "select"),
    (73, "ppoll"),
    (82, "fsync"),
    (98, "futex"),
    (101, "nanosleep"),
    (115, "clock_nanosleep"),
    (124, "sched_yield"),
    (206, "sendto"),
    (207, "recvfrom"),
    (211, "sendmsg"),
    (212, "recvmsg"),
];

/// Returns the system call in which a thread is, from its `/proc/PID/task/TID/syscall`; `None` while it runs.
pub fn named(content: &str) -> Option<String> {
    let number = content.split(' ').next()?.parse::<u64>().ok()?;
    let known = CALLS.iter().find(|(known, _)| *known == number);
    Some(known.map_or_else(|| format!("system call {number}"), |(_, name)| (*name).to_owned()))
}

/// Returns the system call in which a thread waits; `None` if it runs, or if this cannot be read.
pub fn of(pid: u32, tid: u32) -> Option<String> {
    named(&std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_thread_is_in_no_call() {
        assert_eq!(named("running\n"), None);
        assert_eq!(named("-1 0x7ffd 0x7f00\n"), None);
        assert_eq!(named("9999 0x0\n").as_deref(), Some("system call 9999"));
        let futex = CALLS.iter().find(|(_, name)| *name == "futex").unwrap().0;
        assert_eq!(named(&format!("{futex} 0x1 0x80\n")).as_deref(), Some("futex"));
    }
}
