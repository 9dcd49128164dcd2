//! The writer thread: collects events and writes them in whole frames.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::annotations::Seen;
use super::output::Output;
use super::session::{self, Session};
use super::transcode::Transcoder;
use super::{gpu, lock, now, windows};
use roofgap_wire::{
    CallName, Cupti, End, Flush, FrameBuilder, Loss, Process, Record, Text, ThreadName, Window, WindowCause,
};

/// Sleep of the writer between rounds.
const TICK: Duration = Duration::from_millis(50);

/// Sleep of the writer while only annotations are recorded. Threads wake it when their rings fill.
const DORMANT_TICK: Duration = Duration::from_secs(1);

/// Uncompressed length at which a frame is closed, bytes.
const FRAME: usize = 512 << 10;

/// `End::how` of a file that was ended on request while the program runs.
const END_CUT: u8 = 2;

/// Time limit of the last CUPTI flush.
const LAST_FLUSH: Duration = Duration::from_secs(5);

struct Writer {
    session: &'static Session,
    output: Output,
    frame: FrameBuilder,
    transcoder: Transcoder,
    names: Seen,
    threads: Vec<u32>,
    losses: BTreeMap<&'static str, Lost>,
    events: Vec<u8>,
    gpu_told: bool,
    dropped: u64,
    /// Begin of the segment.
    segment: Instant,
    /// True while a new segment begins.
    rotating: bool,
}

#[derive(Default)]
struct Lost {
    count: u64,
    detail: String,
    told: bool,
}

/// Runs the writer thread.
pub fn run(session: &'static Session, output: Output) {
    let mut writer = Writer {
        session,
        output,
        frame: FrameBuilder::new(),
        transcoder: Transcoder::default(),
        names: Seen::nothing(),
        threads: Vec::new(),
        losses: BTreeMap::new(),
        events: Vec::new(),
        gpu_told: false,
        dropped: 0,
        segment: Instant::now(),
        rotating: false,
    };
    writer.introduce();
    let mut stop_by = None;
    loop {
        // Read before gathering: what was handed over before the end is then certainly gathered.
        let stopping = session.stopping.load(Ordering::Acquire);
        let flushed = session.flushed.load(Ordering::Acquire);
        writer.gather();
        writer.close();
        session.rounds.fetch_add(1, Ordering::Release);
        if writer.output.has_ended() {
            // What would not be written need not be recorded.
            session.switch.end();
            if session.switch.is_armed() {
                windows::disarm(session, WindowCause::Limit);
            }
        }
        if session.options.keep_last.is_some_and(|last| writer.segment.elapsed() >= last) && !stopping {
            writer.rotate();
        }
        if session.cut.load(Ordering::Acquire) && !stopping {
            writer.cut();
            session.cut.store(false, Ordering::Release);
        }
        if stopping {
            let deadline = *stop_by.get_or_insert_with(|| Instant::now() + LAST_FLUSH);
            if flushed || Instant::now() > deadline {
                if !flushed {
                    writer.lose("cupti.last_flush", 1, "CUPTI did not return from its last flush");
                }
                break;
            }
        }
        std::thread::park_timeout(if session.is_dormant() { DORMANT_TICK } else { TICK });
    }
    writer.finish();
    // Closes the file before the program ends.
    drop(writer);
    session.done.store(true, Ordering::Release);
}

impl Writer {
    /// Writes the record of the process.
    fn introduce(&mut self) {
        let name = std::fs::read("/proc/self/comm").unwrap_or_default();
        self.frame.put(&Record::Process(Process {
            pid: self.session.pid,
            parent: std::os::unix::process::parent_id(),
            at: now(),
            name: Text(name.trim_ascii_end()),
        }));
        self.session.launcher.put(&mut self.frame);
        self.close();
    }

    /// Ends the file in order and goes on in a new one.
    fn cut(&mut self) {
        self.frame.put(&Record::End(End { how: END_CUT, at: now() }));
        self.output.write(&mut self.frame);
        self.rotate();
    }

    /// Goes on in a new file that can be read by itself. Only the two newest files are kept.
    fn rotate(&mut self) {
        self.segment = Instant::now();
        if self.rotating || !self.output.rotate() {
            return;
        }
        self.rotating = true;
        *lock(&self.session.descriptor) = self.output.descriptor();
        // Frames are numbered from 0 in each file.
        self.frame = FrameBuilder::new();
        self.output.mark_windows();
        self.introduce();
        self.gpu_told = false;
        self.introduce_gpu();
        self.frame.put(&Record::Window(Window {
            on: u8::from(self.session.switch.is_armed()),
            cause: WindowCause::Begin.to_u8(),
            at: now(),
        }));
        if let Some(gpu) = self.session.gpu() {
            let (frame, output) = (&mut self.frame, &mut self.output);
            self.transcoder.define_again(&gpu.api, |record| {
                frame.put(record);
                if frame.len() >= FRAME {
                    output.write(frame);
                }
            });
            self.frame.put_encoded(self.transcoder.device_records());
            self.transcoder.describe_devices(&mut self.frame);
        }
        self.names = Seen::nothing();
        self.threads.clear();
        for ring in self.session.rings.iter() {
            self.frame.put(&Record::Thread(ring.owner()));
        }
        self.losses.values_mut().for_each(|lost| lost.told = false);
        self.close();
        self.rotating = false;
    }

    /// Collects all pending events.
    fn gather(&mut self) {
        self.take_edges();
        self.introduce_gpu();
        self.take_buffers();
        self.take_events();
        self.take_losses();
    }

    fn take_edges(&mut self) {
        let edges = self.session.switch.take_edges();
        if !edges.is_empty() {
            self.output.mark_windows();
        }
        for edge in edges {
            self.frame.put(&Record::Window(edge));
        }
    }

    fn introduce_gpu(&mut self) {
        let Some(gpu) = self.session.gpu() else { return };
        if self.gpu_told {
            return;
        }
        self.gpu_told = true;
        let path = gpu.api.path.to_string_lossy();
        let cupti = Cupti { version: gpu.api.version, options: gpu.options, path: Text(path.as_bytes()) };
        self.frame.put(&Record::Cupti(cupti));
        if let Some(clocks) = gpu.clocks {
            self.frame.put(&Record::ClockPair(clocks));
        }
        if gpu.options & session::CALLBACKS != 0 {
            // These calls arrive encoded, so their names are written for all of them at once.
            for &(domain, number, name) in &gpu.selected {
                let api = gpu::call_key(domain, number);
                self.frame.put(&Record::CallName(CallName { api, name: Text(name) }));
            }
        }
    }

    fn take_buffers(&mut self) {
        let Some(gpu) = self.session.gpu() else { return };
        let mut buffers = 0u32;
        gpu.pool.drain(|buffer, valid| {
            buffers += 1;
            let mut last = std::ptr::null_mut();
            loop {
                // SAFETY: the pool hands on what CUPTI completed, and `last` is what was returned before.
                last = unsafe { self.transcoder.some(&gpu.api, (buffer, valid), last, &mut self.frame) };
                if self.frame.len() >= FRAME {
                    self.close();
                }
                // A buffer takes a while, and the rings are small.
                self.take_events();
                if last.is_null() {
                    break;
                }
            }
        });
        self.transcoder.describe_devices(&mut self.frame);
        if buffers > 0 {
            self.dropped += gpu.api.dropped();
            self.frame.put(&Record::Flush(Flush { at: now() }));
            if let Some(clocks) = session::clocks(&gpu.api) {
                self.frame.put(&Record::ClockPair(clocks));
            }
        }
    }

    /// Collects annotations. A name is registered before its first use, so names are read after the events and written
    /// before them.
    fn take_events(&mut self) {
        let rings = &self.session.rings;
        rings.each(|number, ring| {
            self.events.clear();
            ring.drain(|bytes| self.events.extend_from_slice(bytes));
            if self.events.is_empty() {
                return;
            }
            self.names.each_new(|record| self.frame.put(&record));
            self.name_thread(number, ring.owner().tid);
            self.frame.put_encoded(&self.events);
            if self.frame.len() >= FRAME {
                self.close();
            }
        });
        self.names.each_new(|record| self.frame.put(&record));
    }

    /// Writes the operating system's name of a ring's thread, once.
    fn name_thread(&mut self, number: usize, tid: u32) {
        if self.threads.len() <= number {
            self.threads.resize(number + 1, 0);
        }
        let Some(known) = self.threads.get_mut(number).filter(|known| **known != tid) else {
            return;
        };
        *known = tid;
        let name = std::fs::read(format!("/proc/self/task/{tid}/comm")).unwrap_or_default();
        if !name.is_empty() {
            let name = Text(name.trim_ascii_end());
            self.frame.put(&Record::ThreadName(ThreadName { tid, given: 0, name }));
        }
    }

    fn take_losses(&mut self) {
        for note in self.session.take_notes() {
            self.lose(note.id, note.count, &note.detail);
        }
        let ours = [
            (self.dropped, "cupti.dropped", "records CUPTI dropped"),
            (self.transcoder.untimed, "cupti.untimed", "kernels CUPTI gave no times for"),
            (self.transcoder.strange, "cupti.strange", "records of a kind that was not asked for"),
        ];
        for (count, id, detail) in self.session.losses().chain(ours) {
            if count > 0 {
                self.lose(id, count, detail);
            }
        }
        for (id, lost) in self.losses.iter_mut().filter(|(_, lost)| !lost.told) {
            lost.told = true;
            let (id, detail) = (Text(id.as_bytes()), Text(lost.detail.as_bytes()));
            self.frame.put(&Record::Loss(Loss { count: lost.count, id, detail }));
        }
    }

    /// Sets the total of a loss.
    fn lose(&mut self, id: &'static str, count: u64, detail: &str) {
        let lost = self.losses.entry(id).or_default();
        if lost.count != count || lost.detail != detail {
            *lost = Lost { count, detail: detail.to_owned(), told: false };
        }
    }

    /// Writes the collected records as a frame.
    fn close(&mut self) {
        self.output.write(&mut self.frame);
        // Two segments have about the size limit; a busy program keeps less time.
        if self.session.options.keep_last.is_some() && self.output.is_half_full() {
            self.rotate();
        }
    }

    fn finish(&mut self) {
        if let Some(gpu) = self.session.gpu() {
            self.dropped += gpu.api.dropped();
        }
        self.gather();
        self.close();
        self.frame.put(&Record::End(End { how: 1, at: now() }));
        self.close();
        self.output.finish();
    }
}
