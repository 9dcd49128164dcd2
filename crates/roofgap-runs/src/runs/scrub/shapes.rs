//! Secrets recognised by their shape: tokens with a known prefix, private keys, logins in URLs, and values of options and
//! fields with a secret name.

use memchr::memmem;

/// A secret in a text, by byte offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    pub start: usize,
    pub end: usize,
    /// Kind of secret, for messages.
    pub what: &'static str,
}

/// A token that starts with a known prefix.
struct Prefix {
    start: &'static [u8],
    /// Least number of further characters.
    least: usize,
    /// Further characters besides letters and digits.
    also: &'static [u8],
    what: &'static str,
}

const fn prefix(start: &'static [u8], least: usize, also: &'static [u8], what: &'static str) -> Prefix {
    Prefix { start, least, also, what }
}

const PREFIXES: [Prefix; 14] = [
    prefix(b"sk-", 20, b"_-", "an API key (sk-)"),
    prefix(b"hf_", 20, b"", "a Hugging Face token"),
    prefix(b"ghp_", 30, b"", "a GitHub token"),
    prefix(b"gho_", 30, b"", "a GitHub token"),
    prefix(b"ghu_", 30, b"", "a GitHub token"),
    prefix(b"ghs_", 30, b"", "a GitHub token"),
    prefix(b"ghr_", 30, b"", "a GitHub token"),
    prefix(b"github_pat_", 20, b"_", "a GitHub token"),
    prefix(b"glpat-", 20, b"_-", "a GitLab token"),
    prefix(b"xoxb-", 10, b"-", "a Slack token"),
    prefix(b"xoxp-", 10, b"-", "a Slack token"),
    prefix(b"xoxa-", 10, b"-", "a Slack token"),
    prefix(b"xoxr-", 10, b"-", "a Slack token"),
    prefix(b"xoxs-", 10, b"-", "a Slack token"),
];

/// Longest token that is found across two reads of a stream, bytes.
pub const LONGEST_TOKEN: usize = 4 << 10;

/// Finds tokens and private keys. They are long and regular, so that binary data holds none by chance.
pub fn tokens(text: &[u8]) -> Vec<Found> {
    let mut found = Vec::new();
    for prefix in &PREFIXES {
        for start in memmem::find_iter(text, prefix.start) {
            let body = start + prefix.start.len();
            let end = run_end(text, body, prefix.also);
            let has_digit = slice(text, body, end).iter().any(u8::is_ascii_digit);
            if begins_word(text, start) && end - body >= prefix.least && has_digit {
                found.push(Found { start, end, what: prefix.what });
            }
        }
    }
    for prefix in [b"AKIA", b"ASIA"] {
        for start in memmem::find_iter(text, prefix) {
            let end = run_end(text, start, b"_");
            let is_key =
                slice(text, start, end).iter().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
            if begins_word(text, start) && end - start == 20 && is_key {
                found.push(Found { start, end, what: "an AWS key" });
            }
        }
    }
    for start in memmem::find_iter(text, b"eyJ") {
        if begins_word(text, start)
            && let Some(end) = web_token(text, start)
        {
            found.push(Found { start, end, what: "a JSON web token" });
        }
    }
    for start in memmem::find_iter(text, b"-----BEGIN ") {
        let line = slice(text, start, text.len().min(start + 80));
        let Some(title) = memmem::find(line, b"PRIVATE KEY-----") else {
            continue;
        };
        // Without an end, the rest of the text may be the key.
        let rest = start + title;
        let end = memmem::find(slice(text, rest, text.len()), b"-----END ")
            .map(|at| rest + at + b"-----END ".len())
            .and_then(|at| {
                let line = slice(text, at, text.len().min(at + 80));
                memmem::find(line, b"-----").map(|dashes| at + dashes + 5)
            })
            .unwrap_or(text.len());
        found.push(Found { start, end, what: "a private key" });
    }
    found
}

/// Finds all secrets of a text, in order and without overlaps.
pub fn all(text: &str) -> Vec<Found> {
    let bytes = text.as_bytes();
    let mut found = tokens(bytes);
    logins(bytes, &mut found);
    bearers(bytes, &mut found);
    named_values(bytes, &mut found);
    found.sort_by_key(|secret| (secret.start, std::cmp::Reverse(secret.end)));
    let mut end = 0;
    found.retain(|secret| {
        let apart = secret.start >= end;
        if apart {
            end = secret.end;
        }
        apart
    });
    found
}

/// Returns true for the name of an option or field that holds a secret. `max-new-tokens` and `pad_token_id` are none.
pub fn is_secret_name(name: &str) -> bool {
    let lower = name.trim_start_matches('-').to_ascii_lowercase();
    let mut words = lower.split(['-', '_', '.']).rev();
    let (last, before) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    match last {
        "password" | "passwd" | "passphrase" | "secret" | "apikey" | "token" | "credential"
        | "credentials" => true,
        "key" => matches!(before, "api" | "access" | "secret" | "private" | "auth"),
        _ => false,
    }
}

/// Finds the logins of URLs: `scheme://user:password@host`.
fn logins(text: &[u8], found: &mut Vec<Found>) {
    for at in memmem::find_iter(text, b"://") {
        let start = at + 3;
        let ends = |byte: &u8| byte.is_ascii_whitespace() || b"/?#\"'<>\\,;)".contains(byte);
        let rest = slice(text, start, text.len());
        let host = rest.iter().position(ends).unwrap_or(rest.len());
        if let Some(login) = rest.get(..host).and_then(|place| memchr::memrchr(b'@', place))
            && login > 0
        {
            found.push(Found { start, end: start + login, what: "a login in a URL" });
        }
    }
}

/// Finds the tokens of HTTP headers: `Bearer TOKEN`.
fn bearers(text: &[u8], found: &mut Vec<Found>) {
    for scheme in [&b"Bearer "[..], b"bearer ", b"Bearer%20"] {
        for at in memmem::find_iter(text, scheme) {
            let start = at + scheme.len();
            let end = run_end(text, start, b"._~+/=-");
            if end - start >= 8 {
                found.push(Found { start, end, what: "a bearer token" });
            }
        }
    }
}

/// Most bytes between the name of an option and its value.
const GAP: usize = 64;

/// Finds the values of options (`--api-key X`, also as words of a JSON or YAML list), assignments (`password=X`) and fields
/// (`"password": "X"`) with a secret name.
fn named_values(text: &[u8], found: &mut Vec<Found>) {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.".contains(byte);
    let mut at = 0;
    while at < text.len() {
        let rest = slice(text, at, text.len());
        if !rest.first().is_some_and(is_part) {
            at += 1;
            continue;
        }
        let end = at + rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len());
        let name = std::str::from_utf8(slice(text, at, end)).unwrap_or_default();
        at = end;
        if !is_secret_name(name) {
            continue;
        }
        let is_option = name.starts_with("--");
        let Some(start) = value_start(text, end, is_option) else {
            continue;
        };
        let stops = |byte: &u8| byte.is_ascii_whitespace() || b"\"'<>,;&\\".contains(byte);
        let value = slice(text, start, text.len());
        let length = value.iter().position(stops).unwrap_or(value.len());
        let is_token = name.to_ascii_lowercase().ends_with("token");
        // A special token of a tokenizer, such as `--pad-token [PAD]`, is short.
        let least = if is_token { 8 } else { 1 };
        // `pad_token=tokenizer.eos_token` is code.
        let is_code = is_token && !is_option && !slice(value, 0, length).iter().any(u8::is_ascii_digit);
        let is_word =
            matches!(value.get(..length), Some(b"null" | b"None" | b"true" | b"false" | b"True" | b"False"));
        let is_next_option = value.starts_with(b"--");
        let is_structure = value.first().is_none_or(|byte| b"[]{}()".contains(byte));
        if length >= least && !is_code && !is_word && !is_next_option && !is_structure {
            found.push(Found { start, end: start + length, what: "the value of a secret option" });
            at = start + length;
        }
    }
}

/// Returns the start of the value after a name that ends at `from`.
fn value_start(text: &[u8], from: usize, is_option: bool) -> Option<usize> {
    let gap = slice(text, from, text.len().min(from + GAP));
    let quotes = |byte: &u8| b"\"'\\".contains(byte);
    let blank = |byte: &u8| byte.is_ascii_whitespace();
    let mut at = 0;
    let skip = |at: &mut usize, accepts: &dyn Fn(&u8) -> bool| {
        let before = *at;
        while gap.get(*at).is_some_and(accepts) {
            *at += 1;
        }
        *at > before
    };
    skip(&mut at, &quotes);
    match gap.get(at) {
        Some(b'=') => at += 1,
        Some(b':') if !is_option => {
            at += 1;
            skip(&mut at, &|byte| b" \t".contains(byte));
        }
        Some(byte) if is_option && (blank(byte) || *byte == b',') => {
            skip(&mut at, &|byte| blank(byte) || *byte == b',');
            // The next item of a YAML list.
            if gap.get(at..).is_some_and(|rest| rest.starts_with(b"- ")) {
                at += 2;
            }
        }
        _ => return None,
    }
    skip(&mut at, &quotes);
    (at < gap.len()).then_some(from + at)
}

/// Returns the end of a JSON web token: three parts of base64url between points.
fn web_token(text: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    for part in 0..3 {
        let end = run_end(text, at, b"_-");
        if end - at < 10 {
            return None;
        }
        if part == 2 {
            return Some(end);
        }
        if text.get(end) != Some(&b'.') {
            return None;
        }
        at = end + 1;
    }
    None
}

fn begins_word(text: &[u8], at: usize) -> bool {
    let before = at.checked_sub(1).and_then(|at| text.get(at));
    !before.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

/// Returns the end of a run of letters, digits and the bytes of `also`.
fn run_end(text: &[u8], from: usize, also: &[u8]) -> usize {
    let part = |byte: &u8| byte.is_ascii_alphanumeric() || also.contains(byte);
    let rest = slice(text, from, text.len());
    from + rest.iter().position(|byte| !part(byte)).unwrap_or(rest.len())
}

fn slice(text: &[u8], from: usize, to: usize) -> &[u8] {
    text.get(from..to).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(text: &str) -> Vec<&str> {
        all(text).iter().map(|found| &text[found.start..found.end]).collect()
    }

    #[test]
    fn known_tokens_are_found() {
        let body = "Ab3dEf6hIj9kLmN0pQr5tUv8xYz1Ab3dEf6h";
        for prefix in ["sk-", "hf_", "ghp_", "github_pat_", "glpat-", "xoxb-"] {
            let token = format!("{prefix}{body}");
            assert_eq!(secrets(&format!("x {token}, y")), [token.as_str()]);
        }
        assert_eq!(secrets("id=AKIAIOSFODNN7EXAMPLE;"), ["AKIAIOSFODNN7EXAMPLE"]);
        let jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmN";
        assert_eq!(secrets(&format!("({jwt})")), [jwt]);
        let key = "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----";
        assert_eq!(secrets(&format!("a {key} b")), [key]);
        assert_eq!(secrets("a -----BEGIN PRIVATE KEY-----\nabc"), ["-----BEGIN PRIVATE KEY-----\nabc"]);
    }

    #[test]
    fn values_of_secret_options_are_found() {
        for text in [
            "run --api-key swordfish -v",
            "run --password=swordfish -v",
            "[\"run\", \"--api-key\", \"swordfish\", \"-v\"]",
            "[\n  \"--api-key\",\n  \"swordfish\"\n]",
            "- --api-key\n- swordfish\n",
            "Authorization: Bearer swordfish",
            "https://swordfish@host/x",
            "DB_PASSWORD=swordfish",
            "{\"password\": \"swordfish\"}",
            "curl --token='swordfish'",
        ] {
            assert_eq!(secrets(text), ["swordfish"], "{text}");
        }
        assert_eq!(secrets("postgres://anna:pw@db/x"), ["anna:pw"]);
    }

    #[test]
    fn other_text_is_kept() {
        for text in [
            "--max-new-tokens 8 --prompt-tokens=128",
            "--pad-token [PAD] --eos-token </s>",
            "task-sk-learn-pipeline-with-a-long-name",
            "hf_hub_download hf_config",
            "void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 64, 64, 4>>(Flash_fwd_params)",
            "{\"token_hash\": \"abcdefabcdef\", \"key\": \"decode\"}",
            "https://example.com/a@b",
            "tokenizer.pad_token=tokenizer.eos_token",
            "--password --verbose",
            "{\"api_key\": null, \"secret\": [1]}",
            "--api-key <removed> https://<removed>@host",
        ] {
            assert_eq!(secrets(text), Vec::<&str>::new(), "{text}");
        }
    }
}
