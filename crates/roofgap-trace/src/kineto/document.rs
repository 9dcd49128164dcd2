//! The document around the events: what may stand where, and what the header says.

use super::cursor::{Cursor, Expected, ParseStop};
use super::event::TraceEvent;
use super::rows::Filler;
use crate::decimal::MAX_NS;
use crate::{Device, Distributed, LossKind, Ns, ProcessGroup};
use serde_json::Value;

/// Position of the cursor in a list of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// After the opening bracket.
    First,
    /// After a comma.
    Next,
    /// After an event.
    After,
}

/// Reads events until the list closes (the cursor is left on the bracket) or something stops it. After
/// [`ParseStop::Incomplete`] the cursor stands where reading can go on with more text.
pub fn events<'a>(
    cursor: &mut Cursor<'a>,
    place: &mut Place,
    filler: &mut Filler<'a, '_>,
) -> Result<(), ParseStop> {
    loop {
        let byte = cursor.peek()?;
        match (*place, byte) {
            (Place::First | Place::After, b']') => return Ok(()),
            (Place::After, b',') => {
                cursor.at += 1;
                *place = Place::Next;
            }
            (Place::After, _) => return Err(ParseStop::Invalid(Expected::CommaOrEnd)),
            (Place::First | Place::Next, _) => {
                let from = cursor.at;
                let mut event = TraceEvent::default();
                event.read(cursor, &mut filler.keys).inspect_err(|stop| {
                    if *stop == ParseStop::Incomplete {
                        cursor.at = from;
                    }
                })?;
                event.keep(filler);
                *place = Place::After;
            }
        }
    }
}

/// Part of the document that contains the cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Before anything.
    Start,
    /// Before a key of the outermost object, or its end where `first`.
    Member { first: bool },
    /// After a value of the outermost object.
    AfterMember,
    /// In the list of events; `outermost` where the document is that list.
    Events { place: Place, outermost: bool },
    /// After the end.
    End,
}

/// Values of the document's header.
#[derive(Debug, Default)]
pub struct Header {
    pub schema_version: Option<String>,
    /// Offset added to every time, ns.
    pub base: Ns,
    pub devices: Vec<Device>,
    pub distributed: Option<Distributed>,
    /// Options of the profiler that slow the program down.
    pub options: Vec<LossKind>,
}

/// A document read so far.
#[derive(Debug)]
pub struct Document {
    pub state: State,
    pub header: Header,
    /// True if the document has a list of events.
    pub has_events: bool,
}

impl Document {
    pub fn new() -> Self {
        Self { state: State::Start, header: Header::default(), has_events: false }
    }

    /// Reads on until the text ends (which is [`ParseStop::Incomplete`], with the cursor where reading goes on) or is wrong.
    pub fn advance<'a>(&mut self, cursor: &mut Cursor<'a>, filler: &mut Filler<'a, '_>) -> ParseStop {
        loop {
            if let Err(stop) = self.step(cursor, filler) {
                return stop;
            }
        }
    }

    fn step<'a>(&mut self, cursor: &mut Cursor<'a>, filler: &mut Filler<'a, '_>) -> Result<(), ParseStop> {
        match &mut self.state {
            State::Start => {
                cursor.byte_order_mark()?;
                match cursor.peek()? {
                    b'{' => self.state = State::Member { first: true },
                    b'[' => {
                        self.has_events = true;
                        self.state = State::Events { place: Place::First, outermost: true };
                    }
                    _ => return Err(ParseStop::Invalid(Expected::Value)),
                }
                cursor.at += 1;
            }
            State::Member { first } => {
                if *first && cursor.peek()? == b'}' {
                    cursor.at += 1;
                    self.state = State::End;
                    return Ok(());
                }
                let from = cursor.at;
                self.member(cursor).inspect_err(|stop| {
                    if *stop == ParseStop::Incomplete {
                        cursor.at = from;
                    }
                })?;
            }
            State::AfterMember => {
                match cursor.peek()? {
                    b',' => self.state = State::Member { first: false },
                    b'}' => self.state = State::End,
                    _ => return Err(ParseStop::Invalid(Expected::CommaOrEnd)),
                }
                cursor.at += 1;
            }
            State::Events { place, outermost } => {
                events(cursor, place, filler)?;
                cursor.at += 1;
                self.state = if *outermost { State::End } else { State::AfterMember };
            }
            State::End => {
                cursor.peek().map_err(|stop| match stop {
                    ParseStop::Invalid(_) => ParseStop::Invalid(Expected::Nothing),
                    ParseStop::Incomplete => stop,
                })?;
                return Err(ParseStop::Invalid(Expected::Nothing));
            }
        }
        Ok(())
    }

    fn member(&mut self, cursor: &mut Cursor<'_>) -> Result<(), ParseStop> {
        let key = cursor.key()?;
        if key == b"traceEvents" {
            // A second list would make it a matter of taste which one counts.
            if self.has_events {
                return Err(ParseStop::Invalid(Expected::OneList));
            }
            cursor.take(b'[', Expected::List)?;
            self.has_events = true;
            self.state = State::Events { place: Place::First, outermost: false };
            return Ok(());
        }
        cursor.peek()?;
        let from = cursor.at;
        cursor.skip()?;
        let value = cursor.since(from);
        match key {
            b"schemaVersion" => {
                self.header.schema_version = Some(String::from_utf8_lossy(value).into_owned())
            }
            b"baseTimeNanoseconds" => {
                let digits = value.strip_prefix(b"\"").and_then(|v| v.strip_suffix(b"\""));
                let base = std::str::from_utf8(digits.unwrap_or(value)).ok();
                let base = base.and_then(|v| v.parse().ok());
                let base = base.filter(|base| (0..=MAX_NS).contains(base));
                self.header.base = base.ok_or(ParseStop::Invalid(Expected::BaseTime))?;
            }
            b"with_stack" => self.option(value, LossKind::StacksRecorded),
            b"record_shapes" => self.option(value, LossKind::ShapesRecorded),
            b"profile_memory" => self.option(value, LossKind::AllocationsRecorded),
            b"deviceProperties" => self.header.devices = devices(value),
            b"distributedInfo" => self.header.distributed = distributed(value),
            _ => {}
        }
        self.state = State::AfterMember;
        Ok(())
    }

    /// Notes an option of the profiler that is on.
    fn option(&mut self, value: &[u8], kind: LossKind) {
        if matches!(value, b"1" | b"true") && !self.header.options.contains(&kind) {
            self.header.options.push(kind);
        }
    }
}

/// The most multiprocessors of a device that are believed: some versions of Kineto write another number for them.
const MOST_SMS: u32 = 1_024;

/// Parses the devices of the header; devices without a number are left out.
fn devices(text: &[u8]) -> Vec<Device> {
    let list: Vec<Value> = serde_json::from_slice(text).unwrap_or_default();
    let small = |device: &Value, key: &str| device.get(key)?.as_u64().and_then(|n| u32::try_from(n).ok());
    let describe = |device: &Value| {
        let name = device.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
        // GPUs of AMD number their architectures by themselves.
        let of_amd =
            name.is_some_and(|name| name.starts_with("AMD")) || small(device, "warpSize") == Some(64);
        let capability = small(device, "computeMajor").zip(small(device, "computeMinor"));
        Some(Device {
            number: small(device, "id")?,
            name: name.map(str::to_owned),
            compute_capability: capability.filter(|_| !of_amd),
            sms: small(device, "multiProcessorCount")
                .into_iter()
                .chain(small(device, "numSms"))
                .find(|sms| (1..=MOST_SMS).contains(sms)),
            memory_bytes: device.get("totalGlobalMem").and_then(Value::as_u64),
            ..Device::default()
        })
    };
    list.iter().filter_map(describe).collect()
}

/// Parses the ranks of a process group; empty unless all are numbers.
fn ranks(group: &Value) -> Vec<u32> {
    let number = |rank: &Value| rank.as_u64().and_then(|rank| u32::try_from(rank).ok());
    let list = group.get("ranks").and_then(Value::as_array);
    let ranks = list.map(|list| list.iter().map(number).collect::<Option<Vec<_>>>());
    ranks.flatten().unwrap_or_default()
}

/// Parses the rank and the process groups of the header; `None` for anything but an object.
fn distributed(text: &[u8]) -> Option<Distributed> {
    let info: Value = serde_json::from_slice(text).ok()?;
    let small = |value: &Value, key: &str| value.get(key)?.as_u64().and_then(|n| u32::try_from(n).ok());
    let words = |value: &Value, key: &str| match value.get(key) {
        Some(Value::String(text)) => text.clone(),
        _ => String::new(),
    };
    let groups = info.get("pg_config").and_then(Value::as_array);
    info.as_object()?;
    Some(Distributed {
        rank: small(&info, "rank"),
        world_size: small(&info, "world_size"),
        groups: groups
            .into_iter()
            .flatten()
            .filter_map(|group| {
                Some(ProcessGroup {
                    name: words(group, "pg_name"),
                    description: words(group, "pg_desc"),
                    size: small(group, "pg_size")?,
                    ranks: ranks(group),
                })
            })
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_impossible_number_of_multiprocessors_is_not_believed() {
        let sms = |text: &str| devices(text.as_bytes())[0].sms;
        assert_eq!(sms(r#"[{"id": 0, "numSms": 132}]"#), Some(132));
        let both = r#"[{"id": 0, "numSms": 167936, "multiProcessorCount": 108}]"#;
        assert_eq!(sms(both), Some(108));
        assert_eq!(sms(r#"[{"id": 0, "numSms": 167936}]"#), None);
    }

    #[test]
    fn the_architecture_of_amd_is_no_compute_capability() {
        let capability = |text: &str| devices(text.as_bytes())[0].compute_capability;
        let of =
            |rest: &str| capability(&format!(r#"[{{"id": 0, "computeMajor": 9, "computeMinor": 0{rest}}}]"#));
        assert_eq!(of(r#", "name": "NVIDIA H200", "warpSize": 32"#), Some((9, 0)));
        assert_eq!(of(r#", "name": "AMD Instinct MI210", "warpSize": 64"#), None);
        assert_eq!(of(r#", "name": "", "warpSize": 64"#), None);
        assert_eq!(of(r#", "name": "AMD Radeon RX 7900 XTX", "warpSize": 32"#), None);
    }
}
