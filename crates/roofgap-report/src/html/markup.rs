//! Text for HTML and for scripts: characters from a capture never become markup.

use maud::{Markup, html};
use std::fmt::Write;

/// Renders a sentence on a missing part.
pub fn absent(sentence: &str) -> Markup {
    html! { p.absent { (sentence) } }
}

/// Returns the character to show: control characters become spaces, and those that reverse the writing direction a
/// replacement character.
pub fn visible(c: char) -> char {
    match c {
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        c if c.is_control() => ' ',
        c => c,
    }
}

/// Replaces invisible characters in text or markup, except for line ends.
pub fn visible_text(text: &str) -> String {
    let shown = |c| if c == '\n' { c } else { visible(c) };
    text.chars().map(shown).collect()
}

/// Serializes a value as JSON that can stand in a script element: nothing in it ends the element or a line of script.
pub fn script_json(value: &impl serde::Serialize) -> String {
    // Plain data always serializes; the script of the page would notice an empty object.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_becomes_markup() {
        assert_eq!(visible_text("a\u{202e}b\0\n"), "a\u{fffd}b \n");
        let json = script_json(&["</script><!--", "\u{2028}&"]);
        assert_eq!(json, r#"["\u003c/script\u003e\u003c!--","\u2028\u0026"]"#);
        let back: Vec<String> = serde_json::from_str(&json).unwrap();
        assert_eq!(back, ["</script><!--", "\u{2028}&"]);
    }
}
