//! Private data of a machine and of a run: what to remove, and the search for it.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::PathBuf;

use memchr::memmem::Finder;
use roofgap_base::text::{base64, hex};
use roofgap_collect::provenance::{is_recorded_variable, names_a_secret, variables};

use super::shapes::{self, Found, is_secret_name, value_length};

/// Placeholder for removed text.
pub const REMOVED: &str = "<removed>";

/// Placeholder for a home path.
const HOME: &str = "~";

/// Facts of a machine that may have leaked into the files of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostFacts {
    /// Environment variables.
    pub variables: Vec<(String, String)>,
    /// Host name.
    pub host: Option<String>,
    /// User name.
    pub user: Option<String>,
    /// Home folder.
    pub home: Option<PathBuf>,
}

impl HostFacts {
    /// Reads the facts of this process.
    pub fn here() -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
        Self {
            variables: variables().collect(),
            host: host.map(|name| name.trim().to_owned()).or_else(|| variable("HOSTNAME")),
            user: variable("USER").or_else(|| variable("LOGNAME")),
            home: variable("HOME").map(PathBuf::from),
        }
    }
}

/// Suffixes of variables that hold a path, which is not a secret.
const PATH_SUFFIXES: [&str; 5] = ["PATH", "_FILE", "_DIR", "_SOCK", "_HOME"];

/// Returns true where the value of a variable must be removed everywhere. Short and common values such as "1" or "bfloat16"
/// are kept.
fn is_secret(name: &str, value: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    if is_recorded_variable(name) || PATH_SUFFIXES.iter().any(|ending| upper.ends_with(ending)) {
        return false;
    }
    if names_a_secret(name) {
        return value.len() >= 6;
    }
    if value.starts_with('/') {
        return false;
    }
    let with_login = value.contains("://") && value.contains('@');
    let mixed = value.chars().any(|c| c.is_ascii_digit()) && value.chars().any(|c| c.is_ascii_alphabetic());
    with_login || (value.len() >= 12 && mixed && !value.contains(char::is_whitespace))
}

/// Least length of a secret in base64 or hexadecimal. Shorter ones occur by chance.
const LEAST_ENCODED: usize = 8;

/// Lists the forms in which a secret is searched: plain, in JSON, quoted for a shell, in a URL, in base64 and hexadecimal.
fn forms(secret: &str) -> Vec<String> {
    let in_json = serde_json::to_string(secret).unwrap_or_default();
    let in_url = secret.bytes().map(|byte| match char::from(byte) {
        c if c.is_ascii_alphanumeric() || "-_.~".contains(c) => c.to_string(),
        _ => format!("%{byte:02X}"),
    });
    let in_json = in_json.get(1..in_json.len() - 1).unwrap_or_default().to_owned();
    let mut forms = vec![secret.to_owned(), in_json, secret.replace('\'', r"'\''"), in_url.collect()];
    let mut encoded = vec![hex(secret.as_bytes())];
    for before in 0..3 {
        let bytes: Vec<u8> = std::iter::repeat_n(0, before).chain(secret.bytes()).collect();
        // Only the characters that depend on the secret alone.
        let text = base64(&bytes);
        let text = text.get((before * 8).div_ceil(6)..bytes.len() * 8 / 6).unwrap_or_default();
        encoded.extend([text.to_owned(), text.replace('+', "-").replace('/', "_")]);
    }
    forms.extend(encoded.into_iter().filter(|form| form.len() >= LEAST_ENCODED));
    forms
}

/// Number of removals by kind.
pub type Removed = BTreeMap<String, u64>;

/// Private data to remove.
#[derive(Debug, Default)]
pub struct Private {
    /// Secrets with their description, such as "the variable HF_TOKEN". The length comes first in the key, so that the longest
    /// secret is the first.
    secrets: BTreeMap<(Reverse<usize>, String), String>,
    /// User and host names, removed as whole words only.
    words: Vec<(String, String)>,
    /// Home paths outside `/home` and `/Users`.
    homes: Vec<String>,
}

/// User and host names that identify nobody.
const GENERIC_NAMES: [&str; 12] = [
    "root",
    "user",
    "admin",
    "ubuntu",
    "debian",
    "docker",
    "runner",
    "nobody",
    "guest",
    "local",
    "localhost",
    "home",
];

/// What a search in bytes finds besides secrets that are known and tokens.
#[derive(Debug, Clone, Copy, Default)]
pub struct Extent {
    /// Names of users and hosts, and home paths. Short ones occur by chance in binary data.
    pub names: bool,
    /// Values of secret names, and logins of URLs, which occur by chance in compressed data.
    pub fields: bool,
}

impl Private {
    /// Collects the private data of a machine.
    pub fn of(host: &HostFacts) -> Self {
        let mut private = Self::default();
        for (name, value) in &host.variables {
            private.variable(name, value);
        }
        private.word(host.host.as_deref().unwrap_or_default(), "the host name");
        private.word(host.user.as_deref().unwrap_or_default(), "the user name");
        private.home(host.home.as_ref().and_then(|home| home.to_str()).unwrap_or_default());
        private
    }

    /// Adds a variable, where its value is private.
    pub fn variable(&mut self, name: &str, value: &str) {
        let what = || format!("the variable {name}");
        match name {
            "HOME" => self.home(value),
            "USER" | "LOGNAME" | "SUDO_USER" => self.word(value, "the user name"),
            "HOSTNAME" | "HOST" => self.word(value, "the host name"),
            _ if value == REMOVED || !is_secret(name, value) => {}
            // Digits of a longer number are not the secret.
            _ if value.bytes().all(|byte| byte.is_ascii_digit()) => self.word(value, &what()),
            _ => self.secret(value, &what()),
        }
    }

    /// Adds the values of options with a secret name, such as `--api-key`.
    pub fn arguments(&mut self, argv: &[String]) {
        for (at, word) in argv.iter().enumerate() {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (word.as_str(), argv.get(at + 1).map(String::as_str)),
            };
            if let Some(value) = value
                && name.starts_with("--")
                && is_secret_name(name)
                && value.len() >= 6
                && !value.starts_with("--")
                && value != REMOVED
            {
                self.secret(value, &format!("the value of {name}"));
            }
        }
    }

    /// Adds a user or host name.
    pub fn word(&mut self, word: &str, what: &str) {
        let known = self.words.iter().any(|(known, _)| known == word);
        if word.len() >= 3 && !known && !GENERIC_NAMES.contains(&word) && word != REMOVED {
            self.words.push((word.to_owned(), what.to_owned()));
        }
    }

    fn home(&mut self, home: &str) {
        let home = home.trim_end_matches('/');
        if home.len() > 1 && home.starts_with('/') && !self.homes.iter().any(|known| known == home) {
            self.homes.push(home.to_owned());
        }
    }

    fn secret(&mut self, secret: &str, what: &str) {
        for form in forms(secret).into_iter().filter(|form| !form.is_empty()) {
            let known = self.secrets.entry((Reverse(form.len()), form));
            known.or_insert_with(|| what.to_owned());
        }
    }

    /// Removes private data from a text and counts it by kind; `None` where there was none.
    pub fn clean(&self, text: &str, count: &mut Removed) -> Option<String> {
        let mut clean = std::borrow::Cow::Borrowed(text);
        let mut counted = |what: &str, times: u64| *count.entry(what.to_owned()).or_default() += times;
        for ((_, secret), what) in &self.secrets {
            let times = clean.matches(secret.as_str()).count();
            if times > 0 {
                clean = clean.replace(secret.as_str(), REMOVED).into();
                counted(what, times as u64);
            }
        }
        if let Some((text, times)) = replace_homes(&clean, &self.homes) {
            clean = text.into();
            counted("home paths", times);
        }
        for (word, what) in &self.words {
            let places: Vec<Found> = whole_words(clean.as_bytes(), word).collect();
            if let Some(text) = without(&clean, &places) {
                clean = text.into();
                counted(what, places.len() as u64);
            }
        }
        let shaped = shapes::all(clean.as_bytes());
        if let Some(text) = without(&clean, &shaped) {
            clean = text.into();
            shaped.iter().for_each(|secret| counted(secret.what, 1));
        }
        match clean {
            std::borrow::Cow::Borrowed(_) => None,
            std::borrow::Cow::Owned(text) => Some(text),
        }
    }

    /// Removes private data from the strings of a JSON document; all other bytes stay. `None` where there was none, or where the text
    /// is not JSON. The value of a field in `emptied` is removed whole.
    pub fn clean_json(&self, text: &str, emptied: &[&str], count: &mut Removed) -> Option<String> {
        let mut out = String::with_capacity(text.len());
        let (mut rest, mut changed) = (text, false);
        // The string before, and what separates it from the next.
        let mut before: Option<String> = None;
        while let Some(start) = rest.find('"') {
            let (between, from) = rest.split_at(start);
            let separator = between.trim();
            let name = before.take().filter(|_| separator == ":" || separator == ",");
            let is_value = separator == ":";
            let literal = from.get(..string_length(from)?)?;
            let string: String = serde_json::from_str(literal).ok()?;
            let is_whole = name.is_some_and(|name| {
                let is_option = !is_value && name.starts_with("--") && !string.starts_with("--");
                let is_variable = is_value && !name.contains(|c: char| c.is_ascii_lowercase());
                (is_value && emptied.contains(&name.as_str()))
                    || (is_variable && is_secret(&name, &string))
                    || ((is_value || is_option)
                        && is_secret_name(&name)
                        && value_length(&name, is_option, string.as_bytes()) > 0)
            });
            let clean = match is_whole {
                true if string.is_empty() || string == REMOVED => None,
                true => {
                    *count.entry("the value of a secret option".to_owned()).or_default() += 1;
                    Some(REMOVED.to_owned())
                }
                false => self.clean(&string, count),
            };
            out.push_str(between);
            match clean {
                Some(clean) => {
                    out.push_str(&serde_json::to_string(&clean).ok()?);
                    changed = true;
                }
                None => out.push_str(literal),
            }
            rest = from.get(literal.len()..)?;
            before = Some(string);
        }
        out.push_str(rest);
        changed.then_some(out)
    }

    /// Searches bytes for private data. Returns its kind, never the data itself.
    pub fn found_in(&self, source: &mut dyn Read, extent: Extent) -> io::Result<Option<String>> {
        let secrets: Vec<(Finder<'_>, &String)> =
            self.secrets.iter().map(|((_, secret), what)| (Finder::new(secret), what)).collect();
        let home = "a home path".to_owned();
        let words = self.words.iter().filter(|(word, _)| word.len() >= 6).map(|(word, what)| (word, what));
        let homes = self.homes.iter().filter(|home| home.len() >= 8).map(|path| (path, &home));
        let names: Vec<(&String, &String)> = words.chain(homes).filter(|_| extent.names).collect();
        let longest = secrets.iter().map(|(secret, _)| secret.needle().len());
        let longest = longest.fold(shapes::LONGEST, usize::max);
        let mut buffer = Vec::new();
        loop {
            // The end of the last piece is kept, because a match may span two.
            let keep = buffer.len().saturating_sub(longest + 1);
            buffer.drain(..keep);
            let before = buffer.len();
            source.take(1 << 20).read_to_end(&mut buffer)?;
            if buffer.len() == before {
                return Ok(None);
            }
            let secret = secrets.iter().find(|(secret, _)| secret.find(&buffer).is_some());
            let name = || names.iter().find(|(word, _)| whole_words(&buffer, word).next().is_some());
            if let Some(what) = secret.map(|(_, what)| *what).or_else(|| name().map(|(_, what)| *what)) {
                return Ok(Some(what.clone()));
            }
            let shaped = if extent.fields { shapes::all(&buffer) } else { shapes::tokens(&buffer) };
            if let Some(shape) = shaped.first() {
                return Ok(Some(shape.what.to_owned()));
            }
        }
    }
}

/// Returns the length of the JSON string at the start of a text, with its quotes.
fn string_length(text: &str) -> Option<usize> {
    let mut escaped = false;
    let end = text.bytes().skip(1).position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    });
    end.map(|end| end + 2)
}

/// Replaces home paths by `~` and counts them.
fn replace_homes(text: &str, homes: &[String]) -> Option<(String, u64)> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut times = 0;
    while let Some(at) = rest.find('/') {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        // A home path is the start of a path.
        let begins =
            !out.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '.' || c == '~' || c == '-');
        let length = match home_at(from, homes).filter(|_| begins) {
            Some(length) => {
                out.push_str(HOME);
                times += 1;
                length
            }
            None => {
                out.push('/');
                1
            }
        };
        rest = from.get(length..).unwrap_or_default();
    }
    out.push_str(rest);
    (times > 0).then_some((out, times))
}

/// Home of the administrator, which is the same everywhere.
const HOME_OF_ROOT: &str = "/root";

/// Returns the length of the home path at the start of a text.
fn home_at(text: &str, homes: &[String]) -> Option<usize> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '-' || c == '.';
    let ends = |length: usize| !text.get(length..).is_some_and(|rest| rest.starts_with(is_part));
    let own = homes.iter().map(String::as_str).chain([HOME_OF_ROOT]);
    if let Some(home) = own.filter(|home| text.starts_with(home)).find(|home| ends(home.len())) {
        return Some(home.len());
    }
    ["/home/", "/Users/"].iter().find_map(|parent| {
        let name = text.strip_prefix(parent)?;
        let length = name.find(|c: char| !is_part(c)).unwrap_or(name.len());
        (length > 0).then_some(parent.len() + length)
    })
}

/// Removes places of a text, which are in order; `None` where there are none.
fn without(text: &str, places: &[Found]) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for place in places {
        out.push_str(text.get(from..place.start).unwrap_or_default());
        out.push_str(REMOVED);
        from = place.end;
    }
    out.push_str(text.get(from..).unwrap_or_default());
    (!places.is_empty()).then_some(out)
}

/// Finds a word that is not part of another.
fn whole_words(text: &[u8], word: &str) -> impl Iterator<Item = Found> {
    let part = |byte: Option<&u8>| {
        byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_' || !byte.is_ascii())
    };
    let length = word.len();
    memchr::memmem::find_iter(text, word.as_bytes())
        .filter(move |at| {
            let before = at.checked_sub(1).and_then(|at| text.get(at));
            !part(before) && !part(text.get(at + length))
        })
        .map(move |start| Found { start, end: start + length, what: "a name" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn private() -> Private {
        let variables = [
            ("HF_TOKEN", "hf_abcdef"),
            ("API_PASS", "with \"quotes\""),
            ("AWS_SECRET_ACCESS_KEY", "/slash/first"),
            ("PASS_CODE", "471147"),
            ("SSH_AUTH_SOCK", "/tmp/agent"),
            ("MY_ID", "plainvalue42xyz"),
            ("DTYPE", "bfloat16"),
            ("OMP_NUM_THREADS", "4"),
            ("PATH", "/usr/bin:/opt/x/bin"),
            ("HOME", "/data/people/anna"),
        ];
        Private::of(&HostFacts {
            variables: variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            host: Some("gpu-box7".into()),
            user: Some("anna".into()),
            home: None,
        })
    }

    fn clean(text: &str) -> String {
        private().clean(text, &mut BTreeMap::new()).unwrap_or_else(|| text.to_owned())
    }

    #[test]
    fn secrets_homes_and_names_are_removed() {
        assert_eq!(clean("token=hf_abcdef;"), "token=<removed>;");
        assert_eq!(clean("id plainvalue42xyz!"), "id <removed>!");
        assert_eq!(clean("x /slash/first y"), "x <removed> y");
        assert_eq!(clean("pin 471147, ns 9471147"), "pin <removed>, ns 9471147");
        assert_eq!(clean(r#"{"pass": "with \"quotes\""}"#), r#"{"pass": "<removed>"}"#);
        let homes = format!("/data/people/anna/x /home/bob/y,{HOME_OF_ROOT}/z /Users/eve");
        assert_eq!(clean(&homes), "~/x ~/y,~/z ~");
        assert_eq!(clean("anna@gpu-box7: annabel"), "<removed>@<removed>: annabel");
    }

    #[test]
    fn encoded_secrets_are_removed() {
        let mut private = Private::default();
        private.variable("DB_PASSWORD", "swordfish-12");
        // echo -n, with 0, 1 and 2 bytes before it.
        for text in [
            "c3dvcmRmaXNoLTEy",
            "eHN3b3JkZmlzaC0xMg==",
            "eHlzd29yZGZpc2gtMTI=",
            "73776f7264666973682d3132",
            "swordfish-12",
        ] {
            assert!(private.clean(text, &mut BTreeMap::new()).is_some(), "{text}");
        }
        let private = self::private();
        assert!(private.clean("with%20%22quotes%22", &mut BTreeMap::new()).is_some());
    }

    #[test]
    fn a_secret_that_begins_with_another_is_removed_whole() {
        let mut private = Private::default();
        private.variable("A_TOKEN", "hf_abcdef");
        private.variable("B_TOKEN", "hf_abcdefghi");
        private.variable("C_TOKEN", "hf_abcdef");
        let mut count = BTreeMap::new();
        let clean = private.clean("x hf_abcdefghi y hf_abcdef", &mut count);
        assert_eq!(clean.as_deref(), Some("x <removed> y <removed>"));
        let counted: Vec<&str> = count.keys().map(String::as_str).collect();
        assert_eq!(counted, ["the variable A_TOKEN", "the variable B_TOKEN"]);
    }

    #[test]
    fn public_text_is_kept() {
        for text in [
            "kernel<bfloat16, 4>",
            "/tmp/agent",
            "/usr/bin/python /opt/rooted /rootfs",
            "a/home/ /homely",
            "x/root/y",
        ] {
            assert_eq!(clean(text), text);
        }
    }

    #[test]
    fn strings_of_json_are_cleaned_and_all_else_stays() {
        let text = r#"{"b": [1.50, "--api-key", "sword", "--top", "5"], "tail": "out\nput", "MY_ID": "a-b-c-d-1234",
            "log": "one\nhf_AbcdefghijklmnopqrstUvwxyz12\n/home/eve/x", "password": "p", "é": "\"anna\""}"#;
        let clean = private().clean_json(text, &["tail"], &mut BTreeMap::new()).unwrap();
        let expected = r#"{"b": [1.50, "--api-key", "<removed>", "--top", "5"], "tail": "<removed>", "MY_ID": "<removed>",
            "log": "one\n<removed>\n~/x", "password": "<removed>", "é": "\"<removed>\""}"#;
        assert_eq!(clean, expected);
        assert_eq!(private().clean_json(&clean, &["tail"], &mut BTreeMap::new()), None);
        assert_eq!(private().clean_json("{\"half", &[], &mut BTreeMap::new()), None);
    }

    #[test]
    fn a_match_across_two_reads_is_found() {
        let private = private();
        let mut bytes = vec![b'x'; (1 << 20) - 4];
        bytes.extend_from_slice(b"hf_abcdef and more");
        let found = private.found_in(&mut bytes.as_slice(), Extent::default()).unwrap();
        assert_eq!(found.as_deref(), Some("the variable HF_TOKEN"));
        let nothing = private.found_in(&mut vec![b'x'; 3 << 20].as_slice(), Extent::default());
        assert_eq!(nothing.unwrap(), None);
    }
}
