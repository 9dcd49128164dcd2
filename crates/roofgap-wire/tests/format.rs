//! The format: what goes in comes out, and no bytes can make the reader fail otherwise than by saying so.

#![allow(clippy::expect_used, reason = "a test may panic")]

use proptest::prelude::*;
use roofgap_wire::{
    Call, CutReason, End, Ending, EventKind, FrameBuilder, HEADER_LEN, Header, Kernel, LaunchShape, Loss,
    Message, NvtxEvent, NvtxPop, Process, Reader, Record, Status, StopCode, StreamEntry, Text, TextEntry,
    WITH_WINDOWS, Window, WindowCause, WireError,
};

/// A capture of `frames` frames with a few records each, and an end when asked for.
fn capture(frames: u64, ended: bool) -> (Vec<u8>, usize) {
    let mut bytes = Header::new(7, 1_000, 5).encode().to_vec();
    let mut frame = FrameBuilder::new();
    let mut records = 0;
    for number in 0..frames {
        for record in sample(number) {
            frame.put(&record);
            records += 1;
        }
        bytes.extend_from_slice(frame.close());
    }
    if ended {
        frame.put(&Record::End(End { how: 1, at: 99 }));
        records += 1;
        bytes.extend_from_slice(frame.close());
    }
    (bytes, records)
}

fn sample(number: u64) -> Vec<Record<'static>> {
    let long: &'static [u8] = &[b'k'; 700];
    vec![
        Record::Process(Process { pid: 7, parent: 1, at: number, name: Text(b"python3") }),
        Record::TextEntry(TextEntry { id: 1, text: Text(long) }),
        Record::LaunchShape(LaunchShape {
            id: 1,
            name: 1,
            grid: [1, 2, 3],
            block: [4, 5, 6],
            registers: 32,
            static_shared: 48,
            dynamic_shared: 96,
            local: 0,
        }),
        Record::StreamEntry(StreamEntry { id: 1, device: 0, context: 1, stream: 7 }),
        Record::Kernel(Kernel {
            shape: 1,
            stream_id: 1,
            correlation: 5,
            graph: 0,
            start: number,
            end: number + 3,
            node: u64::MAX,
        }),
        Record::Call(Call { api: 1 << 31 | 307, thread: 9, correlation: 5, result: 0, start: 1, end: 2 }),
        Record::NvtxEvent(NvtxEvent {
            kind: EventKind::Push,
            tid: 3,
            domain: 1,
            at: number,
            range: 0,
            category: 0,
            payload_kind: 0,
            payload: 0,
            message: Message::Inline(Text("d\u{e9}code".as_bytes())),
        }),
        Record::NvtxPop(NvtxPop { tid: 3, domain: 1, at: number + 1 }),
        Record::Loss(Loss { count: 3, id: Text(b"x"), detail: Text(b"") }),
    ]
}

/// Reads everything; the records as text, and how it ended.
fn read(bytes: &[u8]) -> Result<(Vec<String>, Ending), WireError> {
    let mut reader = Reader::open(bytes)?;
    let mut seen = Vec::new();
    while let Some(records) = reader.next_frame()? {
        seen.extend(records.map(|record| format!("{record:?}")));
    }
    Ok((seen, reader.ending().expect("known at the end")))
}

#[test]
fn records_come_back_as_they_went_in() {
    let (bytes, count) = capture(3, true);
    let (seen, ending) = read(&bytes).unwrap();
    assert_eq!(seen.len(), count);
    let expected: Vec<String> = (0..3).flat_map(sample).map(|record| format!("{record:?}")).collect();
    assert_eq!(seen[..count - 1], expected[..]);
    assert_eq!(ending, Ending::Complete { how: 1 });
}

#[test]
fn a_capture_without_an_end_is_cut() {
    let (bytes, count) = capture(2, false);
    let (seen, ending) = read(&bytes).unwrap();
    assert_eq!(seen.len(), count);
    assert_eq!(ending, Ending::Cut { at: bytes.len() as u64, why: CutReason::NoEnd });
}

#[test]
fn every_length_reads_up_to_its_last_whole_frame() {
    let (whole, _) = capture(3, true);
    let mut boundaries = vec![HEADER_LEN];
    for frames in 1..=3 {
        boundaries.push(capture(frames, false).0.len());
    }
    for length in HEADER_LEN..whole.len() {
        let (seen, ending) = read(&whole[..length]).unwrap();
        let frames = boundaries.iter().filter(|&&end| end <= length).count() - 1;
        assert_eq!(seen.len(), frames * sample(0).len(), "cut at {length}");
        let why = if boundaries.contains(&length) { CutReason::NoEnd } else { CutReason::Torn };
        assert_eq!(ending, Ending::Cut { at: boundaries[frames] as u64, why }, "cut at {length}");
    }
    for length in 0..HEADER_LEN {
        assert!(read(&whole[..length]).is_err());
    }
}

#[test]
fn a_full_disk_is_told_from_a_kill() {
    let (mut bytes, _) = capture(2, false);
    let status = Status { code: StopCode::WriteFailed, errno: 28, at_ns: 9, lost: 4 };
    let (at, patch) = status.encode();
    bytes[at as usize..at as usize + patch.len()].copy_from_slice(&patch);
    let (_, ending) = read(&bytes).unwrap();
    assert!(matches!(ending, Ending::Cut { why: CutReason::WriteFailed(28), .. }));
    assert_eq!(Reader::open(&bytes[..]).unwrap().header().status, Some(status));
}

#[test]
fn a_missing_frame_is_noticed() {
    let (bytes, _) = capture(3, true);
    let first = capture(1, false).0.len();
    let second = capture(2, false).0.len();
    let mut gap = bytes[..first].to_vec();
    gap.extend_from_slice(&bytes[second..]);
    let (_, ending) = read(&gap).unwrap();
    assert_eq!(ending, Ending::Cut { at: first as u64, why: CutReason::Damaged });
}

#[test]
fn unknown_tags_and_longer_records_are_taken() {
    let mut frame = FrameBuilder::new();
    frame.put_encoded(&[200, 3, 1, 2, 3]);
    // A pop with two bytes more than this version knows.
    let mut pop = vec![19, 18];
    pop.extend_from_slice(&[1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 255, 255]);
    frame.put_encoded(&pop);
    frame.put_encoded(&[19, 2, 0, 0]);
    let mut bytes = Header::new(1, 2, 3).encode().to_vec();
    bytes.extend_from_slice(frame.close());
    let (seen, _) = read(&bytes).unwrap();
    assert_eq!(seen[0], "Unknown(200)");
    assert_eq!(seen[1], format!("{:?}", Record::NvtxPop(NvtxPop { tid: 1, domain: 2, at: 3 })));
    assert_eq!(seen[2], "Malformed(19)");
}

#[test]
fn windows_round_trip_and_raise_the_version() {
    let window = |on, cause: WindowCause, at| Record::Window(Window { on, cause: cause.to_u8(), at });
    let edges = [window(1, WindowCause::Begin, 5), window(0, WindowCause::Request, 9)];
    let mut frame = FrameBuilder::new();
    edges.iter().for_each(|edge| frame.put(edge));
    let mut header = Header::new(1, 2, 3);
    assert_eq!(header.version, 1, "a capture without windows suits every reader");
    header.version = WITH_WINDOWS;
    let mut bytes = header.encode().to_vec();
    bytes.extend_from_slice(frame.close());
    assert_eq!(Reader::open(&bytes[..]).unwrap().header().version, 2);
    let expected: Vec<String> = edges.iter().map(|edge| format!("{edge:?}")).collect();
    assert_eq!(read(&bytes).unwrap().0, expected);
}

proptest! {
    #[test]
    fn one_flipped_bit_never_changes_a_record(at in 0usize..4000, bit in 0u8..8) {
        let (mut bytes, _) = capture(4, true);
        let (before, _) = read(&bytes).unwrap();
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        match read(&bytes) {
            Ok((after, ending)) => {
                prop_assert!(after.len() <= before.len());
                prop_assert_eq!(&after[..], &before[..after.len()]);
                if after.len() < before.len() {
                    let cut = matches!(ending, Ending::Cut { .. });
                    prop_assert!(cut);
                }
            }
            Err(_) => prop_assert!(at < HEADER_LEN),
        }
    }

    #[test]
    fn no_bytes_make_the_reader_fail(mut bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let _ = read(&bytes);
        let mut headed = Header::new(1, 2, 3).encode().to_vec();
        headed.append(&mut bytes);
        prop_assert!(read(&headed).is_ok());
    }

    #[test]
    fn no_payload_makes_the_reader_fail(payload in proptest::collection::vec(any::<u8>(), 1..600)) {
        let mut frame = FrameBuilder::new();
        frame.put_encoded(&payload);
        let mut bytes = Header::new(1, 2, 3).encode().to_vec();
        bytes.extend_from_slice(frame.close());
        prop_assert!(read(&bytes).is_ok());
    }
}
