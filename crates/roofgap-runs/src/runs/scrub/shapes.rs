//! Secrets recognised by their shape: tokens with a known prefix, private keys, logins in URLs, headers of requests, and values
//! of options, variables and fields with a secret name; also in base64, in hexadecimal and in the encoding of URLs.

use std::ops::Range;
use std::sync::LazyLock;

use regex::bytes::{Captures, Regex, RegexBuilder};

use super::private::REMOVED;

/// What a pattern finds, in the order in which it is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Known secrets and tokens. They are long and regular, so that binary data holds none by chance.
    Secret,
    /// Home paths.
    Home,
    /// Names of users and hosts.
    Name,
    /// Names and paths that occur by chance in binary data.
    ShortName,
    /// Values of secret names, and logins of URLs, which occur by chance in compressed data.
    Field,
}

/// Tells which part of a match is private, if any.
type Place = fn(&[u8], &Captures<'_>) -> Option<Range<usize>>;

/// A pattern of private text.
#[derive(Debug)]
pub struct Pattern {
    pub kind: Kind,
    /// Description, for messages.
    pub what: String,
    find: Regex,
    place: Place,
}

impl Pattern {
    /// Makes a pattern of a regular expression, whose first group is private.
    pub fn new(kind: Kind, what: &str, expression: &str) -> Option<Self> {
        // A known secret can be long.
        let find = RegexBuilder::new(expression).unicode(false).size_limit(1 << 30).build().ok()?;
        Some(Self { kind, what: what.to_owned(), find, place: first_group })
    }

    /// Returns the text that replaces what is found.
    pub fn placeholder(&self) -> &'static str {
        if self.kind == Kind::Home { "~" } else { REMOVED }
    }

    /// Lists the private places of a text, in order.
    pub fn places(&self, text: &[u8]) -> Vec<Range<usize>> {
        let mut places = Vec::new();
        let mut from = 0;
        while let Some(found) = self.find.captures_at(text, from) {
            let place = (self.place)(text, &found);
            let end = place.as_ref().map_or_else(|| found.get_match().end(), |place| place.end);
            from = end.max(from + 1);
            places.extend(place);
            if from > text.len() {
                break;
            }
        }
        places
    }
}

fn first_group(_: &[u8], found: &Captures<'_>) -> Option<Range<usize>> {
    found.get(1).map(|group| group.range())
}

/// An escape of JSON (`\n`, `\u001b`) or the colour code of a terminal (`ESC[31m`): no part of the word after it.
const ESCAPE: &str = r"\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}|\\[a-z]|[\[;][0-9]+m";

/// An escape, also that of a URL (`%3D`), at the end of a text.
static ENDS_ESCAPE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    RegexBuilder::new(&format!("(?:{ESCAPE}|%[0-9a-fA-F]{{2}})$")).unicode(false).build().ok()
});

/// Tokens, which begin a word.
const TOKENS: [(&str, &str); 18] = [
    ("an API key (sk-)", r"sk-[\w-]{20,}"),
    ("an NVIDIA API key", r"nvapi-[\w-]{20,}"),
    ("a Hugging Face token", "hf_[a-zA-Z0-9]{20,}"),
    ("a GitHub token", "gh[pousr]_[a-zA-Z0-9]{30,}"),
    ("a GitHub token", r"github_pat_\w{20,}"),
    ("a GitLab token", r"glpat-[\w-]{20,}"),
    ("a Slack token", "xox[bpars]-[a-zA-Z0-9-]{10,}"),
    ("a Google API key", r"AIza[\w-]{35,}"),
    ("a Google token", r"ya29\.[\w-]{30,}"),
    ("an npm token", "npm_[a-zA-Z0-9]{36,}"),
    ("a PyPI token", r"pypi-[\w-]{50,}"),
    ("a Docker token", r"dckr_pat_[\w-]{20,}"),
    ("a Groq API key", "gsk_[a-zA-Z0-9]{40,}"),
    ("a Vault token", r"hvs\.[\w-]{20,}"),
    ("a Stripe key", "sk_live_[a-zA-Z0-9]{20,}"),
    ("a Replicate token", "r8_[a-zA-Z0-9]{37,}"),
    ("an AWS key", r"(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    ("a JSON web token", r"eyJ[\w-]{7,}\.[\w-]{10,}\.[\w-]{10,}"),
];

/// A private key; without an end, the rest of the text may be the key.
const PRIVATE_KEY: &str = r"(?s)(-----BEGIN .{0,70}?PRIVATE KEY-----(?:.*?-----END .{0,70}?-----|.*\z))";

/// A login in a URL: `scheme://user:password@host`.
const LOGIN: &str = r#"://([^\s/?\#"'<>\\,;)]+)@"#;

/// A token of an HTTP header.
const BEARER: &str = r"[Bb]earer(?: |%20)([\w.~+/=-]{8,})";

/// A name that may be that of a secret, and what is between it and its value: of an option (`--api-key X`, also as words of a JSON or
/// YAML list), an assignment (`password=X`), a field (`"password": "X"`) or a header (`Authorization: X`).
const NAME: &str = r#"([\w.-]*(?i:secret|key|token|pass|pwd|credential|authorization|cookie)[\w.-]*)["'\\]*(=|:[ \t]*|[\s,]+(?:- )?)["'\\]*"#;

/// A word that may be an encoded text.
const WORD: &str = r"([\w+/%.~-]{16,})";

/// The shapes in the order in which they are removed: what can be a part of another comes after it.
pub static SHAPES: LazyLock<Vec<Pattern>> = LazyLock::new(|| {
    let with = |place| move |pattern| Pattern { place, ..pattern };
    let mut shapes = vec![
        Pattern::new(Kind::Secret, "a private key", PRIVATE_KEY),
        Pattern::new(
            Kind::Field,
            "the value of a secret option",
            &format!("(?:{ESCAPE}|%[0-9a-fA-F]{{2}})?{NAME}"),
        )
        .map(with(named_value)),
        Pattern::new(Kind::Field, "a login in a URL", LOGIN),
        Pattern::new(Kind::Field, "a bearer token", BEARER),
    ];
    let token = |(what, body)| Pattern::new(Kind::Secret, what, &format!("({body})")).map(with(token));
    shapes.extend(TOKENS.map(token));
    let word = Pattern::new(Kind::Field, "an encoded secret", &format!("(?:{ESCAPE})?{WORD}"));
    shapes.push(word.map(with(encoded)));
    shapes.into_iter().flatten().collect()
});

/// Finds a token: not inside of a word.
fn token(text: &[u8], found: &Captures<'_>) -> Option<Range<usize>> {
    let place = first_group(text, found)?;
    let (before, secret) = (text.get(place.start.saturating_sub(8)..place.start)?, text.get(place.clone())?);
    let is_inside = before.last().is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
        && !ENDS_ESCAPE.as_ref().is_some_and(|escape| escape.is_match(before));
    // Words with hyphens begin with `sk-` too; other tokens may be letters alone.
    let is_random = !secret.starts_with(b"sk-") || secret.iter().any(u8::is_ascii_digit);
    (!is_inside && is_random).then_some(place)
}

/// Finds the value of a secret name.
fn named_value(text: &[u8], found: &Captures<'_>) -> Option<Range<usize>> {
    let name = std::str::from_utf8(found.get(1)?.as_bytes()).ok()?;
    let is_option = name.starts_with("--");
    let fits = match found.get(2)?.as_bytes().first()? {
        b'=' => true,
        b':' => !is_option,
        _ => is_option,
    };
    let start = found.get_match().end();
    let length = value_length(name, is_option, text.get(start..)?);
    (fits && is_secret_name(name) && length > 0).then_some(start..start + length)
}

/// Finds a word that is the encoding of a text with a secret: base64, hexadecimal, or that of URLs.
fn encoded(text: &[u8], found: &Captures<'_>) -> Option<Range<usize>> {
    let place = first_group(text, found)?;
    let word = text.get(place.clone())?;
    // Other words give bytes that are no text.
    let is_text =
        |bytes: &Vec<u8>| bytes.iter().all(|byte| matches!(byte, b'\t'..=b'\r' | 0x1b | b' '..=b'~'));
    let mut decoded = [from_hex(word), from_url(word), from_base64(word)].into_iter().flatten();
    let decoded = decoded.find(is_text)?;
    SHAPES.iter().any(|shape| !shape.places(&decoded).is_empty()).then_some(place)
}

fn from_hex(word: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let pair = |pair: &[u8]| match pair {
        [high, low] => u8::try_from(digit(high)? * 16 + digit(low)?).ok(),
        _ => None,
    };
    word.chunks(2).map(pair).collect()
}

/// Decodes a word of a URL; `None` where nothing in it is encoded.
fn from_url(word: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((byte, after)) = rest.split_first() {
        let decoded = after.get(..2).filter(|_| *byte == b'%').and_then(from_hex);
        out.push(decoded.as_ref().and_then(|bytes| bytes.first()).copied().unwrap_or(*byte));
        rest = after.get(if decoded.is_some() { 2 } else { 0 }..).unwrap_or_default();
    }
    (out.len() < word.len()).then_some(out)
}

/// Decodes base64 of the usual alphabet or that of URLs; digits that make no whole byte are left out.
fn from_base64(word: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(word.len() / 4 * 3);
    let (mut bits, mut count) = (0_u32, 0);
    for byte in word {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(digit);
        count += 6;
        if count >= 8 {
            count -= 8;
            // The low byte of what is complete.
            out.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    Some(out)
}

/// Words before `token` in the name of a token of text, or of a number of them.
const TOKENS_OF_TEXT: [&str; 16] = [
    "pad", "eos", "bos", "unk", "sep", "cls", "mask", "image", "per", "first", "next", "last", "stop",
    "start", "end", "special",
];

/// Returns true for the name of an option, variable or field that holds a secret. `max-new-tokens`, `pad_token` and `PWD` are none.
pub fn is_secret_name(name: &str) -> bool {
    let words = words(name.trim_start_matches('-'));
    let mut words = words.iter().rev().map(String::as_str);
    let (last, before) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    match last {
        "secret" | "apikey" | "credential" | "credentials" => true,
        "token" => !TOKENS_OF_TEXT.contains(&before),
        "pass" | "pwd" => !before.is_empty(),
        "key" => ["api", "access", "account", "secret", "private", "auth"].contains(&before),
        last => is_header(last) || ["password", "passwd", "passphrase"].iter().any(|end| last.ends_with(end)),
    }
}

/// Returns true for the last word of a header whose whole value is secret.
fn is_header(last: &str) -> bool {
    last.ends_with("authorization") || last.ends_with("cookie")
}

/// Splits a name into its words, in lowercase: `access-token`, `ACCESS_TOKEN` and `accessToken` have the same.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        if !c.is_ascii_alphanumeric() || (was_lower && c.is_ascii_uppercase()) {
            words.push(String::new());
        }
        was_lower = c.is_ascii_lowercase();
        if let Some(word) = words.last_mut().filter(|_| c.is_ascii_alphanumeric()) {
            word.push(c.to_ascii_lowercase());
        }
    }
    words
}

/// Returns the length of the secret at the start of a text that follows a secret name; 0 where there is none.
pub fn value_length(name: &str, is_option: bool, value: &[u8]) -> usize {
    let words = words(name);
    let last = words.last().map_or("", String::as_str);
    // A header has blanks in its value.
    let header = is_header(last);
    let stops = |byte: &u8| {
        b"\"'<>\\\r\n".contains(byte) || (!header && (byte.is_ascii_whitespace() || b",;&".contains(byte)))
    };
    let length = value.iter().position(stops).unwrap_or(value.len());
    let text = value.get(..length).unwrap_or_default();
    let is_token = last.ends_with("token");
    let is_word = matches!(text, b"null" | b"None" | b"true" | b"false" | b"True" | b"False");
    let is_structure = value.first().is_none_or(|byte| b"[]{}()".contains(byte));
    // A number of tokens, and code such as `pad_token=tokenizer.eos_token`, are no secrets. A special token of a tokenizer, such
    // as `[PAD]`, is short.
    let is_number = || {
        std::str::from_utf8(text)
            .is_ok_and(|text| text.trim_end_matches(['}', ']', ')']).parse::<f64>().is_ok())
    };
    let is_code = || {
        let plain = words.len() == 1 || text.contains(&b'.');
        !is_option && plain && !text.iter().any(u8::is_ascii_digit)
    };
    let is_no_token = is_token && (length < 8 || is_number() || is_code());
    if is_word || is_structure || is_no_token || value.starts_with(b"--") { 0 } else { length }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(text: &str) -> Vec<&str> {
        // What a shape finds is removed before the next one looks.
        let mut rest = text.as_bytes().to_vec();
        let mut places = Vec::new();
        for shape in SHAPES.iter() {
            for place in shape.places(&rest) {
                rest[place.clone()].fill(b'<');
                places.push(place);
            }
        }
        places.sort_by_key(|place| place.start);
        places.into_iter().map(|place| &text[place]).collect()
    }

    #[test]
    fn every_shape_is_a_regular_expression() {
        assert_eq!(SHAPES.len(), TOKENS.len() + 5);
    }

    #[test]
    fn known_tokens_are_found() {
        let body = "Ab3dEf6hIj9kLmN0pQr5tUv8xYz1Ab3dEf6h";
        for prefix in ["sk-", "nvapi-", "hf_", "ghp_", "github_pat_", "glpat-", "xoxb-"] {
            let token = format!("{prefix}{body}");
            // Alone, in a string of JSON, of a URL, and after the colour codes of a terminal.
            for before in
                ["x ", "\\n", "\\\\n", "\\u001b[0m", "%3D", "\x1b[31m", "\x1b[1;31m", "\n", "=", "\""]
            {
                assert_eq!(secrets(&format!("{before}{token}, y")), [token.as_str()], "{before:?}");
            }
        }
        assert_eq!(secrets("hf_OnlyLettersAreATokenToo"), ["hf_OnlyLettersAreATokenToo"]);
        assert_eq!(secrets("id=AKIAIOSFODNN7EXAMPLE;"), ["AKIAIOSFODNN7EXAMPLE"]);
        let jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmN";
        assert_eq!(secrets(&format!("({jwt})")), [jwt]);
        let key = "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----";
        assert_eq!(secrets(&format!("a {key} b")), [key]);
        assert_eq!(secrets("a -----BEGIN PRIVATE KEY-----\nabc"), ["-----BEGIN PRIVATE KEY-----\nabc"]);
    }

    #[test]
    fn values_of_secret_names_are_found() {
        for text in [
            "run --api-key swordfish -v",
            "run --password=swordfish -v",
            "[\"run\", \"--api-key\", \"swordfish\", \"-v\"]",
            "[\n  \"--api-key\",\n  \"swordfish\"\n]",
            "- --api-key\n- swordfish\n",
            "Authorization: Bearer swordfish",
            "https://swordfish@host/x",
            "DB_PASSWORD=swordfish",
            "PGPASSWORD=swordfish",
            "DB_PASS=swordfish",
            "export DB_PWD='swordfish'",
            "AccountName=x;AccountKey=swordfish;EndpointSuffix=y",
            "{\"password\": \"swordfish\"}",
            "{\"accessToken\": \"swordfish\"}",
            "{\"clientSecret\":\"swordfish\"}",
            "{\"log\": \"one\\npassword=swordfish\\ntwo\"}",
            "\x1b[32mDB_PASS=swordfish",
            "\\u001b[0mapi_key=swordfish",
            "C:\\password=swordfish",
            "curl --token='swordfish'",
        ] {
            let found = secrets(text);
            assert!(found == ["swordfish"] || found == ["Bearer swordfish"], "{text}: {found:?}");
        }
        assert_eq!(secrets("postgres://anna:pw@db/x"), ["anna:pw"]);
        assert_eq!(secrets("Authorization: Basic dTpw\nnext"), ["Basic dTpw"]);
        assert_eq!(secrets("{\"authorization\": \"Negotiate a b\", \"x\": 1}"), ["Negotiate a b"]);
        assert_eq!(secrets("-H 'Cookie: id=1; other=2' -v"), ["id=1; other=2"]);
        assert_eq!(secrets("Set-Cookie: id=1"), ["id=1"]);
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
            "time per token: 12345.678 us, {\"us_per_token\": 12345.678, \"token\": 123456.789}",
            "PWD=/home OLDPWD=/tmp",
            "--password --verbose",
            "{\"api_key\": null, \"secret\": [1]}",
            "--api-key <removed> https://<removed>@host Authorization: <removed>",
        ] {
            assert_eq!(secrets(text), Vec::<&str>::new(), "{text}");
        }
    }
}
