//! The JSON of `chrome://tracing`, one event a line. Times are microseconds from the first event, with three decimals.

use super::{Arg, Group, PROCESSES, Slice, Track, Writer};
use roofgap_trace::Ns;
use std::io::{self, Write};

/// Writes events.
pub struct Chrome<'a> {
    out: &'a mut dyn Write,
    any: bool,
    /// Buffer of one event.
    line: Vec<u8>,
    group: Group,
}

impl<'a> Chrome<'a> {
    /// Starts the document.
    pub fn new(out: &'a mut dyn Write, first: Ns) -> io::Result<Self> {
        out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        Ok(Self { out, any: false, line: Vec::new(), group: Group { first, ..Group::default() } })
    }

    fn describe(&mut self, kind: &str, track: Track, name: &str, order: i64) -> io::Result<()> {
        for (key, value) in [("name", Arg::Text(name)), ("sort_index", Arg::Number(order))] {
            self.begin("M", track)?;
            write!(self.line, ",\"name\":\"{kind}_{key}\"")?;
            self.args(&[(key, value)])?;
            self.end()?;
        }
        Ok(())
    }

    /// Begins an event at a time.
    fn at(&mut self, phase: &str, track: Track, at: Ns) -> io::Result<()> {
        self.begin(phase, track)?;
        self.time("ts", at.saturating_sub(self.group.first))
    }

    fn begin(&mut self, phase: &str, Track { pid, tid }: Track) -> io::Result<()> {
        self.line.clear();
        let before = if self.any { ",\n" } else { "\n" };
        self.any = true;
        let pid = self.group.pid(pid);
        write!(self.line, "{before}{{\"ph\":\"{phase}\",\"pid\":{pid},\"tid\":{tid}")
    }

    fn time(&mut self, key: &str, ns: Ns) -> io::Result<()> {
        // The sign goes before the whole microseconds, which are 0 for short times.
        let (sign, ns) = (if ns < 0 { "-" } else { "" }, ns.unsigned_abs());
        write!(self.line, ",\"{key}\":{sign}{}.{:03}", ns / 1000, ns % 1000)
    }

    fn name(&mut self, name: &str) -> io::Result<()> {
        self.line.extend_from_slice(b",\"name\":");
        Ok(serde_json::to_writer(&mut self.line, name)?)
    }

    fn end(&mut self) -> io::Result<()> {
        self.line.push(b'}');
        self.out.write_all(&self.line)
    }

    fn args(&mut self, args: &[(&str, Arg<'_>)]) -> io::Result<()> {
        for (i, (key, value)) in args.iter().enumerate() {
            self.line.extend_from_slice(if i == 0 { b",\"args\":{" } else { b"," });
            write!(self.line, "\"{key}\":")?;
            match value {
                Arg::Number(number) => write!(self.line, "{number}")?,
                Arg::Size([x, y, z]) => write!(self.line, "[{x},{y},{z}]")?,
                Arg::Text(text) => serde_json::to_writer(&mut self.line, text)?,
            }
        }
        if !args.is_empty() {
            self.line.push(b'}');
        }
        Ok(())
    }
}

impl Writer for Chrome<'_> {
    fn rank(&mut self, group: Group) {
        self.group = group;
    }

    fn process(&mut self, pid: u32, name: &str, order: i64) -> io::Result<()> {
        let name = format!("{}{name}", self.group.prefix);
        let order = i64::from(PROCESSES) * i64::from(self.group.at) + order;
        self.describe("process", Track { pid, tid: 0 }, &name, order)
    }

    fn thread(&mut self, track: Track, name: &str, order: i64) -> io::Result<()> {
        self.describe("thread", track, name, order)
    }

    fn slice(&mut self, Slice { track, category, name, time, args }: Slice<'_>) -> io::Result<()> {
        self.at("X", track, time.0)?;
        self.time("dur", time.1.saturating_sub(time.0).max(0))?;
        write!(self.line, ",\"cat\":\"{category}\"")?;
        self.name(name)?;
        self.args(args)?;
        self.end()
    }

    fn async_slice(&mut self, track: Track, name: &str, (start, end): (Ns, Ns), id: u64) -> io::Result<()> {
        for (phase, at) in [("b", start), ("e", end.max(start))] {
            self.at(phase, track, at)?;
            write!(self.line, ",\"cat\":\"range\",\"id\":{}", self.group.id(id))?;
            self.name(name)?;
            self.end()?;
        }
        Ok(())
    }

    fn instant(&mut self, track: Track, name: &str, at: Ns) -> io::Result<()> {
        self.at("i", track, at)?;
        self.line.extend_from_slice(b",\"s\":\"t\",\"cat\":\"mark\"");
        self.name(name)?;
        self.end()
    }

    fn flow(&mut self, from: (Track, Ns), to: (Track, Ns), id: u64) -> io::Result<()> {
        for (phase, (track, at)) in [("s", from), ("f", to)] {
            self.at(phase, track, at)?;
            write!(self.line, ",\"cat\":\"launch\",\"name\":\"launch\",\"id\":{}", self.group.id(id))?;
            if phase == "f" {
                self.line.extend_from_slice(b",\"bp\":\"e\"");
            }
            self.end()?;
        }
        Ok(())
    }

    fn counter(&mut self, pid: u32, name: &str, at: Ns, value: f64) -> io::Result<()> {
        self.at("C", Track { pid, tid: 0 }, at)?;
        self.name(name)?;
        write!(self.line, ",\"args\":{{\"value\":{value:?}}}")?;
        self.end()
    }

    fn finish(&mut self) -> io::Result<()> {
        self.out.write_all(b"\n]}\n")
    }
}
