//! The place that text is rendered for: its width and its colours.

/// Width and colours of a terminal, a pipe or a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Screen {
    /// Colours and bold text.
    pub color: bool,
    /// Columns; `None` for a pipe or a file, which get lines of any length.
    pub width: Option<usize>,
}

/// The narrowest width that is respected.
const NARROWEST: usize = 40;

/// The judgement of a word or a sentence, as a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Good: green.
    Good,
    /// Worth a look: yellow.
    Notice,
    /// Bad: red.
    Bad,
}

impl Tone {
    /// Returns the tone of a status, a verdict or a judgement; `None` for a neutral or an unknown one.
    pub fn of(word: &str) -> Option<Self> {
        match word {
            "ok" | "better" | "faster" | "held" | "GPU-bound" | "complete" | "fewer calls" => {
                Some(Self::Good)
            }
            "bad" | "failed" | "worse" | "slower" | "BROKEN" | "interrupted" => Some(Self::Bad),
            "warning" | "absent" | "skipped" | "partial" | "running" | "not measured" | "more calls"
            | "within noise" | "launch-bound" | "sync-bound" | "copy-bound" | "host-bound" | "uneven"
            | "queued" | "gaps on the GPU" | "gaps between steps" => Some(Self::Notice),
            _ => None,
        }
    }
}

impl Screen {
    /// Formats a heading.
    pub fn bold(self, text: &str) -> String {
        self.styled(text, "\x1b[1m")
    }

    /// Colours text by its tone.
    pub fn toned(self, text: &str, tone: Option<Tone>) -> String {
        match tone {
            Some(Tone::Good) => self.styled(text, "\x1b[32m"),
            Some(Tone::Notice) => self.styled(text, "\x1b[33m"),
            Some(Tone::Bad) => self.styled(text, "\x1b[31m"),
            None => text.to_owned(),
        }
    }

    /// Colours a status, a verdict or a judgement. Padding around it stays as it is.
    pub fn word(self, text: &str) -> String {
        self.toned(text, Tone::of(text.trim()))
    }

    fn styled(self, text: &str, style: &str) -> String {
        if self.color && !text.is_empty() { format!("{style}{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Breaks a line at words so that it fits, and indents what follows by `indent` columns more than the line itself. A longer word
    /// and the spaces between words of one line stay as they are.
    pub fn wrapped(self, line: &str, indent: usize) -> String {
        let Some(width) = self.columns().filter(|width| visible(line) > *width) else {
            return line.to_owned();
        };
        let own = line.len() - line.trim_start_matches(' ').len();
        let mut out = " ".repeat(own);
        let (mut at, mut first, mut gap) = (own, true, 0);
        for word in line.trim_start_matches(' ').split(' ') {
            if word.is_empty() {
                gap += 1;
                continue;
            }
            let length = visible(word);
            if !first && at + gap + length > width {
                out.push('\n');
                out.push_str(&" ".repeat(own + indent));
                at = own + indent;
                first = true;
            }
            if !first {
                out.push_str(&" ".repeat(gap));
                at += gap;
            }
            out.push_str(word);
            at += length;
            (first, gap) = (false, 1);
        }
        out
    }

    /// Returns the width that is respected.
    pub(crate) fn columns(self) -> Option<usize> {
        self.width.map(|width| width.max(NARROWEST))
    }
}

/// Counts the characters of text that a terminal shows: styles take no room.
fn visible(text: &str) -> usize {
    let mut count = 0;
    let mut style = false;
    for c in text.chars() {
        match c {
            '\x1b' => style = true,
            'm' if style => style = false,
            _ if style => {}
            _ => count += 1,
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    const NARROW: Screen = Screen { color: true, width: Some(40) };

    #[test]
    fn prose_wraps_at_words() {
        let line = "  the GPU is idle 94 % of that time, because the CPU has not launched yet";
        assert_eq!(
            NARROW.wrapped(line, 2),
            "  the GPU is idle 94 % of that time,\n    because the CPU has not launched yet"
        );
        assert_eq!(Screen::default().wrapped(line, 2), line);
        let long = "x".repeat(60);
        assert_eq!(NARROW.wrapped(&long, 2), long);
        let styled = NARROW.bold(&"y".repeat(39));
        assert_eq!(NARROW.wrapped(&styled, 2), styled);
    }

    #[test]
    fn padding_between_columns_stays() {
        let line = "absent   nsys               nsys is neither on the PATH nor installed";
        assert_eq!(
            NARROW.wrapped(line, 28),
            format!(
                "absent   nsys               nsys is\n{0}neither on\n{0}the PATH nor\n{0}installed",
                " ".repeat(28)
            )
        );
    }

    #[test]
    fn colours_only_where_asked_for() {
        assert_eq!(NARROW.word("worse "), "\x1b[31mworse \x1b[0m");
        assert_eq!(NARROW.word("same"), "same");
        assert_eq!(Screen::default().word("worse"), "worse");
    }
}
