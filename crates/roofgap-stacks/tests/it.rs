//! Samples a real Python program.

#![allow(clippy::unwrap_used)]

use roofgap_wire::{Reader, Record};
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Maps a file with the name of the CUDA library, then sleeps and computes in turns.
const PROGRAM: &str = "
import mmap, sys, time
file = open(sys.argv[1], 'r+b')
library = mmap.mmap(file.fileno(), 0)

def rest():
    time.sleep(0.02)

def compute():
    end = time.monotonic() + 0.02
    while time.monotonic() < end:
        sum(range(100))

print('ready', flush=True)
while True:
    rest()
    compute()
";

struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the stacks of a capture by process, each as the names of its functions, innermost first.
fn stacks(capture: &Path) -> Vec<(u32, Vec<String>)> {
    let mut reader = Reader::open(File::open(capture).unwrap()).unwrap();
    let (mut names, mut stacks) = (HashMap::new(), Vec::new());
    while let Some(records) = reader.next_frame().unwrap() {
        for record in records {
            match record {
                Record::StackFrame(frame) => {
                    let name = format!("{} {} {}", frame.function.to_str(), frame.file.to_str(), frame.line);
                    names.insert(frame.id, name);
                }
                Record::StackSample(sample) => {
                    let ids = sample.frames.0.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes));
                    stacks.push((sample.pid, ids.map(|id| names[&id].clone()).collect()));
                }
                _ => {}
            }
        }
    }
    assert!(matches!(reader.ending(), Some(roofgap_wire::Ending::Complete { .. })));
    stacks
}

#[test]
fn lines_of_a_running_program_are_sampled() {
    let folder = tempfile::tempdir().unwrap();
    let (script, library) = (folder.path().join("app.py"), folder.path().join("libcuda.so.1"));
    std::fs::write(&script, PROGRAM).unwrap();
    std::fs::write(&library, [0; 4096]).unwrap();
    let python = |words: [&Path; 2]| {
        let mut command = Command::new("python3");
        let mut program = Program(command.args(words).stdout(Stdio::piped()).spawn().unwrap());
        let mut said = [0; 5];
        program.0.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        program
    };
    let program = python([&script, &library]);
    // Without the library of CUDA it launches nothing.
    let plain = folder.path().join("plain");
    std::fs::write(&plain, [0; 4096]).unwrap();
    let other = python([&script, &plain]);
    // Every look at the clock is one sample: the machine may be slow.
    let rounds = AtomicU32::new(0);
    let is_over = || rounds.fetch_add(1, Ordering::Relaxed) > 2_000;
    let samples = roofgap_stacks::run(folder.path(), std::process::id(), 500, &is_over).unwrap();
    let captures = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let capture =
        captures.into_iter().find(|path| path.extension().is_some_and(|end| end == "rgcap")).unwrap();
    let stacks = stacks(&capture);
    assert_eq!(stacks.len() as u64, samples);
    assert!(stacks.iter().all(|(pid, _)| *pid == program.0.id() && *pid != other.0.id()));
    let line = |text: &str| 1 + PROGRAM.lines().position(|line| line.contains(text)).unwrap();
    let is = |stack: &[String], at: usize, start: &str, line: usize| {
        stack.get(at).is_some_and(|frame| *frame == format!("{start} app.py {line}"))
    };
    let asleep = stacks.iter().filter(|(_, stack)| is(stack, 1, "rest", line("time.sleep"))).count();
    let computing = stacks.iter().filter(|(_, stack)| is(stack, 0, "compute", line("sum(range"))).count();
    assert!(asleep > 20, "{asleep} of {}: {:?}", stacks.len(), stacks.last());
    assert!(computing > 5, "{computing} of {}: {:?}", stacks.len(), stacks.last());
    let sleep = stacks.iter().find(|(_, stack)| is(stack, 1, "rest", line("time.sleep"))).unwrap();
    assert!(["clock_nanosleep  0", "select  0"].contains(&sleep.1[0].as_str()), "{:?}", sleep.1);
}
