//! Private texts of a machine, of its users and of a program: what to remove from the strings that are packed.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use roofgap_collect::provenance::{is_recorded_variable, names_a_secret, variables};

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

/// Shortest value that is removed everywhere. Shorter ones occur by chance.
const SHORTEST: usize = 6;

/// Returns true where the value of a variable must be removed everywhere. Short and common values such as "1" or "bfloat16"
/// are kept.
fn is_secret(name: &str, value: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    if is_recorded_variable(name) || PATH_SUFFIXES.iter().any(|ending| upper.ends_with(ending)) {
        return false;
    }
    if names_a_secret(name) {
        return value.len() >= SHORTEST;
    }
    let with_login = value.contains("://") && value.contains('@');
    let mixed = value.chars().any(|c| c.is_ascii_digit()) && value.chars().any(|c| c.is_ascii_alphabetic());
    let is_path = value.starts_with('/');
    with_login || (!is_path && value.len() >= 12 && mixed && !value.contains(char::is_whitespace))
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

/// What a private text is, in the order of removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Secret,
    Home,
    /// A user or host name: a whole word.
    Name,
}

/// Private texts, of a kind the longest first, because another may be a part of it.
#[derive(Debug, Default)]
pub struct Private(BTreeSet<(Kind, Reverse<usize>, String)>);

impl Private {
    /// Adds a variable, where its value is private.
    pub fn variable(&mut self, name: &str, value: &str) {
        match name {
            "HOME" if value.len() > 1 && value.starts_with('/') => {
                self.add(Kind::Home, value.trim_end_matches('/'))
            }
            "USER" | "LOGNAME" | "SUDO_USER" | "HOSTNAME" | "HOST" => self.name(value),
            _ if is_secret(name, value) => self.add(Kind::Secret, value),
            _ => {}
        }
    }

    /// Adds the values of options with a secret name, such as `--api-key`.
    pub fn arguments(&mut self, argv: &[String]) {
        for (at, word) in argv.iter().enumerate() {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (word.as_str(), argv.get(at + 1).map(String::as_str)),
            };
            let value = value.filter(|value| value.len() >= SHORTEST && !value.starts_with("--"));
            if let Some(value) =
                value.filter(|_| name.starts_with("--") && names_a_secret(&name.replace('-', "_")))
            {
                self.add(Kind::Secret, value);
            }
        }
    }

    /// Adds the name of a host or user.
    pub fn name(&mut self, name: &str) {
        if name.len() >= 3 && !GENERIC_NAMES.contains(&name) {
            self.add(Kind::Name, name);
        }
    }

    fn add(&mut self, kind: Kind, text: &str) {
        self.0.insert((kind, Reverse(text.len()), text.to_owned()));
    }

    /// Removes private data from a text: what is known, and the home path of any user.
    pub fn clean(&self, text: &str) -> String {
        let mut text = text.to_owned();
        let is_name = |c: char| c.is_alphanumeric() || "_.-".contains(c);
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let in_path = |before: &str| before.ends_with(|c: char| is_name(c) || c == '~');
        for (kind, _, private) in &self.0 {
            let with = if *kind == Kind::Home { "~" } else { REMOVED };
            replace(&mut text, private, with, |before, after| {
                let is_whole = match kind {
                    Kind::Secret => true,
                    Kind::Home => !in_path(before) && !after.starts_with(is_word),
                    Kind::Name => !before.ends_with(is_word) && !after.starts_with(is_word),
                };
                is_whole.then_some(0)
            });
        }
        for homes in ["/home/", "/Users/", "/root"] {
            replace(&mut text, homes, "~", |before, after| {
                let user = after.find(|c: char| !is_name(c)).unwrap_or(after.len());
                (!in_path(before) && (homes == "/root") == (user == 0)).then_some(user)
            });
        }
        text
    }
}

/// Replaces each place of a text that `length` accepts by what is before and after it, and that many bytes after it.
fn replace(text: &mut String, what: &str, with: &str, length: impl Fn(&str, &str) -> Option<usize>) {
    let (mut out, mut done) = (String::new(), 0);
    for (at, _) in text.match_indices(what) {
        let (before, after) =
            (text.get(..at).unwrap_or_default(), text.get(at + what.len()..).unwrap_or_default());
        if let Some(more) = length(before, after).filter(|_| at >= done) {
            out.push_str(text.get(done..at).unwrap_or_default());
            out.push_str(with);
            done = at + what.len() + more;
        }
    }
    if done > 0 {
        out.push_str(text.get(done..).unwrap_or_default());
        *text = out;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn private() -> Private {
        let mut private = Private::default();
        for (name, value) in [
            ("HF_TOKEN", "hf_abcdef"),
            ("LONG_TOKEN", "hf_abcdefghi"),
            ("API_PASS", "with \"quotes\""),
            ("AWS_SECRET_ACCESS_KEY", "/slash/first"),
            ("SSH_AUTH_SOCK", "/tmp/agent"),
            ("MY_ID", "plainvalue42xyz"),
            ("DTYPE", "bfloat16"),
            ("OMP_NUM_THREADS", "4"),
            ("PATH", "/usr/bin:/opt/x/bin"),
            ("HOME", "/data/people/anna"),
            ("HOSTNAME", "gpu-box7"),
            ("USER", "anna"),
        ] {
            private.variable(name, value);
        }
        let words = ["serve", "--api-key", "sword fish", "--auth-token=shield7", "--top", "secret5"];
        private.arguments(&words.map(str::to_owned));
        private
    }

    #[test]
    fn secrets_homes_and_names_are_removed() {
        let private = private();
        for (text, expected) in [
            ("token=hf_abcdef;", "token=<removed>;"),
            ("x hf_abcdefghi y hf_abcdef", "x <removed> y <removed>"),
            ("id plainvalue42xyz!", "id <removed>!"),
            ("x /slash/first y", "x <removed> y"),
            ("pass: with \"quotes\"", "pass: <removed>"),
            ("sword fish, shield7, secret5", "<removed>, <removed>, secret5"),
            ("/data/people/anna/x /home/bob/y,/root/z /Users/eve", "~/x ~/y,~/z ~"),
            ("anna@gpu-box7: annabel", "<removed>@<removed>: annabel"),
        ] {
            assert_eq!(private.clean(text), expected);
        }
    }

    #[test]
    fn public_text_is_kept() {
        let private = private();
        for text in [
            "kernel<bfloat16, 4>",
            "/tmp/agent",
            "/usr/bin/python /opt/rooted /rootfs",
            "a/home/ /homely",
            "x/root/y",
        ] {
            assert_eq!(private.clean(text), text);
        }
    }
}
