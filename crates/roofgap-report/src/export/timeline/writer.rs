//! What a format of timelines writes.

use roofgap_trace::Ns;
use std::io;

/// A track: a thread of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Track {
    pub pid: u32,
    pub tid: u32,
}

impl Track {
    /// Track of the stages.
    pub const STAGES: Self = Self { pid: 1, tid: 1 };
}

/// A value beside an event.
#[derive(Debug, Clone, Copy)]
pub enum Arg<'a> {
    Number(i64),
    /// Size of a grid or a block.
    Size([u32; 3]),
    Text(&'a str),
}

/// Writes the events of a timeline in one format.
pub trait Writer {
    /// Begins the processes of a rank, the `at`th of several, whose first moment is `first`.
    fn rank(&mut self, at: usize, rank: u32, first: Ns);

    /// Names a process and sets its position among the others.
    fn process(&mut self, pid: u32, name: &str, order: i64) -> io::Result<()>;

    /// Names a track and sets its position in its process.
    fn thread(&mut self, track: Track, name: &str, order: i64) -> io::Result<()>;

    /// Names the track of a stream of a GPU.
    fn stream(&mut self, track: Track, name: &str, order: i64) -> io::Result<()> {
        self.thread(track, name, order)
    }

    /// Writes a slice that nests in its track.
    fn slice(
        &mut self,
        track: Track,
        category: &str,
        name: &str,
        time: (Ns, Ns),
        args: &[(&str, Arg<'_>)],
    ) -> io::Result<()>;

    /// Writes an operation of a GPU on the track of its stream.
    fn operation(
        &mut self,
        track: Track,
        category: &str,
        name: &str,
        time: (Ns, Ns),
        args: &[(&str, Arg<'_>)],
    ) -> io::Result<()> {
        self.slice(track, category, name, time, args)
    }

    /// Writes a slice that need not nest.
    fn async_slice(&mut self, track: Track, name: &str, time: (Ns, Ns), id: u64) -> io::Result<()>;

    /// Writes an instant.
    fn instant(&mut self, track: Track, name: &str, at: Ns) -> io::Result<()>;

    /// Writes an arrow from a call to an operation.
    fn flow(&mut self, from: (Track, Ns), to: (Track, Ns), id: u64) -> io::Result<()>;

    /// Writes a counter value of a process.
    fn counter(&mut self, pid: u32, name: &str, at: Ns, value: f64) -> io::Result<()>;

    /// Ends the document.
    fn finish(&mut self) -> io::Result<()>;
}
