//! What must be refused, and in which words.

use super::*;
use proptest::prelude::*;

const GOOD: &str = r#"{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1}"#;

/// The message for a text, without the name of the file.
fn message(text: &str) -> String {
    let message = read_text(text).expect_err("this must not be read").to_string();
    message.split_once(": ").map_or(message.clone(), |(_, rest)| rest.to_owned())
}

#[test]
fn other_documents_are_not_recognised() {
    for (text, found) in [
        (String::new(), "found an empty file"),
        (" \n ".into(), "found nothing but white space"),
        ("hello".into(), "expected a value, found `hello`"),
        ("\0\0\0\0".into(), "at byte 0"),
        ("{}".into(), "found a JSON document without `traceEvents`"),
        (r#"{"a": {"traceEvents": []}}"#.into(), "found a JSON document without `traceEvents`"),
        ("[]".into(), "found a trace without events"),
        (r#"{"traceEvents": []}"#.into(), "found a trace without events"),
        ("[1, 2]".into(), "expected a trace event in braces, found `1, 2]`"),
        ("[".repeat(200_000), "expected a trace event in braces"),
        (
            r#"[{"ph": "X", "cat": "devtools", "name": "a"}]"#.into(),
            "found 1 trace events, none of a category",
        ),
        (
            r#"{"traceEvents": [
                {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:0"}},
                {"ph": "X", "pid": 1, "tid": 20, "ts": 1, "dur": 2, "name": "fusion"}, {}]}"#
                .into(),
            "found a trace of XLA (JAX or TensorFlow), which is not read",
        ),
        (
            r#"{"traceEvents": [
                {"ph": "M", "pid": 2, "name": "process_name", "args": {"name": "CPU HIP API"}},
                {"ph": "X", "pid": 2, "tid": 20, "ts": "1", "dur": "2", "name": "hipLaunchKernel", "args": {"BeginNs": "1"}}]}"#
                .into(),
            "found a trace of AMD's rocprof, which is not read",
        ),
    ] {
        let message = message(&text);
        assert!(message.starts_with("not a capture: expected a PyTorch profiler trace"), "{message}");
        assert!(message.contains(found), "{message}");
    }
}

#[test]
fn broken_documents_are_refused() {
    let deep = format!(r#"{{"args": {}1{}}}"#, "[".repeat(200_000), "]".repeat(200_000));
    for (text, what) in [
        (format!("[{GOOD}"), "the text ends at byte 81, in the middle of the document"),
        (format!("[{GOOD},"), "in the middle of the document"),
        (format!("[{GOOD},]"), "expected a trace event in braces, found `]`"),
        (format!("[{GOOD} {GOOD}]"), "expected a comma or a closing bracket"),
        (format!("[{GOOD}] x"), "expected the end of the file, found `x`"),
        (format!(r#"{{"traceEvents": [{GOOD}]"#), "in the middle of the document"),
        (format!(r#"{{"traceEvents": [{GOOD}]]"#), "expected a comma or a closing bracket"),
        (format!(r#"{{"traceEvents": [{GOOD}], "traceEvents": []}}"#), "expected one list of trace events"),
        (r#"{"traceEvents": {}}"#.into(), "expected a list of trace events"),
        (format!(r#"{{"baseTimeNanoseconds": 1e9, "traceEvents": [{GOOD}]}}"#), "expected a base time"),
        (format!("[{GOOD}, {deep}]"), "expected values nested at most 512 deep"),
        (format!(r#"{{"a": {}"#, "[".repeat(200_000)), "expected values nested at most 512 deep"),
        (format!(r#"[{GOOD}, {{"args": {{"a": 1]}}}}]"#), "expected a comma or a closing bracket"),
        (format!(r#"[{GOOD}, {{"args": {{"a": wrong}}}}]"#), "expected a value, found `wrong"),
        (format!(r#"[{GOOD}, {{"args" 1}}]"#), "expected a colon"),
    ] {
        let message = message(&text);
        assert!(message.starts_with("damaged or incomplete PyTorch profiler trace"), "{message}");
        assert!(message.contains(what), "{message}");
    }
}

#[test]
fn a_value_without_end_is_not_held_in_memory() {
    let endless = format!("[{GOOD}, {{\"name\": \"") + &"x".repeat(70 << 20);
    assert!(message(&endless).contains("does not end within 64 MiB"));
    let packed = gzip(&vec![b' '; 80 << 20]);
    let error = read_bytes(&packed, 1 << 20, 2).unwrap_err().to_string();
    assert!(error.contains("no event of the PyTorch profiler in the first 64 MiB"), "{error}");
}

#[test]
fn a_bomb_is_refused() {
    // One event again and again.
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(b"[").unwrap();
    let events = format!("{GOOD},").repeat(10_000);
    for _ in 0..90 {
        encoder.write_all(events.as_bytes()).unwrap();
    }
    let error = read_bytes(&encoder.finish().unwrap(), 1 << 20, 2).unwrap_err().to_string();
    assert!(error.contains("grows more than 200 times"), "{error}");
}

#[test]
fn cut_compressed_data_is_refused() {
    let packed = std::fs::read(fixture()).unwrap();
    for length in [2, 10, 11, 1000, packed.len() / 2, packed.len() - 9, packed.len() - 1] {
        let error = read_bytes(&packed[..length], 1 << 20, 2).unwrap_err().to_string();
        assert!(error.contains("damaged or incomplete"), "{length}: {error}");
    }
}

#[test]
fn what_is_not_a_file_is_said() {
    let folder = tempfile::tempdir().unwrap();
    for path in [folder.path().to_path_buf(), folder.path().join("missing.json")] {
        let error = crate::kineto::read(&path, &mut Trace::default()).unwrap_err();
        assert!(matches!(error, ReadError::Io { .. }), "{error}");
        assert!(error.to_string().contains(&*path.to_string_lossy()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn the_real_trace_cut_anywhere_is_refused(cut in any::<prop::sample::Index>()) {
        let text = fixture_text();
        let end = cut.index(text.len());
        let error = read_bytes(&text[..end], 1 << 16, 2).unwrap_err();
        let refused = matches!(error, ReadError::Damaged { .. } | ReadError::Unrecognised { .. });
        prop_assert!(refused, "{}", error);
    }

    #[test]
    fn changed_brackets_and_quotes_of_the_real_trace_are_noticed(
        at in any::<prop::sample::Index>(), byte in prop::sample::select(&b"{}[],:x"[..]),
    ) {
        let mut text = fixture_text();
        let places: Vec<usize> = structure(&text);
        let at = places[at.index(places.len())];
        prop_assume!(text[at] != byte);
        text[at] = byte;
        prop_assert!(read_bytes(&text, 1 << 16, 2).is_err());
    }

    #[test]
    fn changed_compressed_data_is_noticed(at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let mut packed = std::fs::read(fixture()).unwrap();
        // The header of the compressed data holds a time and a name, which change nothing.
        let at = 32 + at.index(packed.len() - 32);
        packed[at] ^= 1 << bit;
        prop_assert!(read_bytes(&packed, 1 << 16, 2).is_err());
    }

    #[test]
    fn any_bytes_are_answered(bytes in any::<Vec<u8>>(), open in prop::sample::select(vec!["", "[", "[{", "{\""])) {
        let mut text = open.as_bytes().to_vec();
        text.extend(bytes);
        let _ = read_bytes(&text, 16, 2);
    }
}

/// Where brackets, commas and colons stand outside of strings.
fn structure(text: &[u8]) -> Vec<usize> {
    let mut places = Vec::new();
    let (mut in_string, mut escaped) = (false, false);
    for (i, &byte) in text.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'}' | b'[' | b']' | b',' | b':' if !in_string => places.push(i),
            _ => {}
        }
    }
    places
}
