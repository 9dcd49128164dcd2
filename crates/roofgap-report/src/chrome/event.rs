//! One event a line. Times are microseconds from the first event, with three decimals.

use super::tracks::Track;
use roofgap_trace::Ns;
use serde_json::Value;
use std::io::{self, Write};

/// Writes events one after another.
pub(super) struct Writer<'a, W: Write> {
    out: &'a mut W,
    first: Ns,
    any: bool,
    /// Reused for every event.
    line: Vec<u8>,
}

impl<'a, W: Write> Writer<'a, W> {
    pub(super) fn new(out: &'a mut W, first: Ns) -> io::Result<Self> {
        out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        Ok(Self {
            out,
            first,
            any: false,
            line: Vec::new(),
        })
    }

    pub(super) fn finish(self) -> io::Result<()> {
        self.out.write_all(b"\n]}\n")
    }

    /// The name of a process and its place among the others.
    pub(super) fn process(&mut self, pid: u32, name: &str, order: i64) -> io::Result<()> {
        self.begin("M", pid, 0)?;
        self.line
            .extend_from_slice(b",\"name\":\"process_name\",\"args\":{\"name\":");
        serde_json::to_writer(&mut self.line, name)?;
        self.line.extend_from_slice(b"}");
        self.end()?;
        self.begin("M", pid, 0)?;
        write!(
            self.line,
            ",\"name\":\"process_sort_index\",\"args\":{{\"sort_index\":{order}}}"
        )?;
        self.end()
    }

    /// The name of a track and its place in its process.
    pub(super) fn thread(&mut self, track: Track, name: &str, order: i64) -> io::Result<()> {
        self.begin("M", track.pid, track.tid)?;
        self.line
            .extend_from_slice(b",\"name\":\"thread_name\",\"args\":{\"name\":");
        serde_json::to_writer(&mut self.line, name)?;
        self.line.extend_from_slice(b"}");
        self.end()?;
        self.begin("M", track.pid, track.tid)?;
        write!(
            self.line,
            ",\"name\":\"thread_sort_index\",\"args\":{{\"sort_index\":{order}}}"
        )?;
        self.end()
    }

    /// Something with a begin and an end that nests in its track.
    pub(super) fn slice(
        &mut self,
        track: Track,
        category: &str,
        name: &str,
        (start, end): (Ns, Ns),
        args: &[(&str, Value)],
    ) -> io::Result<()> {
        self.begin("X", track.pid, track.tid)?;
        self.time("ts", start - self.first)?;
        self.time("dur", (end - start).max(0))?;
        write!(self.line, ",\"cat\":\"{category}\"")?;
        self.name(name)?;
        self.args(args)?;
        self.end()
    }

    /// Something with a begin and an end that need not nest.
    pub(super) fn apart(
        &mut self,
        track: Track,
        name: &str,
        (start, end): (Ns, Ns),
        id: u64,
    ) -> io::Result<()> {
        for (phase, at) in [("b", start), ("e", end.max(start))] {
            self.begin(phase, track.pid, track.tid)?;
            self.time("ts", at - self.first)?;
            write!(self.line, ",\"cat\":\"range\",\"id\":{id}")?;
            self.name(name)?;
            self.end()?;
        }
        Ok(())
    }

    /// A moment.
    pub(super) fn instant(&mut self, track: Track, name: &str, at: Ns) -> io::Result<()> {
        self.begin("i", track.pid, track.tid)?;
        self.time("ts", at - self.first)?;
        self.line.extend_from_slice(b",\"s\":\"t\",\"cat\":\"mark\"");
        self.name(name)?;
        self.end()
    }

    /// An arrow from a call to an operation.
    pub(super) fn flow(&mut self, from: (Track, Ns), to: (Track, Ns), id: u64) -> io::Result<()> {
        for (phase, (track, at)) in [("s", from), ("f", to)] {
            self.begin(phase, track.pid, track.tid)?;
            self.time("ts", at - self.first)?;
            write!(self.line, ",\"cat\":\"launch\",\"name\":\"launch\",\"id\":{id}")?;
            if phase == "f" {
                self.line.extend_from_slice(b",\"bp\":\"e\"");
            }
            self.end()?;
        }
        Ok(())
    }

    /// A value of a counter of a process.
    pub(super) fn counter(&mut self, pid: u32, name: &str, at: Ns, value: f64) -> io::Result<()> {
        self.begin("C", pid, 0)?;
        self.time("ts", at - self.first)?;
        self.name(name)?;
        self.args(&[("value", value.into())])?;
        self.end()
    }

    fn begin(&mut self, phase: &str, pid: u32, tid: u32) -> io::Result<()> {
        self.line.clear();
        let before = if self.any { ",\n" } else { "\n" };
        self.any = true;
        write!(
            self.line,
            "{before}{{\"ph\":\"{phase}\",\"pid\":{pid},\"tid\":{tid}"
        )
    }

    fn time(&mut self, key: &str, ns: Ns) -> io::Result<()> {
        write!(self.line, ",\"{key}\":{}.{:03}", ns / 1000, ns % 1000)
    }

    fn name(&mut self, name: &str) -> io::Result<()> {
        self.line.extend_from_slice(b",\"name\":");
        Ok(serde_json::to_writer(&mut self.line, name)?)
    }

    fn args(&mut self, args: &[(&str, Value)]) -> io::Result<()> {
        for (i, (key, value)) in args.iter().enumerate() {
            self.line
                .extend_from_slice(if i == 0 { b",\"args\":{" } else { b"," });
            write!(self.line, "\"{key}\":")?;
            serde_json::to_writer(&mut self.line, value)?;
        }
        if !args.is_empty() {
            self.line.push(b'}');
        }
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        self.line.push(b'}');
        self.out.write_all(&self.line)
    }
}
