//! One secret in every place of a run and in every encoding, known only by its hash.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use roofgap_wire::{FrameBuilder, Header, Host, Record, Text};
use rusqlite::Connection;

use super::remembered::{self, RememberedSecrets};
use super::*;
use crate::run_dir::RunRef;
use roofgap_base::exit::Exit;

const SECRET: &str = "S3cr3t'p@ss w+rd-42";

/// The secret in eight encodings.
fn encodings() -> Vec<(&'static str, String)> {
    vec![
        ("plain", SECRET.to_owned()),
        ("shell", r"S3cr3t'\''p@ss w+rd-42".to_owned()),
        ("escaped", r"S3cr3t\'p\@ss\ w\+rd-42".to_owned()),
        ("URL", "S3cr3t%27p%40ss%20w%2Brd-42".to_owned()),
        ("base64", "UzNjcjN0J3BAc3MgdytyZC00Mg==".to_owned()),
        ("base64 of user:secret", "dTpTM2NyM3QncEBzcyB3K3JkLTQy".to_owned()),
        ("hexadecimal", "533363723374277040737320772b72642d3432".to_owned()),
        ("UTF-16", SECRET.chars().flat_map(|c| [c, '\0']).collect()),
    ]
}

/// Files that stay in the archive, cleaned.
const TEXTS: [&str; 22] = [
    "session.json",
    "env.json",
    "config.yaml",
    "inputs.yaml",
    "metrics.json",
    "report.md",
    "kernels.md",
    "operators.md",
    "stakeholder_summary.md",
    "report.html",
    "baseline/program.out.log",
    "baseline/program.err.log",
    "baseline/workload.json",
    "nsys/profile.out.log",
    "nsys/export.err.log",
    "nsys/summary_cuda_gpu_kern_sum.csv",
    "ncu/plan.json",
    "ncu/decode_raw.csv",
    "torch/operators.json",
    "torch/trace.json.gz",
    "scripts/hf_driver.py",
    "model/config.json",
];

/// Files that cannot be cleaned.
const OTHERS: [&str; 5] =
    ["nsys/run.nsys-rep", "ncu/decode.ncu-rep", "program/result.bin", "tables/kernels.parquet", "core.1234"];

fn write(root: &Path, name: &str, bytes: &[u8]) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Plants the secret in the tables of a real export: seven places.
fn plant_in_timeline(path: &Path) {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/nsys-versions/nsys-2023.4.4-cpu-nvtx.sqlite.gz");
    let mut bytes = Vec::new();
    GzDecoder::new(File::open(fixture).unwrap()).read_to_end(&mut bytes).unwrap();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
    let db = Connection::open(path).unwrap();
    for (at, (_, form)) in encodings().iter().enumerate() {
        let run = |sql: &str| db.execute(sql, [form]).unwrap();
        assert_eq!(run(&format!("UPDATE NVTX_EVENTS SET text = 'load ' || ?1 WHERE rowid = {}", at + 1)), 1);
        assert_eq!(run(&format!("UPDATE NVTX_EVENTS SET jsonText = ?1 WHERE rowid = {}", at + 1)), 1);
        run(&format!("INSERT INTO StringIds VALUES ({}, ?1)", 900_000 + at));
        // Across the pages of the file.
        let long =
            format!("INSERT INTO StringIds VALUES ({}, ?1 || hex(zeroblob(4000)) || ?1)", 910_000 + at);
        run(&long);
        db.execute(&format!("UPDATE NVTX_EVENTS SET textId = {} WHERE rowid = {}", 900_000 + at, at + 9), [])
            .unwrap();
        db.execute(
            &format!("UPDATE NVTX_EVENTS SET textId = {} WHERE rowid = {}", 910_000 + at, at + 17),
            [],
        )
        .unwrap();
        run("INSERT INTO META_DATA_CAPTURE VALUES ('note', ?1)");
        run("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (0, 'Local', 'note', 1, ?1)");
        run(&format!("UPDATE PROCESSES SET name = '/bin/' || ?1 WHERE rowid = {}", at + 1));
    }
}

fn plant(root: &Path) {
    let lines: Vec<String> =
        encodings().into_iter().map(|(name, form)| format!("{name}: {form} end")).collect();
    for name in TEXTS {
        let bytes = if name.contains(".json") {
            serde_json::to_vec(&serde_json::json!({"lines": lines, "kept": 1})).unwrap()
        } else {
            lines.join("\n").into_bytes()
        };
        let bytes = if name.ends_with(".gz") { packed(&bytes) } else { bytes };
        write(root, name, &bytes);
    }
    for name in OTHERS {
        write(root, name, lines.join("\n").as_bytes());
    }
    write(root, &format!("baseline/{SECRET}.log"), b"a secret as a name");
    plant_in_timeline(&root.join("nsys/run.sqlite"));
    let sqlite = fs::read(root.join("nsys/run.sqlite")).unwrap();
    write(root, "nsys/older.sqlite.gz", &packed(&sqlite));
    let variables = [("DB_PASSWORD".to_owned(), SECRET.to_owned())];
    let remembered = RememberedSecrets::of(variables).unwrap().unwrap();
    write(root, remembered::FILE, &serde_json::to_vec(&remembered).unwrap());
}

/// Every file of an archive, uncompressed.
fn unpacked(pack: &Path) -> Vec<(String, Vec<u8>)> {
    let mut archive = tar::Archive::new(GzDecoder::new(File::open(pack).unwrap()));
    let entries = archive.entries().unwrap();
    entries
        .map(|entry| {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().display().to_string();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            if name.ends_with(".gz") {
                let mut plain = Vec::new();
                GzDecoder::new(bytes.as_slice()).read_to_end(&mut plain).unwrap();
                bytes = plain;
            }
            (name, bytes)
        })
        .collect()
}

/// Path, size and time of every file below a folder.
fn listing(root: &Path) -> Vec<(PathBuf, u64, std::time::SystemTime)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(root).unwrap() {
        let entry = entry.unwrap();
        let facts = entry.metadata().unwrap();
        if facts.is_dir() {
            all.extend(listing(&entry.path()));
        }
        all.push((entry.path(), facts.len(), facts.modified().unwrap()));
    }
    all.sort();
    all
}

#[test]
fn no_place_and_no_encoding_reaches_the_archive() {
    let base = tempfile::tempdir().unwrap();
    let root = base.path().join("20260101-000000");
    plant(&root);
    let before = listing(&root);
    let pack = base.path().join("share.tar.gz");
    // Nothing is known of the machine but what the run remembers.
    let mut props = ScrubProps { pack: Some(pack.clone()), dry_run: true, ..ScrubProps::default() };
    let run = RunRef::at(&root);
    let planned = scrub(&run, &props).unwrap();
    assert_eq!(listing(&root), before, "a dry run changes nothing");
    assert!(!pack.exists());
    props.dry_run = false;
    let done = scrub(&run, &props).unwrap();
    assert_eq!(planned.removed, done.removed);
    assert_eq!(planned.changed, done.changed);
    assert_eq!(planned.cleaned, done.cleaned);
    assert_eq!(planned.not_clean, done.not_clean);
    assert!(planned.dry_run && planned.pack.is_none());

    let files = unpacked(&pack);
    for name in TEXTS.iter().chain(&["nsys/run.sqlite", "nsys/older.sqlite.gz"]) {
        let path = format!("20260101-000000/{name}");
        assert!(files.iter().any(|(name, _)| *name == path), "{name} is missing: {:?}", done.not_clean);
        assert!(
            done.cleaned.iter().any(|file| file.path == Path::new(name)),
            "nothing was removed from {name}"
        );
    }
    for (name, bytes) in &files {
        for (encoding, form) in encodings() {
            let in_json = serde_json::to_string(&form).unwrap();
            let in_json = in_json.trim_matches('"');
            for form in [form.as_str(), in_json] {
                // The first half gives a secret away as well.
                let half = form.get(..form.len() / 2).unwrap();
                assert!(
                    memchr::memmem::find(bytes, half.as_bytes()).is_none(),
                    "{name} holds the secret in the encoding {encoding}"
                );
            }
        }
    }
    let left: Vec<String> = done.not_clean.iter().map(|file| file.path.display().to_string()).collect();
    for name in OTHERS.iter().chain(&[remembered::FILE, "baseline/<removed>.log"]) {
        assert!(left.iter().any(|path| path == name), "{name} is not named: {left:?}");
    }
    assert_eq!(done.exit(), Exit::Partial, "a name cannot be cleaned");
    assert!(
        text_of(&planned).contains("report.md: the variable DB_PASSWORD, 8 times"),
        "{}",
        text_of(&planned)
    );
}

fn text_of(outcome: &ScrubOutcome) -> String {
    super::super::text::scrubbed(outcome, Default::default())
}

#[test]
fn a_native_capture_with_a_remembered_secret_or_unread_bytes_is_left_out() {
    let base = tempfile::tempdir().unwrap();
    let root = base.path().join("20260101-000000");
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/native/stand-in.rgcap");
    let capture = fs::read(&fixture).unwrap();
    write(&root, "session.json", b"{}");
    write(&root, "native/1.rgcap", &capture);
    write(&root, "native/2.rgcap", &[capture.as_slice(), b"more"].concat());
    let mut texts = Vec::new();
    roofgap_trace::native::frames(&fixture, &mut |frame| {
        let words = frame.split(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_');
        texts.extend(words.filter(|word| word.len() >= 12).map(<[u8]>::to_vec));
    })
    .unwrap();
    let text = String::from_utf8(texts.pop().unwrap()).unwrap();
    let why = |name: &str| {
        let outcome = scrub(&RunRef::at(&root), &ScrubProps::default()).unwrap();
        let file = outcome.not_clean.into_iter().find(|file| file.path == Path::new(name));
        file.map(|file| file.why)
    };
    assert_eq!(why("native/1.rgcap"), None);
    assert!(why("native/2.rgcap").unwrap().contains("damaged after"), "{:?}", why("native/2.rgcap"));
    let remembered = RememberedSecrets::of([("API_KEY".to_owned(), text)]).unwrap().unwrap();
    write(&root, remembered::FILE, &serde_json::to_vec(&remembered).unwrap());
    assert_eq!(why("native/1.rgcap").as_deref(), Some("still holds the variable API_KEY"));
}

#[test]
fn unreadable_hashes_are_named() {
    let base = tempfile::tempdir().unwrap();
    let root = base.path().join("20260101-000000");
    write(&root, "session.json", b"{}");
    write(&root, remembered::FILE, b"{");
    let outcome = scrub(&RunRef::at(&root), &ScrubProps::default()).unwrap();
    assert_eq!(outcome.exit(), Exit::Partial);
    assert!(outcome.not_clean[0].why.contains("not readable"), "{:?}", outcome.not_clean);
}

#[test]
fn secrets_of_every_node_are_searched_everywhere() {
    let base = tempfile::tempdir().unwrap();
    let root = base.path().join("20260101-000000");
    write(&root, "session.json", b"{}");
    // The secret of one node is the begin of that of another, and two nodes share one.
    let nodes = [
        ("a", "cobra-lily-77"),
        ("b", "cobra-lily-77-and-more"),
        ("c", "swordfish/12"),
        ("d", "swordfish/12"),
    ];
    for (node, secret) in nodes {
        let remembered = RememberedSecrets::of([("DB_PASSWORD".to_owned(), secret.to_owned())]);
        let remembered = serde_json::to_vec(&remembered.unwrap().unwrap()).unwrap();
        write(&root, &format!("nodes/{node}/{}", remembered::FILE), &remembered);
        let texts: Vec<&str> = nodes.iter().map(|(_, secret)| *secret).collect();
        let log = format!("nodes/{node}/baseline/program.err.log");
        write(&root, &log, texts.join(" and ").as_bytes());
    }
    let pack = base.path().join("share.tar.gz");
    let props = ScrubProps { pack: Some(pack.clone()), ..ScrubProps::default() };
    let outcome = scrub(&RunRef::at(&root), &props).unwrap();
    assert_eq!(outcome.removed["the variable DB_PASSWORD"], 16, "{outcome:?}");
    let files = unpacked(&pack);
    let logs: Vec<&(String, Vec<u8>)> = files.iter().filter(|(name, _)| name.ends_with(".log")).collect();
    assert_eq!(logs.len(), nodes.len(), "{:?}", outcome.not_clean);
    for (name, bytes) in logs {
        let text = String::from_utf8_lossy(bytes);
        assert_eq!(text, ["<removed>"; 4].join(" and "), "{name}");
    }
}

#[test]
fn hashes_of_secrets_of_an_impossible_length_are_refused() {
    let base = tempfile::tempdir().unwrap();
    let root = base.path().join("20260101-000000");
    write(&root, "session.json", b"{}");
    write(&root, "report.md", b"some text");
    let own = RememberedSecrets::of([("API_KEY".to_owned(), "k1".repeat(60_000))]);
    let own = serde_json::to_value(own.unwrap().unwrap()).unwrap();
    for (bytes, refused) in [(None, false), (Some(u64::MAX), true), (Some(1 << 40), true), (Some(0), true)] {
        let mut hashes = own.clone();
        if let Some(bytes) = bytes {
            hashes["secrets"][0]["bytes"] = bytes.into();
        }
        write(&root, remembered::FILE, &serde_json::to_vec(&hashes).unwrap());
        let outcome = scrub(&RunRef::at(&root), &ScrubProps::default()).unwrap();
        let named = outcome.not_clean.iter().find(|file| !file.by_kind);
        let why = named.map(|file| file.why.as_str()).unwrap_or_default();
        assert_eq!(why.contains("but expected 6 to"), refused, "{bytes:?}: {outcome:?}");
    }
}

#[test]
fn compressed_captures_and_older_segments_are_cleaned_and_packed() {
    let base = tempfile::tempdir().unwrap();
    let root = base.path().join("20260101-000000");
    let capture = |host: &str| {
        let mut frame = FrameBuilder::new();
        let name = Text(host.as_bytes());
        frame.put(&Record::Host(Host { name }));
        let mut bytes = Header::new(1, 2, 3).encode().to_vec();
        bytes.extend_from_slice(frame.close());
        bytes
    };
    write(&root, "session.json", b"{}");
    let hosts = [
        ("native/1.rgcap.gz", "node-of-a-cluster"),
        ("native/1.rgcap.old.gz", "other-of-a-cluster"),
        ("native/2.rgcap.old", "third-of-a-cluster"),
    ];
    for (name, host) in hosts {
        let bytes = capture(host);
        let is_packed = name.ends_with(".gz");
        write(&root, name, &if is_packed { packed(&bytes) } else { bytes });
    }
    let notes = hosts.map(|(_, host)| host).join(" ");
    write(&root, "notes.md", notes.as_bytes());
    let pack = base.path().join("share.tar.gz");
    let props = ScrubProps { pack: Some(pack.clone()), ..ScrubProps::default() };
    let outcome = scrub(&RunRef::at(&root), &props).unwrap();
    assert_eq!(outcome.exit(), Exit::Done, "{:?}", outcome.not_clean);
    let files = unpacked(&pack);
    for (name, bytes) in &files {
        assert!(memchr::memmem::find(bytes, b"-of-a-cluster").is_none(), "{name} has a host");
    }
    for (name, _) in hosts {
        assert!(files.iter().any(|(packed, _)| packed.ends_with(name)), "{name}: {:?}", outcome.not_clean);
        let path = root.join(name);
        assert_eq!(roofgap_trace::native::host(&path).unwrap(), None, "{name}");
        let is_packed = fs::read(&path).unwrap().starts_with(&[0x1f, 0x8b]);
        assert_eq!(is_packed, name.ends_with(".gz"), "{name} stays as it was");
    }
}
