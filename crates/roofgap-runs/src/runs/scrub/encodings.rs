//! The forms in which a known secret appears in files.

use roofgap_base::text::{base64, hex};

/// Least length of a form in base64 or hexadecimal. Shorter ones occur by chance.
const LEAST: usize = 8;

/// Lists the forms of a secret: plain, escaped as in JSON, quoted for a shell, for HTML, URL-encoded, UTF-16, base64 and
/// hexadecimal; each also in a string of JSON.
pub fn of(secret: &str) -> Vec<String> {
    let mut forms = vec![secret.to_owned(), json(secret), json(&json(secret))];
    forms.push(secret.replace('\'', "'\\''"));
    forms.push(secret.replace('\'', "'\"'\"'"));
    forms.push(escaped(secret, |c| !is_plain(c)));
    forms.push(escaped(secret, |c| "\"\\$`".contains(c)));
    forms.push(url(secret, "0123456789ABCDEF"));
    forms.push(url(secret, "0123456789abcdef"));
    forms.push(url(secret, "0123456789ABCDEF").replace("%20", "+"));
    for quote in ["&#39;", "&#x27;", "&apos;", "'"] {
        forms.push(html(secret, quote));
    }
    if secret.is_ascii() {
        // Without the last zero it is part of both byte orders.
        let letters: Vec<String> = secret.chars().map(String::from).collect();
        forms.push(letters.join("\0"));
    }
    let hex = hex(secret.as_bytes());
    let encoded = (0..3).flat_map(|offset| {
        let standard = base64_after(offset, secret.as_bytes());
        let for_urls = standard.replace('+', "-").replace('/', "_");
        [standard, for_urls]
    });
    let encoded = encoded.chain([hex.to_ascii_uppercase(), hex]);
    forms.extend(encoded.filter(|form| form.len() >= LEAST));
    // Each form may be in a string of JSON.
    let in_json: Vec<String> = forms.iter().map(|form| json(form)).collect();
    forms.extend(in_json);
    let mut seen = std::collections::HashSet::new();
    forms.retain(|form| seen.insert(form.clone()));
    forms
}

fn json(text: &str) -> String {
    let quoted = serde_json::to_string(text).unwrap_or_default();
    let inside = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    inside.unwrap_or_default().to_owned()
}

/// Returns true for a character that no shell or URL escapes.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.~".contains(c)
}

fn escaped(text: &str, special: impl Fn(char) -> bool) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if special(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// Escapes a text for HTML, with `quote` for a single quote.
fn html(text: &str, quote: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', quote)
}

fn url(text: &str, digits: &str) -> String {
    let digit = |value: u8| char::from(digits.as_bytes().get(usize::from(value)).copied().unwrap_or(b'0'));
    let mut out = String::new();
    for byte in text.bytes() {
        if is_plain(char::from(byte)) {
            out.push(char::from(byte));
        } else {
            out.extend(['%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
    out
}

/// Returns the characters of base64 that depend on the secret alone, where `offset` bytes precede it in its group of three.
fn base64_after(offset: usize, secret: &[u8]) -> String {
    let bytes = [&vec![0; offset], secret].concat();
    let (start, end) = ((offset * 8).div_ceil(6), bytes.len() * 8 / 6);
    base64(&bytes).get(start..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(secret: &str, text: &str) -> bool {
        of(secret).iter().any(|form| text.contains(form.as_str()))
    }

    #[test]
    fn every_form_is_known() {
        let secret = "p@ss 'w\"ord$1";
        for text in [
            r#"p@ss 'w"ord$1"#,
            r#"p@ss 'w\"ord$1"#,
            r#"'p@ss '\''w"ord$1'"#,
            r#"p\@ss\ \'w\"ord\$1"#,
            "p%40ss%20%27w%22ord%241",
            "p%40ss+%27w%22ord%241",
            "p@ss &#39;w&quot;ord$1",
            r#"p@ss '\\''w\"ord$1"#,
        ] {
            assert!(known(secret, text), "{text}");
        }
        // echo -n, with 0, 1 and 2 bytes before it.
        for text in ["c3dvcmRmaXNoLTEy", "eHN3b3JkZmlzaC0xMg==", "eHlzd29yZGZpc2gtMTI="] {
            assert!(known("swordfish-12", text), "{text}");
        }
        assert!(known("swordfish-12", "73776f7264666973682d3132"));
        let utf16: Vec<u8> = "swordfish-12".encode_utf16().flat_map(u16::to_be_bytes).collect();
        assert!(known("swordfish-12", std::str::from_utf8(&utf16).unwrap()));
    }
}
