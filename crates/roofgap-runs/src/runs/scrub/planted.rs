//! Secrets in every place of a run and in every encoding: one that is known as a variable of this machine, and forty kinds that are
//! known by their shape alone.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use roofgap_analyze::{About, Options, Reason, analyze};
use roofgap_trace::Trace;
use roofgap_wire::{FrameBuilder, Header, Host, Record, Text, TextEntry};

use super::*;

const SECRET: &str = "S3cr3t'p@ss w+rd-42";

/// The secret in the encodings that documents have.
fn encodings() -> Vec<(&'static str, String)> {
    vec![
        ("plain", SECRET.to_owned()),
        ("shell", r"S3cr3t'\''p@ss w+rd-42".to_owned()),
        ("URL", "S3cr3t%27p%40ss%20w%2Brd-42".to_owned()),
        ("base64", "UzNjcjN0J3BAc3MgdytyZC00Mg==".to_owned()),
        ("base64 of user:secret", "dTpTM2NyM3QncEBzcyB3K3JkLTQy".to_owned()),
        ("hexadecimal", "533363723374277040737320772b72642d3432".to_owned()),
    ]
}

/// Documents that stay in the archive, cleaned.
const DOCUMENTS: [&str; 11] = [
    "session.json",
    "env.json",
    "config.yaml",
    "inputs.yaml",
    "metrics.json",
    "baseline/workload.json",
    "nsys/summary_cuda_gpu_kern_sum.csv",
    "ncu/plan.json",
    "ncu/decode_raw.csv",
    "torch/operators.json.gz",
    "model/config.json",
];

/// Reports, which are written again.
const REPORTS: [&str; 5] =
    ["report.md", "kernels.md", "operators.md", "stakeholder_summary.md", "report.html"];

/// Files that are left out.
const OTHERS: [&str; 12] = [
    "nsys/run.nsys-rep",
    "nsys/run.sqlite",
    "nsys/profile.out.log",
    "nsys/export.err.log",
    "ncu/decode.ncu-rep",
    "baseline/program.out.log",
    "torch/trace.json.gz",
    "scripts/hf_driver.py",
    "program/result.bin",
    "program/workload.json",
    "tables/kernels.parquet",
    "core.1234",
];

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

fn plant(root: &Path) {
    let lines: Vec<String> =
        encodings().into_iter().map(|(name, form)| format!("{name}: {form} end")).collect();
    for name in DOCUMENTS {
        let bytes = match name {
            "metrics.json" => {
                let reasons = lines.iter().map(|line| Reason::new(About::Sources, line.clone()));
                let mut analysis = analyze(&Trace::default(), &Options::default()).analysis;
                analysis.reasons = reasons.collect();
                serde_json::to_vec(&analysis).unwrap()
            }
            _ if name.contains(".json") => {
                serde_json::to_vec(&serde_json::json!({"lines": lines, "kept": 1})).unwrap()
            }
            _ => lines.join("\n").into_bytes(),
        };
        let bytes = if name.ends_with(".gz") { packed(&bytes) } else { bytes };
        write(root, name, &bytes);
    }
    for name in OTHERS.iter().chain(&REPORTS) {
        write(root, name, lines.join("\n").as_bytes());
    }
    write(root, &format!("baseline/{SECRET}.log"), b"a secret as a name");
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
    let variables = vec![("DB_PASSWORD".to_owned(), SECRET.to_owned())];
    let mut props =
        ScrubProps { variables, pack: Some(pack.clone()), dry_run: true, ..ScrubProps::default() };
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
    for name in DOCUMENTS.iter().chain(&REPORTS) {
        let path = format!("20260101-000000/{name}");
        assert!(files.iter().any(|(name, _)| *name == path), "{name} is missing: {:?}", done.not_clean);
        assert!(done.changed.contains(&PathBuf::from(name)), "nothing was removed from {name}");
    }
    assert_eq!(files.len(), DOCUMENTS.len() + REPORTS.len() + 1, "{:?}", done.not_clean);
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
    for name in OTHERS.iter().chain(&["baseline/<removed>.log"]) {
        assert!(left.iter().any(|path| path == name), "{name} is not named: {left:?}");
    }
    assert_eq!(done.exit(), Exit::Partial, "a name cannot be cleaned");
    let text = super::super::text::scrubbed(&planned, Default::default());
    assert!(text.contains("env.json: the variable DB_PASSWORD, 6 times"), "{text}");
}

/// A text of letters that is different for each number and has no shape.
fn letters(number: usize, length: usize) -> String {
    let letter =
        |at: usize| char::from(b"QwErTyUiOpAsDfGhJkLzXcVbNm"[(number * 7 + at * at * 5 + at * 11) % 26]);
    (0..length).map(letter).collect()
}

/// Kinds of secrets that have a prefix, with the number of letters after it.
const TOKENS: [(&str, usize); 19] = [
    ("hf_", 34),
    ("nvapi-", 64),
    ("ghp_", 36),
    ("gho_", 36),
    ("ghu_", 36),
    ("ghs_", 36),
    ("ghr_", 36),
    ("github_pat_", 60),
    ("glpat-", 20),
    ("xoxb-", 40),
    ("xoxp-", 40),
    ("AIza", 35),
    ("ya29.", 60),
    ("npm_", 36),
    ("pypi-", 80),
    ("dckr_pat_", 27),
    ("gsk_", 52),
    ("hvs.", 24),
    ("sk-1", 40),
];

/// Kinds of secrets that have a name; `@` is the place of the secret.
const NAMED: [&str; 21] = [
    "PGPASSWORD=@",
    "export DB_PASS=@",
    "MYSQL_PWD=@ mysql",
    "AccountName=x;AccountKey=@;EndpointSuffix=y",
    "{\"accessToken\": \"@\"}",
    "{\"clientSecret\":\"@\"}",
    "Authorization: Basic @",
    "Authorization: Bearer @",
    "Cookie: session=@; other=1",
    "Set-Cookie: id=@",
    "X-Api-Key: @",
    "serve --api-key @ --port 8000",
    "serve --password=@",
    "postgres://anna:@@db/x",
    "AWS_SECRET_ACCESS_KEY=@",
    "WANDB_API_KEY=@",
    "refresh_token=@",
    "private_key: @",
    "passphrase=@",
    "credentials=@",
    "-----BEGIN PRIVATE KEY-----\n@\n-----END PRIVATE KEY-----",
];

/// Returns a text with a secret of each kind, and the secret.
fn kinds() -> Vec<(String, String)> {
    let token = |(number, (prefix, length)): (usize, &(&str, usize))| {
        let secret = format!("{prefix}{}", letters(number, *length));
        (secret.clone(), secret)
    };
    let named = |(number, text): (usize, &&str)| {
        let secret = letters(100 + number, 24);
        // In a login another sign follows.
        let at = text.find('@').unwrap();
        (format!("{}{secret}{}", &text[..at], &text[at + 1..]), secret)
    };
    TOKENS.iter().enumerate().map(token).chain(NAMED.iter().enumerate().map(named)).collect()
}

/// An encoding of a text.
type Encode = fn(&str) -> String;

const ENCODINGS: [(&str, Encode); 10] = [
    ("plain", |text| text.to_owned()),
    ("a line", |text| format!("first\n{text}\nlast")),
    ("coloured", |text| format!("\u{1b}[1;31m{text}\u{1b}[0m")),
    ("JSON", |text| serde_json::json!({ "log": format!("one\n{text}\ntwo") }).to_string()),
    ("shell", |text| format!("sh -c '{}'", text.replace('\'', r"'\''"))),
    ("URL", |text| {
        let encode = |byte: u8| match char::from(byte) {
            c if c.is_ascii_alphanumeric() => c.to_string(),
            _ => format!("%{byte:02X}"),
        };
        format!("https://host/?q={}", text.bytes().map(encode).collect::<String>())
    }),
    ("base64", |text| format!("data: {}", roofgap_base::text::base64(text.as_bytes()))),
    ("base64 of URLs", |text| {
        let text = roofgap_base::text::base64(text.as_bytes());
        text.trim_end_matches('=').replace('+', "-").replace('/', "_")
    }),
    ("hexadecimal", |text| roofgap_base::text::hex(text.as_bytes())),
    ("gzip", |text| text.to_owned()),
];

/// Writes a run with texts in every document and among the names of a capture.
fn plant_texts(root: &Path, texts: &[String], is_packed: bool) {
    let as_written = |bytes: Vec<u8>| if is_packed { packed(&bytes) } else { bytes };
    for name in DOCUMENTS {
        let bytes = match name {
            "metrics.json" => {
                let reasons = texts.iter().map(|text| Reason::new(About::Sources, text.clone()));
                let mut analysis = analyze(&Trace::default(), &Options::default()).analysis;
                analysis.reasons = reasons.collect();
                serde_json::to_vec(&analysis).unwrap()
            }
            _ if name.ends_with(".csv") => texts.join("\n").into_bytes(),
            // Also YAML.
            _ => serde_json::to_vec(&serde_json::json!({ "texts": texts })).unwrap(),
        };
        let bytes = if name.ends_with(".gz") { packed(&bytes) } else { as_written(bytes) };
        write(root, name, &bytes);
    }
    for name in REPORTS {
        write(root, name, &as_written(texts.join("\n").into_bytes()));
    }
    for (number, text) in texts.iter().enumerate() {
        let mut frame = FrameBuilder::new();
        frame.put(&Record::TextEntry(TextEntry { id: 1, text: Text(text.as_bytes()) }));
        let mut bytes = Header::new(1, 2, 3).encode().to_vec();
        bytes.extend_from_slice(frame.close());
        write(root, &format!("native/{number}.rgcap"), &as_written(bytes));
    }
}

#[test]
fn no_kind_of_secret_in_any_place_and_encoding_reaches_the_archive() {
    let kinds = kinds();
    assert_eq!((kinds.len(), DOCUMENTS.len() + 1, ENCODINGS.len()), (40, 12, 10));
    for (encoding, encode) in ENCODINGS {
        let base = tempfile::tempdir().unwrap();
        let root = base.path().join("20260101-000000");
        let texts: Vec<String> = kinds.iter().map(|(text, _)| encode(text)).collect();
        plant_texts(&root, &texts, encoding == "gzip");
        let pack = base.path().join("share.tar.gz");
        let props = ScrubProps { pack: Some(pack.clone()), ..ScrubProps::default() };
        let done = scrub(&RunRef::at(&root), &props).unwrap();
        let files = unpacked(&pack);
        for name in DOCUMENTS {
            let path = format!("20260101-000000/{name}");
            let is_packed = files.iter().any(|(packed, _)| *packed == path);
            assert!(is_packed, "{encoding}: {name} is missing: {:?}", done.not_clean);
        }
        for (name, bytes) in &files {
            assert!(!name.ends_with(".rgcap"), "{encoding}: {name}");
            for ((_, secret), text) in kinds.iter().zip(&texts) {
                // A part gives a secret away as well.
                let (form, whole) = (text.as_bytes(), secret.as_bytes());
                for part in [&whole[..whole.len() / 2], &whole[whole.len() / 2..], &form[form.len() / 3..]] {
                    let part = &part[..part.len() * 2 / 3];
                    assert!(memchr::memmem::find(bytes, part).is_none(), "{encoding}: {name}: {text}");
                }
            }
        }
    }
}

#[test]
fn content_that_cannot_be_searched_is_left_out() {
    let base = tempfile::tempdir().unwrap();
    let root = base.path().join("20260101-000000");
    write(&root, "session.json", b"{}");
    let gzip = packed(&packed(SECRET.as_bytes()));
    let contents = [
        &gzip,
        &b"\x28\xb5\x2f\xfdx"[..],
        b"\xfd7zXZ\0",
        b"BZh9",
        b"PK\x03\x04",
        b"\x04\x22\x4d\x18",
        b"PAR1",
    ];
    for (number, content) in contents.iter().enumerate() {
        write(&root, &format!("ncu/{number}_raw.csv"), content);
        write(&root, &format!("baseline/{number}.log"), content);
    }
    let include = (0..contents.len()).map(|number| format!("baseline/{number}.log").into()).collect();
    let outcome = scrub(&RunRef::at(&root), &ScrubProps { include, ..ScrubProps::default() }).unwrap();
    let inside = outcome.not_clean.iter().filter(|file| file.why.contains("compressed inside"));
    assert_eq!(inside.count(), 2 * contents.len(), "{:?}", outcome.not_clean);
}

#[test]
fn a_native_capture_with_a_secret_or_unread_bytes_is_left_out() {
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
    let mut props = ScrubProps::default();
    let why = |name: &str, props: &ScrubProps| {
        let outcome = scrub(&RunRef::at(&root), props).unwrap();
        let file = outcome.not_clean.into_iter().find(|file| file.path == Path::new(name));
        file.map(|file| file.why)
    };
    assert_eq!(why("native/1.rgcap", &props), None);
    let damaged = why("native/2.rgcap", &props).unwrap();
    assert!(damaged.contains("damaged after"), "{damaged}");
    props.variables.push(("API_KEY".to_owned(), text));
    let found = why("native/1.rgcap", &props);
    assert_eq!(found.as_deref(), Some("still holds the variable API_KEY"));
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
    write(&root, "inputs.yaml", notes.as_bytes());
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
