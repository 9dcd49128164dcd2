//! Private data to remove, and the search for it.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Read};

use memchr::memmem::Finder;

use super::host::HostFacts;
use super::remembered::{RememberedSearch, RememberedSecrets};
use super::shapes::Found;
use super::variables::is_secret;
use super::{encodings, shapes};

/// Placeholder for removed text.
pub const REMOVED: &str = "<removed>";

/// Placeholder for a home path.
const HOME: &str = "~";

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
    /// Secrets of the machines that recorded the run, one search for each node of a job.
    remembered: Vec<RememberedSearch>,
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

impl Private {
    /// Collects the private data of a machine.
    pub fn of(host: &HostFacts) -> Self {
        let mut private = Private::default();
        for (name, value) in &host.variables {
            private.variable(name, value);
        }
        if let Some(name) = &host.host {
            private.word(name, "the host name");
        }
        if let Some(user) = &host.user {
            private.word(user, "the user name");
        }
        if let Some(home) = host.home.as_ref().and_then(|home| home.to_str()) {
            private.home(home);
        }
        private
    }

    /// Adds the secrets of a machine that recorded the run.
    pub fn remember(&mut self, remembered: RememberedSecrets) {
        self.remembered.push(RememberedSearch::new(remembered));
    }

    /// Adds a variable, where its value is private.
    pub fn variable(&mut self, name: &str, value: &str) {
        match name {
            "HOME" => self.home(value),
            "USER" | "LOGNAME" | "SUDO_USER" => self.word(value, "the user name"),
            "HOSTNAME" | "HOST" => self.word(value, "the host name"),
            // Digits of a longer number are not the secret.
            _ if is_secret(name, value) && value.bytes().all(|byte| byte.is_ascii_digit()) => {
                self.word(value, &format!("the variable {name}"));
            }
            _ if is_secret(name, value) => self.secret(value, &format!("the variable {name}")),
            _ => {}
        }
    }

    /// Adds the variables of `NAME=value` pairs in a text.
    pub fn variables_in(&mut self, text: &str, between: char) {
        for pair in text.split([between, '\0', '\n']) {
            if let Some((name, value)) = pair.trim().split_once('=')
                && is_name(name)
            {
                self.variable(name, value.trim_matches('"'));
            }
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
                && shapes::is_secret_name(name)
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
        if word.len() >= 3 && !known && !GENERIC_NAMES.contains(&word) {
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
        for form in encodings::of(secret).into_iter().filter(|form| !form.is_empty()) {
            let known = self.secrets.entry((Reverse(form.len()), form));
            known.or_insert_with(|| what.to_owned());
        }
    }

    /// Removes private data from a text and counts it by kind; `None` where there was none.
    pub fn clean(&self, text: &str, count: &mut BTreeMap<String, u64>) -> Option<String> {
        let mut clean = std::borrow::Cow::Borrowed(text);
        for ((_, secret), what) in &self.secrets {
            let times = clean.matches(secret.as_str()).count();
            if times > 0 {
                clean = clean.replace(secret.as_str(), REMOVED).into();
                *count.entry(what.clone()).or_default() += times as u64;
            }
        }
        if let Some(text) = self.without_remembered(&clean, count) {
            clean = text.into();
        }
        if let Some((text, times)) = replace_homes(&clean, &self.homes) {
            clean = text.into();
            *count.entry("home paths".to_owned()).or_default() += times;
        }
        for (word, what) in &self.words {
            if let Some((text, times)) = without_word(&clean, word) {
                clean = text.into();
                *count.entry(what.clone()).or_default() += times;
            }
        }
        if let Some(text) = without_shapes(&clean, count) {
            clean = text.into();
        }
        match clean {
            std::borrow::Cow::Borrowed(_) => None,
            std::borrow::Cow::Owned(text) => Some(text),
        }
    }

    /// Finds the secrets of the machines that recorded the run, in order and without overlaps.
    fn remembered_in(&self, text: &[u8]) -> Vec<(Found, &str)> {
        let mut found: Vec<(Found, &str)> =
            self.remembered.iter().flat_map(|search| search.find(text)).collect();
        found.sort_by_key(|(place, _)| (place.start, Reverse(place.end)));
        // Nodes may share a secret, or have one that is part of another.
        found.dedup_by(|(next, _), (last, _)| {
            let overlaps = next.start < last.end;
            if overlaps {
                last.end = last.end.max(next.end);
            }
            overlaps
        });
        found
    }

    /// Removes the secrets of the machines that recorded the run, and counts them.
    fn without_remembered(&self, text: &str, count: &mut BTreeMap<String, u64>) -> Option<String> {
        let found = self.remembered_in(text.as_bytes());
        for (_, what) in &found {
            *count.entry((*what).to_owned()).or_default() += 1;
        }
        without(text, found.iter().map(|(place, _)| place))
    }

    /// Searches bytes for private data. Returns its kind, never the data itself.
    pub fn found_in(&self, source: &mut dyn Read) -> io::Result<Option<String>> {
        let needles = self.needles();
        let longest = needles
            .iter()
            .map(|needle| needle.finder.needle().len())
            .chain(self.remembered.iter().map(RememberedSearch::longest))
            .fold(shapes::LONGEST_TOKEN, usize::max);
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
            if let Some(needle) = needles.iter().find(|needle| needle.is_in(&buffer)) {
                return Ok(Some(needle.what.to_owned()));
            }
            if let Some((_, what)) = self.remembered_in(&buffer).first() {
                return Ok(Some((*what).to_owned()));
            }
            if let Some(token) = shapes::tokens(&buffer).first() {
                return Ok(Some(token.what.to_owned()));
            }
        }
    }

    /// Lists the search terms. Short words are left out, because they occur by chance in binary data.
    fn needles(&self) -> Vec<Needle<'_>> {
        let needle = |text, what, whole_word| Needle { finder: Finder::new(text), what, whole_word };
        let secrets = self.secrets.iter().map(|((_, secret), what)| needle(secret, what.as_str(), false));
        let words = self.words.iter().filter(|(word, _)| word.len() >= 6);
        let words = words.map(|(word, what)| needle(word, what.as_str(), true));
        let homes = self.homes.iter().filter(|home| home.len() >= 8);
        let homes = homes.map(|home| needle(home, "a home path", true));
        secrets.chain(words).chain(homes).collect()
    }
}

/// A search term.
struct Needle<'a> {
    finder: Finder<'a>,
    what: &'a str,
    /// True for a term that matches whole words only.
    whole_word: bool,
}

impl Needle<'_> {
    fn is_in(&self, bytes: &[u8]) -> bool {
        let part = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
        let length = self.finder.needle().len();
        self.finder.find_iter(bytes).any(|at| {
            let before = at.checked_sub(1).and_then(|at| bytes.get(at));
            !self.whole_word || !(part(before) || part(bytes.get(at + length)))
        })
    }
}

fn is_name(name: &str) -> bool {
    let mut characters = name.chars();
    characters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && characters.all(|c| c.is_ascii_alphanumeric() || c == '_')
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
        match home_at(from, homes).filter(|_| begins) {
            Some(length) => {
                out.push_str(HOME);
                times += 1;
                rest = from.get(length..).unwrap_or_default();
            }
            None => {
                out.push('/');
                rest = from.get(1..).unwrap_or_default();
            }
        }
    }
    out.push_str(rest);
    (times > 0).then_some((out, times))
}

/// Returns the length of the home path at the start of a text.
fn home_at(text: &str, homes: &[String]) -> Option<usize> {
    let ends = |length: usize| {
        let next = text.get(length..).and_then(|rest| rest.chars().next());
        next.is_none_or(|c| !(c.is_alphanumeric() || c == '_' || c == '-' || c == '.'))
    };
    let own = homes.iter().map(String::as_str).chain(["/root"]);
    if let Some(home) = own.filter(|home| text.starts_with(home)).find(|home| ends(home.len())) {
        return Some(home.len());
    }
    for parent in ["/home/", "/Users/"] {
        if let Some(name) = text.strip_prefix(parent) {
            let length = name
                .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '-' || c == '.'))
                .unwrap_or(name.len());
            return (length > 0).then_some(parent.len() + length);
        }
    }
    None
}

/// Removes secrets that are recognised by their shape, and counts them.
fn without_shapes(text: &str, count: &mut BTreeMap<String, u64>) -> Option<String> {
    let found = shapes::all(text);
    for secret in &found {
        *count.entry(secret.what.to_owned()).or_default() += 1;
    }
    without(text, found.iter())
}

/// Removes places of a text, which are in order; `None` where there are none.
fn without<'a>(text: &str, places: impl Iterator<Item = &'a Found>) -> Option<String> {
    let mut places = places.peekable();
    places.peek()?;
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for place in places {
        out.push_str(text.get(from..place.start).unwrap_or_default());
        out.push_str(REMOVED);
        from = place.end;
    }
    out.push_str(text.get(from..).unwrap_or_default());
    Some(out)
}

/// Removes a whole word and counts it.
fn without_word(text: &str, word: &str) -> Option<(String, u64)> {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    let mut out = String::with_capacity(text.len());
    let (mut from, mut times) = (0, 0);
    for (at, found) in text.match_indices(word) {
        let alone = !text.get(..at).unwrap_or_default().ends_with(part)
            && !text.get(at + found.len()..).unwrap_or_default().starts_with(part);
        if alone {
            out.push_str(text.get(from..at).unwrap_or_default());
            out.push_str(REMOVED);
            from = at + found.len();
            times += 1;
        }
    }
    out.push_str(text.get(from..).unwrap_or_default());
    (times > 0).then_some((out, times))
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
        assert_eq!(clean("/data/people/anna/x /home/bob/y,/root/z /Users/eve"), "~/x ~/y,~/z ~");
        assert_eq!(clean("anna@gpu-box7: annabel"), "<removed>@<removed>: annabel");
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
    fn a_match_across_two_reads_is_found() {
        let private = private();
        let mut bytes = vec![b'x'; (1 << 20) - 4];
        bytes.extend_from_slice(b"hf_abcdef and more");
        let found = private.found_in(&mut bytes.as_slice()).unwrap();
        assert_eq!(found.as_deref(), Some("the variable HF_TOKEN"));
        assert_eq!(private.found_in(&mut vec![b'x'; 3 << 20].as_slice()).unwrap(), None);
    }

    #[test]
    fn variables_are_read_out_of_blocks() {
        let mut private = Private::default();
        private.variables_in("A=1;SECRET_KEY=swordfish1;_=x", ';');
        private.variables_in("LANG=C\nDB_PASSWORD=\"hunter22\"", ' ');
        for text in ["swordfish1", "hunter22"] {
            assert_eq!(private.clean(text, &mut BTreeMap::new()).as_deref(), Some(REMOVED));
        }
    }
}
