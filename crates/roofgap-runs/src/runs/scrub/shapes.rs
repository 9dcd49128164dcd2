//! Secrets recognised by their shape: tokens with a known prefix, private keys, logins in URLs, headers of requests, and values
//! of options, variables and fields with a secret name; also in base64, in hexadecimal and in the encoding of URLs.

use memchr::memmem;

/// A secret in a text, by byte offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    pub start: usize,
    pub end: usize,
    /// Kind of secret, for messages.
    pub what: &'static str,
}

/// Tokens: prefixes between blanks, least number of further characters, further characters besides letters and digits, and kind.
const PREFIXES: [(&str, usize, &[u8], &str); 16] = [
    ("sk-", 20, b"_-", "an API key (sk-)"),
    ("nvapi-", 20, b"_-", "an NVIDIA API key"),
    ("hf_", 20, b"", "a Hugging Face token"),
    ("ghp_ gho_ ghu_ ghs_ ghr_", 30, b"", "a GitHub token"),
    ("github_pat_", 20, b"_", "a GitHub token"),
    ("glpat-", 20, b"_-", "a GitLab token"),
    ("xoxb- xoxp- xoxa- xoxr- xoxs-", 10, b"-", "a Slack token"),
    ("AIza", 35, b"_-", "a Google API key"),
    ("ya29.", 30, b"_-", "a Google token"),
    ("npm_", 36, b"", "an npm token"),
    ("pypi-", 50, b"_-", "a PyPI token"),
    ("dckr_pat_", 20, b"_-", "a Docker token"),
    ("gsk_", 40, b"", "a Groq API key"),
    ("hvs.", 20, b"_-", "a Vault token"),
    ("sk_live_", 20, b"", "a Stripe key"),
    ("r8_", 37, b"", "a Replicate token"),
];

/// Longest secret that is found across two reads of a stream, bytes.
pub const LONGEST: usize = 4 << 10;

/// Finds tokens and private keys. They are long and regular, so that binary data holds none by chance.
pub fn tokens(text: &[u8]) -> Vec<Found> {
    let mut found = Vec::new();
    for (prefixes, least, also, what) in PREFIXES {
        let starts = |prefix: &'static str| memmem::find_iter(text, prefix).map(move |start| (prefix, start));
        for (prefix, start) in prefixes.split(' ').flat_map(starts) {
            let body = start + prefix.len();
            let end = run_end(text, body, also);
            // Words with hyphens begin with `sk-` too; other tokens may be letters alone.
            let is_random = prefix != "sk-" || slice(text, body, end).iter().any(u8::is_ascii_digit);
            if begins_word(text, start) && end - body >= least && is_random {
                found.push(Found { start, end, what });
            }
        }
    }
    for prefix in ["AKIA", "ASIA"] {
        for start in memmem::find_iter(text, prefix) {
            let end = run_end(text, start, b"_");
            let is_part = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit();
            if begins_word(text, start) && end - start == 20 && slice(text, start, end).iter().all(is_part) {
                found.push(Found { start, end, what: "an AWS key" });
            }
        }
    }
    for start in memmem::find_iter(text, "eyJ") {
        if begins_word(text, start)
            && let Some(end) = web_token(text, start)
        {
            found.push(Found { start, end, what: "a JSON web token" });
        }
    }
    for start in memmem::find_iter(text, "-----BEGIN ") {
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
pub fn all(text: &[u8]) -> Vec<Found> {
    let mut found = written(text);
    encoded(text, &mut found);
    found.sort_by_key(|secret| (secret.start, std::cmp::Reverse(secret.end)));
    found.dedup_by(|next, kept| next.start < kept.end);
    found
}

/// Finds the secrets that a text has as they are.
fn written(text: &[u8]) -> Vec<Found> {
    let mut found = tokens(text);
    logins(text, &mut found);
    bearers(text, &mut found);
    named_values(text, &mut found);
    found
}

/// Least length of an encoding that is decoded, bytes.
const LEAST_ENCODED: usize = 16;

/// Finds words that are the encoding of a text with secrets: base64, hexadecimal, or that of URLs. Each is removed whole.
fn encoded(text: &[u8], found: &mut Vec<Found>) {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/-_%.~".contains(byte);
    let mut at = 0;
    while at < text.len() {
        let rest = slice(text, at, text.len());
        let length = rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len());
        let (start, end) = (at + escape_at(text, at).min(length), at + length);
        at = end + 1;
        let word = slice(text, start, end);
        if word.len() < LEAST_ENCODED {
            continue;
        }
        let mut decoded = [from_hex(word), from_url(word), from_base64(word)].into_iter().flatten();
        // Other words give bytes that are no text.
        let is_text =
            |bytes: &[u8]| bytes.iter().all(|byte| matches!(byte, b'\t'..=b'\r' | 0x1b | b' '..=b'~'));
        let secrets = decoded.find(|bytes| is_text(bytes)).map(|bytes| written(&bytes)).unwrap_or_default();
        let known = || found.iter().filter(|known| start <= known.start && known.end <= end).count();
        if let Some(secret) = secrets.first()
            && secrets.len() > known()
        {
            found.push(Found { start, end, what: secret.what });
        }
    }
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

/// Finds the values of options (`--api-key X`, also as words of a JSON or YAML list), assignments (`password=X`), fields
/// (`"password": "X"`) and headers (`Authorization: X`) with a secret name.
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
        // An option begins after an escape.
        let names = [at + escape_at(text, at), at].map(|start| slice(text, start, end));
        let mut names = names.iter().filter_map(|name| std::str::from_utf8(name).ok());
        at = end;
        let Some(name) = names.find(|name| is_secret_name(name)) else {
            continue;
        };
        let is_option = name.starts_with("--");
        let Some(start) = value_start(text, end, is_option) else {
            continue;
        };
        let value = slice(text, start, text.len());
        let length = value_length(name, is_option, value);
        if length > 0 {
            found.push(Found { start, end: start + length, what: "the value of a secret option" });
            at = start + length;
        }
    }
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
    let text = slice(value, 0, length);
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

/// Returns the start of the value after a name that ends at `from`.
fn value_start(text: &[u8], from: usize, is_option: bool) -> Option<usize> {
    let gap = slice(text, from, text.len().min(from + GAP));
    let quotes = |byte: &u8| b"\"'\\".contains(byte);
    let blank = |byte: &u8| byte.is_ascii_whitespace();
    let mut at = 0;
    let skip = |at: &mut usize, accepts: &dyn Fn(&u8) -> bool| {
        while gap.get(*at).is_some_and(accepts) {
            *at += 1;
        }
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
    let part = |start: usize| Some(run_end(text, start, b"_-")).filter(|end| end - start >= 10);
    let after_point = |end: usize| (text.get(end) == Some(&b'.')).then_some(end + 1);
    let second = after_point(part(start)?)?;
    part(after_point(part(second)?)?)
}

/// Returns true where a token can begin: not inside a word. What an escape or a colour code ends with is no part of a word.
fn begins_word(text: &[u8], at: usize) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let word = slice(text, 0, at).iter().rev().take_while(|byte| is_part(byte)).count();
    word == 0 || word == escape_at(text, at - word)
}

/// Returns the number of letters and digits at `at` that belong to what is before: to an escape of JSON (`\n`, `\u001b`), of a URL
/// (`%3D`) or to the colour code of a terminal (`ESC[31m`).
fn escape_at(text: &[u8], at: usize) -> usize {
    let (before, rest) = (slice(text, 0, at), slice(text, at, text.len()));
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    match (before.last(), rest.first()) {
        (Some(b'%'), _) => 2,
        // `1;31m` is one code.
        (Some(b'[' | b';'), _) if rest.get(digits) == Some(&b'm') => digits + 1,
        (Some(b'\\'), Some(b'u')) => 5,
        (Some(b'\\'), Some(b'x')) => 3,
        (Some(b'\\'), Some(_)) => 1,
        _ => 0,
    }
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
        all(text.as_bytes()).iter().map(|found| &text[found.start..found.end]).collect()
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
