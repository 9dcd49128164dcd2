//! Text inside HTML and inside scripts: what came from a capture never becomes markup.

use std::fmt::Write;

/// Text that means itself between tags and inside a quoted attribute.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(visible(c)),
        }
    }
    out
}

/// Text cut to at most `most` characters, then escaped.
pub(super) fn escape_cut(text: &str, most: usize) -> String {
    escape(&cut(text, most))
}

/// Text cut to at most `most` characters, with an ellipsis where something was left off.
pub(super) fn cut(text: &str, most: usize) -> String {
    if text.len() <= most || text.chars().count() <= most {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(most.saturating_sub(1)).collect();
    short.push('…');
    short
}

/// A character as it is shown: control characters and those that turn the direction of writing have no say here.
pub(super) fn visible(c: char) -> char {
    match c {
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        c if c.is_control() => ' ',
        c => c,
    }
}

/// A value as JSON that can stand inside a script element: nothing in it ends the element or a line of script.
pub(super) fn script_json(value: &impl serde::Serialize) -> String {
    // Plain data always serialises; an empty object would be seen by the page's own checks.
    let json = serde_json::to_string(value).unwrap_or_else(|_| "{}".into());
    let mut out = String::with_capacity(json.len() + 64);
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out
}

/// Puts parts in the places of a template marked `{{name}}`. What is put in is not looked at again.
pub(super) fn fill(template: &str, parts: &[(&str, String)]) -> String {
    let room: usize = parts.iter().map(|p| p.1.len()).sum();
    let mut out = String::with_capacity(template.len() + room);
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        out.push_str(before);
        let Some((name, after)) = after.split_once("}}") else {
            rest = after;
            continue;
        };
        if let Some((_, part)) = parts.iter().find(|p| p.0 == name) {
            out.push_str(part);
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_becomes_markup() {
        assert_eq!(escape("<b a=\"x\">'&\n"), "&lt;b a=&quot;x&quot;&gt;&#39;&amp; ");
        assert_eq!(escape("a\u{202e}b\0"), "a\u{fffd}b ");
        let json = script_json(&["</script><!--", "\u{2028}&"]);
        assert_eq!(json, r#"["\u003c/script\u003e\u003c!--","\u2028\u0026"]"#);
        let back: Vec<String> = serde_json::from_str(&json).unwrap();
        assert_eq!(back, ["</script><!--", "\u{2028}&"]);
    }

    #[test]
    fn long_text_is_cut_by_characters() {
        assert_eq!(cut("äöüß", 4), "äöüß");
        assert_eq!(cut("äöüß", 3), "äö…");
        assert_eq!(escape_cut("<<<<", 2), "&lt;…");
    }

    #[test]
    fn a_template_is_filled_once() {
        let parts = [("a", "{{b}}".to_owned()), ("b", "no".to_owned())];
        assert_eq!(fill("x{{a}}y{{c}}z", &parts), "x{{b}}yz");
    }
}
