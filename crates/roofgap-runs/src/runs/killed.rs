//! Kills a test that works in a process of its own, at moments spread over its whole time.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::artifacts::files;

/// A test that works in a process of its own, where a variable names its folder.
pub struct ChildTest {
    /// Path of the test.
    pub name: &'static str,
    pub variable: &'static str,
}

impl ChildTest {
    fn start(&self, folder: &Path) -> Child {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", self.name])
            .env(self.variable, folder)
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// Lets the work end and returns the time it took.
    pub fn whole(&self, folder: &Path) -> Duration {
        let began = Instant::now();
        assert!(self.start(folder).wait().unwrap().success());
        began.elapsed()
    }

    /// Kills the work after a time.
    pub fn kill_after(&self, folder: &Path, time: Duration) {
        let mut child = self.start(folder);
        std::thread::sleep(time);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Kills the work as soon as it has an unfinished file. Returns true if one is left, so that the kill was in the middle of it.
    pub fn kill_in_the_middle(&self, folder: &Path) -> bool {
        let is_unfinished = || {
            let found = files(folder).unwrap_or_default();
            found.iter().any(|file| super::artifacts::is_temporary(&file.path))
        };
        let mut child = self.start(folder);
        while !is_unfinished() && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_micros(100));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        is_unfinished()
    }
}

/// Returns moments that are spread evenly over a time, whatever their number.
pub fn moments(count: u32, whole: Duration) -> impl Iterator<Item = Duration> {
    // Multiples of the golden ratio.
    (0..count).map(move |at| whole.mul_f64((f64::from(at) * 0.618_034).fract()))
}
