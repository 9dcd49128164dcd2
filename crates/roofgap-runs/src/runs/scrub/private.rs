//! Private data of a machine and of a run: what to remove, and the search for it.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::sync::LazyLock;

use regex::{Regex, escape};
use roofgap_base::text::{base64, hex};
use roofgap_collect::provenance::{is_recorded_variable, names_a_secret, variables};

use super::shapes::{Kind, Pattern, SHAPES, is_secret_name, value_length};

/// Placeholder for removed text.
pub const REMOVED: &str = "<removed>";

/// Lists the environment variables of this process, and its host name as one of them.
pub fn host_variables() -> Vec<(String, String)> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let host = host.map(|name| ("HOSTNAME".to_owned(), name.trim().to_owned()));
    host.into_iter().chain(variables()).collect()
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

/// Private data to remove: what is known, before the shapes of secrets.
#[derive(Debug, Default)]
pub struct Private {
    /// Patterns by the text that they find, the longest first, because another may be a part of it.
    known: BTreeMap<(Kind, Reverse<usize>, String), Pattern>,
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

/// The home path of any user, and that of the administrator, which is the same everywhere.
const ANY_HOME: &str = r"(?:^|[^\w.~-])((?:/home|/Users)/[\w.-]+|/root\b)";

/// Fields of a document that hold the output of the program.
const OUTPUT: [&str; 2] = ["tail", "log_tail"];

/// Bytes of a stream that are searched once more with the next ones. No secret is longer.
const OVERLAP: usize = 256 << 10;

/// A string of a JSON document.
static STRING: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r#""(?:[^"\\]|\\.)*""#).ok());

impl Private {
    /// Collects the private data of a machine by its environment variables.
    pub fn of(variables: &[(String, String)]) -> Self {
        let mut private = Self::default();
        private.add(Kind::Home, "/root", "home paths", ANY_HOME);
        for (name, value) in variables {
            private.variable(name, value);
        }
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
        if word.len() >= 3 && !GENERIC_NAMES.contains(&word) && word != REMOVED {
            let kind = if word.len() < 6 { Kind::ShortName } else { Kind::Name };
            self.add(kind, word, what, &format!(r"\b({})\b", escape(word)));
        }
    }

    fn home(&mut self, home: &str) {
        let home = home.trim_end_matches('/');
        if home.len() > 1 && home.starts_with('/') {
            self.add(Kind::Home, home, "home paths", &format!(r"(?:^|[^\w.~-])({})\b", escape(home)));
        }
    }

    fn secret(&mut self, secret: &str, what: &str) {
        let mut forms = forms(secret);
        forms.sort_by_key(|form| Reverse(form.len()));
        let forms: Vec<String> =
            forms.iter().filter(|form| !form.is_empty()).map(|form| escape(form)).collect();
        self.add(Kind::Secret, secret, what, &format!("({})", forms.join("|")));
    }

    /// Adds a pattern that finds a text. The first description of a text counts.
    fn add(&mut self, kind: Kind, text: &str, what: &str, expression: &str) {
        let key = (kind, Reverse(text.len()), text.to_owned());
        if let (false, Some(pattern)) = (self.known.contains_key(&key), Pattern::new(kind, what, expression))
        {
            self.known.insert(key, pattern);
        }
    }

    /// Lists all patterns in the order in which they are removed.
    fn patterns(&self) -> impl Iterator<Item = &Pattern> {
        self.known.values().chain(SHAPES.iter())
    }

    /// Removes private data from a text and counts it by kind; `None` where there was none.
    pub fn clean(&self, text: &str, count: &mut Removed) -> Option<String> {
        let mut clean = std::borrow::Cow::Borrowed(text);
        for pattern in self.patterns() {
            let places = pattern.places(clean.as_bytes());
            if places.is_empty() {
                continue;
            }
            *count.entry(pattern.what.clone()).or_default() += places.len() as u64;
            let mut out = String::with_capacity(clean.len());
            let mut from = 0;
            for place in places {
                out.push_str(clean.get(from..place.start).unwrap_or_default());
                out.push_str(pattern.placeholder());
                from = place.end;
            }
            out.push_str(clean.get(from..).unwrap_or_default());
            clean = out.into();
        }
        match clean {
            std::borrow::Cow::Borrowed(_) => None,
            std::borrow::Cow::Owned(text) => Some(text),
        }
    }

    /// Removes private data from the strings of a JSON document; all other bytes stay. `None` where there was none. The output of the
    /// program is removed whole.
    pub fn clean_json(&self, text: &str, count: &mut Removed) -> Option<String> {
        let mut out = String::with_capacity(text.len());
        let (mut end, mut changed) = (0, false);
        // The string before.
        let mut before: Option<String> = None;
        for literal in STRING.as_ref()?.find_iter(text) {
            let between = text.get(end..literal.start())?;
            let string: String = serde_json::from_str(literal.as_str()).ok()?;
            let is_value = between.trim() == ":";
            let is_whole = before.take().is_some_and(|name| {
                let is_option = between.trim() == "," && name.starts_with("--") && !string.starts_with("--");
                let is_variable = is_value && !name.contains(|c: char| c.is_ascii_lowercase());
                (is_value && OUTPUT.contains(&name.as_str()))
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
            changed |= clean.is_some();
            match clean {
                Some(clean) => out.push_str(&serde_json::to_string(&clean).ok()?),
                None => out.push_str(literal.as_str()),
            }
            end = literal.end();
            before = Some(string);
        }
        out.push_str(text.get(end..)?);
        changed.then_some(out)
    }

    /// Searches bytes for private data of some kinds. Returns its description, never the data itself.
    pub fn found_in(&self, source: &mut dyn Read, kinds: &[Kind]) -> io::Result<Option<String>> {
        let mut buffer = Vec::new();
        loop {
            // The end of the last piece is kept, because a match may span two.
            buffer.drain(..buffer.len().saturating_sub(OVERLAP));
            let before = buffer.len();
            source.take(1 << 20).read_to_end(&mut buffer)?;
            if buffer.len() == before {
                return Ok(None);
            }
            let mut patterns = self.patterns().filter(|pattern| kinds.contains(&pattern.kind));
            if let Some(found) = patterns.find(|pattern| !pattern.places(&buffer).is_empty()) {
                return Ok(Some(found.what.clone()));
            }
        }
    }
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
            ("HOSTNAME", "gpu-box7"),
            ("USER", "anna"),
        ];
        Private::of(&variables.map(|(name, value)| (name.to_owned(), value.to_owned())))
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
        let homes = "/data/people/anna/x /home/bob/y,/root/z /Users/eve";
        assert_eq!(clean(homes), "~/x ~/y,~/z ~");
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
        let clean = private().clean_json(text, &mut BTreeMap::new()).unwrap();
        let expected = r#"{"b": [1.50, "--api-key", "<removed>", "--top", "5"], "tail": "<removed>", "MY_ID": "<removed>",
            "log": "one\n<removed>\n~/x", "password": "<removed>", "é": "\"<removed>\""}"#;
        assert_eq!(clean, expected);
        assert_eq!(private().clean_json(&clean, &mut BTreeMap::new()), None);
        assert_eq!(private().clean_json("{\"half", &mut BTreeMap::new()), None);
    }

    #[test]
    fn a_match_across_two_reads_is_found() {
        let private = private();
        let mut bytes = vec![b'x'; (1 << 20) - 4];
        bytes.extend_from_slice(b"hf_abcdef and more");
        let found = private.found_in(&mut bytes.as_slice(), &[Kind::Secret]).unwrap();
        assert_eq!(found.as_deref(), Some("the variable HF_TOKEN"));
        let nothing = private.found_in(&mut vec![b'x'; 3 << 20].as_slice(), &[Kind::Secret]);
        assert_eq!(nothing.unwrap(), None);
    }
}
