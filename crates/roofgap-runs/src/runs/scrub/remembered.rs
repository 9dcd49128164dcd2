//! Secrets of the machine that recorded a run, remembered as salted hashes, so that they are found later and elsewhere.
//!
//! `secrets.json` has the length, a fingerprint of the first bytes and the SHA-256 of every form of a secret. It is in no
//! archive, because a short secret can be guessed from its hash.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use roofgap_base::file::read_document;
use roofgap_base::text::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::encodings;
use super::shapes::Found;
use super::variables::is_secret;

/// File in the run that holds the hashes.
pub const FILE: &str = "secrets.json";

/// Schema of the file.
const SCHEMA: &str = "roofgap.secrets/1";

/// First bytes of a secret that its fingerprint covers. No secret is shorter.
const HEAD: usize = 6;

/// Longest form of a secret, bytes. A variable has at most 128 KiB on Linux, and no encoding makes it eight times as long.
const LONGEST: usize = 1 << 20;

/// The document `secrets.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RememberedSecrets {
    schema: String,
    /// Random bytes in hexadecimal, hashed before each secret.
    salt: String,
    secrets: Vec<SecretHash>,
}

/// Hash of one form of a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SecretHash {
    /// Name of the variable.
    variable: String,
    /// Length, bytes.
    bytes: usize,
    /// Keyed fingerprint of the first bytes. It selects the places of a text that are hashed.
    fingerprint: u16,
    /// SHA-256 of the salt and the form, in hexadecimal.
    sha256: String,
    /// True for a form that matches whole words only, such as a number.
    whole_word: bool,
}

impl RememberedSecrets {
    /// Hashes the secrets among variables; `None` where there are none.
    pub fn of(
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> io::Result<Option<RememberedSecrets>> {
        let mut salt = [0; 16];
        File::open("/dev/urandom")?.read_exact(&mut salt)?;
        let mut secrets = Vec::new();
        for (variable, value) in variables.into_iter().filter(|(name, value)| is_secret(name, value)) {
            let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
            let forms = if is_number { vec![value] } else { encodings::of(&value) };
            secrets.extend(forms.iter().filter_map(|form| {
                let head = form.as_bytes().get(..HEAD)?;
                Some(SecretHash {
                    variable: variable.clone(),
                    bytes: form.len(),
                    fingerprint: fingerprint(key(&salt), pack(head)),
                    sha256: hex(&hash(&salt, form.as_bytes())),
                    whole_word: is_number,
                })
            }));
        }
        Ok((!secrets.is_empty()).then(|| RememberedSecrets {
            schema: SCHEMA.to_owned(),
            salt: hex(&salt),
            secrets,
        }))
    }

    /// Reads the hashes of a run; `None` where it has none.
    pub(super) fn read(root: &Path) -> io::Result<Option<RememberedSecrets>> {
        let bytes = match read_document(&root.join(FILE)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let remembered: RememberedSecrets = serde_json::from_slice(&bytes)?;
        let mut lengths = remembered.secrets.iter().map(|secret| secret.bytes);
        match lengths.find(|length| !(HEAD..=LONGEST).contains(length)) {
            None => Ok(Some(remembered)),
            Some(length) => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("a secret of {length} bytes, but expected {HEAD} to {LONGEST}"),
            )),
        }
    }
}

/// The search for remembered secrets.
#[derive(Debug)]
pub(super) struct RememberedSearch {
    salt: Vec<u8>,
    key: u64,
    /// Secrets by fingerprint.
    secrets: BTreeMap<u16, Vec<Wanted>>,
    /// One bit for each fingerprint in use.
    bits: Vec<u64>,
    longest: usize,
}

/// A secret to find.
#[derive(Debug)]
struct Wanted {
    what: String,
    bytes: usize,
    sha256: Vec<u8>,
    whole_word: bool,
}

impl RememberedSearch {
    /// Prepares a search.
    pub(super) fn new(remembered: RememberedSecrets) -> Self {
        let salt = unhex(&remembered.salt);
        let mut search = RememberedSearch {
            key: key(&salt),
            salt,
            secrets: BTreeMap::new(),
            bits: vec![0; 1 << 10],
            longest: 0,
        };
        for secret in remembered.secrets {
            search.longest = search.longest.max(secret.bytes);
            if let Some(word) = search.bits.get_mut(usize::from(secret.fingerprint >> 6)) {
                *word |= 1 << (secret.fingerprint & 63);
            }
            search.secrets.entry(secret.fingerprint).or_default().push(Wanted {
                what: format!("the variable {}", secret.variable),
                bytes: secret.bytes,
                sha256: unhex(&secret.sha256),
                whole_word: secret.whole_word,
            });
        }
        search
    }

    /// Returns the length of the longest secret, bytes.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// Finds the secrets in a text, in order and without overlaps.
    pub(super) fn find(&self, text: &[u8]) -> Vec<(Found, &str)> {
        let mut found: Vec<(Found, &str)> = Vec::new();
        let mut end = 0;
        let mut head = 0_u64;
        for (at, byte) in text.iter().enumerate() {
            head = (head << 8 | u64::from(*byte)) & HEAD_MASK;
            let Some(start) = (at + 1).checked_sub(HEAD).filter(|start| *start >= end) else {
                continue;
            };
            let print = fingerprint(self.key, head);
            let bits = self.bits.get(usize::from(print >> 6)).copied().unwrap_or(0);
            if bits >> (print & 63) & 1 == 0 {
                continue;
            }
            // The longest form includes the shorter ones.
            let here = self.secrets.get(&print).into_iter().flatten();
            let here = here.filter(|wanted| self.is_at(text, start, wanted));
            if let Some(wanted) = here.max_by_key(|wanted| wanted.bytes) {
                end = start + wanted.bytes;
                let place = Found { start, end, what: "a remembered secret" };
                found.push((place, &wanted.what));
            }
        }
        found
    }

    fn is_at(&self, text: &[u8], start: usize, wanted: &Wanted) -> bool {
        let end = start.saturating_add(wanted.bytes);
        let part = |at: Option<usize>| {
            let byte = at.and_then(|at| text.get(at));
            byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
        };
        let alone = || !part(start.checked_sub(1)) && !part(Some(end));
        text.get(start..end)
            .is_some_and(|form| (!wanted.whole_word || alone()) && hash(&self.salt, form) == wanted.sha256)
    }
}

const HEAD_MASK: u64 = (1 << (8 * HEAD)) - 1;

/// Packs the first bytes of a secret into a number.
fn pack(head: &[u8]) -> u64 {
    head.iter().fold(0, |packed, byte| (packed << 8 | u64::from(*byte)) & HEAD_MASK)
}

/// Derives the key of the fingerprints from the salt.
fn key(salt: &[u8]) -> u64 {
    salt.iter().take(8).fold(0, |key, byte| key << 8 | u64::from(*byte))
}

/// Mixes the packed first bytes of a secret with the key.
fn fingerprint(key: u64, head: u64) -> u16 {
    let mixed = (head ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 32).wrapping_mul(key | 1);
    u16::try_from(mixed >> 48).unwrap_or(0)
}

fn hash(salt: &[u8], form: &[u8]) -> Vec<u8> {
    Sha256::new().chain_update(salt).chain_update(form).finalize().to_vec()
}

fn unhex(text: &str) -> Vec<u8> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    text.as_bytes()
        .chunks(2)
        .filter_map(|pair| Some(digit(pair.first()?)? << 4 | digit(pair.get(1)?)?))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(variables: &[(&str, &str)]) -> RememberedSearch {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let remembered = RememberedSecrets::of(variables.iter().map(own)).unwrap().unwrap();
        let json = serde_json::to_string(&remembered).unwrap();
        for (_, value) in variables {
            assert!(!json.contains(value), "{json}");
        }
        RememberedSearch::new(serde_json::from_str(&json).unwrap())
    }

    fn places(search: &RememberedSearch, text: &str) -> Vec<(String, String)> {
        let found = search.find(text.as_bytes());
        found
            .into_iter()
            .map(|(place, what)| (text[place.start..place.end].to_owned(), what.to_owned()))
            .collect()
    }

    #[test]
    fn every_form_is_found_without_the_value() {
        let search = search(&[("DB_PASSWORD", "sword fish/12"), ("HF_TOKEN", "hf_abcdef")]);
        for form in ["sword fish/12", "sword%20fish%2F12", "c3dvcmQgZmlzaC8xM", "73776f726420666973682f3132"]
        {
            let text = format!("before {form} after hf_abcdef");
            let found = places(&search, &text);
            assert_eq!(found.len(), 2, "{form}: {found:?}");
            assert_eq!(found[0].1, "the variable DB_PASSWORD");
            assert_eq!(found[1], ("hf_abcdef".to_owned(), "the variable HF_TOKEN".to_owned()));
        }
        assert_eq!(places(&search, "sword fish/1 hf_abcde hf_abcdeg"), []);
    }

    #[test]
    fn a_number_is_found_as_a_whole_word_only() {
        let search = search(&[("PASS_CODE", "471147")]);
        assert_eq!(places(&search, "pin 471147, ns 9471147, 4711470").len(), 1);
    }

    #[test]
    fn two_runs_have_different_hashes_and_harmless_variables_none() {
        let variable = || [("API_KEY".to_owned(), "swordfish-12".to_owned())];
        let first = RememberedSecrets::of(variable()).unwrap();
        assert_ne!(first, RememberedSecrets::of(variable()).unwrap());
        let harmless = [("OMP_NUM_THREADS", "4"), ("PATH", "/usr/bin"), ("API_KEY", "short")];
        let harmless = harmless.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(RememberedSecrets::of(harmless).unwrap(), None);
    }
}
