//! `roofgap watch`: starts a program with the native collector loaded and dormant. `roofgap capture`: records a window of it.

use super::profile::{Progress, print_outcome};
use super::{answer, command_line, signals, this_program};
use crate::args::{COUNTERS_US, Capture, RING_STACKS_HZ, STACKS_HZ, Watch};
use crate::printer::Printer;
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_collect::command::CommandLine;
use roofgap_collect::watch::{Registration, Registry, Watched};
use roofgap_record::run::NativeLibrary;
use roofgap_record::run::attach::{self, CaptureProps, WatchPlan, capture};
use roofgap_record::run::incident::{Kept, record_incidents};
use roofgap_report::Screen;
use serde::Serialize;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::time::Duration;

pub fn run(args: Capture, printer: &Printer) -> Result<Exit, Error> {
    let registry = Registry::open()?;
    let Some(process) = &args.process else {
        let list: Vec<Row> = registry.list().into_iter().map(Row::of).collect();
        return answer(list.as_slice(), text, printer);
    };
    let (limit, steps) = args.length();
    let props = CaptureProps {
        limit,
        steps,
        stacks_hz: args.stacks.then_some(STACKS_HZ),
        counters_us: args.counters.then_some(COUNTERS_US),
        ..capture_props(registry.find(process)?, &args.out)?
    };
    let cancel = signals::cancel_on_signal()?;
    let mut progress = Progress::new(&[]);
    let outcome = capture(&props, &cancel, &mut |event| progress.print(&event, printer))?;
    print_outcome(&outcome, printer)
}

/// Returns the properties of a window without a length.
fn capture_props(watched: Watched, out: &Option<PathBuf>) -> Result<CaptureProps, Error> {
    Ok(CaptureProps {
        watched,
        limit: Duration::ZERO,
        steps: None,
        stacks_hz: None,
        counters_us: None,
        executable: this_program()?,
        base: out.clone(),
        command_line: command_line(),
        version: env!("CARGO_PKG_VERSION").into(),
    })
}

/// A watched program in the list.
#[derive(Debug, Serialize)]
struct Row {
    #[serde(flatten)]
    registration: Registration,
    /// Processes that have loaded the collector.
    processes: Vec<i32>,
}

impl Row {
    fn of(watched: Watched) -> Self {
        Self {
            processes: watched.processes().iter().map(|process| process.pid).collect(),
            registration: watched.registration,
        }
    }
}

fn text(list: &[Row], _: Screen) -> String {
    if list.is_empty() {
        return "no program is watched; start one with `roofgap watch -- PROGRAM`\n".to_owned();
    }
    let line = |row: &Row| {
        let loaded = match row.processes.len() {
            0 => "no process has loaded the collector yet".to_owned(),
            1 => "1 process can be recorded".to_owned(),
            count => format!("{count} processes can be recorded"),
        };
        let one = &row.registration;
        format!("{}  {}  since {}; {loaded}\n", one.pid, one.command.join(" "), one.started)
    };
    list.iter().map(line).collect()
}

/// Replaces this process by the program: the same process id, streams, terminal, signals and exit status.
pub fn watch(args: Watch, printer: &Printer) -> Result<Exit, Error> {
    let library = NativeLibrary::embedded().map_err(Error::of)?;
    let registry = Registry::open()?;
    let Some(plan) = attach::watch(&registry, &args.program, &library, (args.duty(), args.record))? else {
        return Ok(Exit::Usage);
    };
    let pid = plan.watched.registration.pid;
    if args.record {
        return record(&args, plan, printer);
    }
    printer.progress(&format_args!(
        "watching process {pid}; record a part of it with `roofgap capture {pid} --for 5s` in another terminal"
    ));
    let source = plan.command.to_command().exec();
    Err(cannot_start(&plan.command, &source))
}

fn cannot_start(line: &CommandLine, source: &std::io::Error) -> Error {
    Error::new(format!("cannot start {}: {source}", line.name()))
}

/// Starts the program and keeps its incidents until it ends. It has the same standard streams; the exit status is its own.
fn record(args: &Watch, plan: WatchPlan, printer: &Printer) -> Result<Exit, Error> {
    let WatchPlan { command: line, watched, lock } = plan;
    let props = CaptureProps {
        stacks_hz: cfg!(feature = "stacks").then_some(RING_STACKS_HZ),
        ..capture_props(watched, &args.out)?
    };
    let mut child = line.to_command().spawn().map_err(|source| cannot_start(&line, &source))?;
    let pid = child.id();
    let signals = signals::Forwarded::take(pid)?;
    let watcher = props.watched.registration.pid;
    printer.progress(&format_args!(
        "recording process {pid}; keep a moment with `kill -USR1 {watcher}`, list what was kept with `roofgap runs list`"
    ));
    let mut ended = None;
    let mut is_over = || {
        ended = child.try_wait().ok().flatten();
        ended.is_some()
    };
    let mut tell = |kept: Kept| match kept {
        Ok((incident, run)) => printer.progress(&format_args!(
            "incident {}: {}; cause: {}; {}",
            incident.at,
            incident.what,
            incident.spoken_cause(),
            run.display()
        )),
        Err(error) => printer.warnings(&[format!("an incident could not be kept: {error}")]),
    };
    let recorded =
        record_incidents(&props, &args.triggers(), &mut is_over, &|| signals.take_signal(), &mut tell);
    if let Err(error) = recorded {
        printer.warnings(&[format!("no more incidents are kept: {error}")]);
    }
    let status = match ended {
        Some(status) => status,
        None => child.wait().map_err(|source| cannot_start(&line, &source))?,
    };
    drop(lock);
    signals::end_like(status)
}
