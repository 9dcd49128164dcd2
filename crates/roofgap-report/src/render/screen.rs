//! The place that text is rendered for: its width, its colours, and tables that fit.

use crate::document::table::{Heading, Table};
use roofgap_analyze::StageLimit;
use roofgap_base::text::without_controls;

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

/// A judgement as a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Good: green.
    Good,
    /// Worth a look: yellow.
    Notice,
    /// Bad: red.
    Bad,
}

impl From<StageLimit> for Tone {
    fn from(limit: StageLimit) -> Self {
        if limit == StageLimit::Gpu { Self::Good } else { Self::Notice }
    }
}

impl Tone {
    /// Returns the tone of the status of a phase, a run or a tool; `None` for one that is neither good nor bad.
    fn of_status(status: &str) -> Option<Self> {
        match status {
            "ok" | "complete" => Some(Self::Good),
            "bad" | "failed" | "interrupted" => Some(Self::Bad),
            "warning" | "absent" | "skipped" | "partial" | "running" => Some(Self::Notice),
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

    /// Colours the status of a phase, a run or a tool. Padding around it stays as it is.
    pub fn status(self, text: &str) -> String {
        self.toned(text, Tone::of_status(text.trim()))
    }

    fn styled(self, text: &str, style: &str) -> String {
        if self.color && !text.trim().is_empty() { format!("{style}{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Breaks a line at words so that it fits, and indents what follows by `indent` columns more than the line itself. A longer word
    /// and the spaces between words of one line stay as they are.
    pub fn wrapped(self, line: &str, indent: usize) -> String {
        let Some(width) = self.columns().filter(|width| visible(line) > *width) else {
            return line.to_owned();
        };
        let start = line.len() - line.trim_start_matches(' ').len();
        let mut out = " ".repeat(start);
        let (mut at, mut first, mut gap) = (start, true, 0);
        for word in line.trim_start_matches(' ').split(' ') {
            if word.is_empty() {
                gap += 1;
                continue;
            }
            let length = visible(word);
            if !first && at + gap + length > width {
                at = start + indent;
                out.push('\n');
                out.push_str(&" ".repeat(at));
            } else if !first {
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
    fn columns(self) -> Option<usize> {
        self.width.map(|width| width.max(NARROWEST))
    }
}

/// Counts the characters of text that a terminal shows: styles take no room.
fn visible(text: &str) -> usize {
    let mut style = false;
    let shown = |c: &char| {
        let hidden = style || *c == '\x1b';
        style = hidden && *c != 'm';
        !hidden
    };
    text.chars().filter(shown).count()
}

/// Renders columns for a terminal. A column whose name ends in `>` is aligned to the right; a `status` has its colour.
pub fn columns<const N: usize>(
    names: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
    screen: Screen,
) -> String {
    let mut table = Table::new(&names);
    table.rows.extend(rows.into_iter().map(Vec::from));
    if let Some(at) = names.iter().position(|name| *name == "status") {
        table.tones = table.rows.iter().map(|row| Tone::of_status(&row[at])).collect();
        table.headings[at].judged = true;
    }
    table.text(screen)
}

impl Table {
    /// Returns the columns of a terminal that it needs.
    pub(crate) fn width(&self) -> usize {
        let lines = self.lines(without_controls);
        let columns = self.headings.len();
        (0..columns).map(|i| widest(&lines, i)).sum::<usize>() + GAP * columns.saturating_sub(1)
    }

    /// Renders the table for a terminal, with two spaces between columns. In a narrow one, columns give way and names shrink.
    pub(crate) fn text(&self, screen: Screen) -> String {
        if self.is_empty() {
            return String::new();
        }
        let mut lines = self.lines(without_controls);
        let mut headings = self.headings.clone();
        // The line of each row begins with its first cell; other lines of a row have no judgement.
        let mut rows: Vec<Option<usize>> = (0..lines.len()).map(|line| line.checked_sub(1)).collect();
        if let Some(width) = screen.columns() {
            (headings, lines, rows) = fit(&headings, &lines, width);
        }
        align(&headings, &mut lines);
        let line = |(line, row): (Vec<String>, Option<usize>)| {
            let tone = row.and_then(|row| *self.tones.get(row)?);
            let cells = line.iter().zip(&headings).enumerate().map(|(i, (cell, heading))| {
                let cell = if i + 1 == line.len() { cell.trim_end() } else { cell };
                screen.toned(cell, tone.filter(|_| heading.judged))
            });
            format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
        };
        lines.into_iter().zip(rows).map(line).collect()
    }
}

/// Pads every cell to the width of its column.
pub fn align(headings: &[Heading], lines: &mut [Vec<String>]) {
    for (i, heading) in headings.iter().enumerate() {
        let width = widest(lines, i);
        for cell in lines.iter_mut().filter_map(|line| line.get_mut(i)) {
            *cell = if heading.numeric { format!("{cell:>width$}") } else { format!("{cell:<width$}") };
        }
    }
}

/// Returns the width of a column.
fn widest(lines: &[Vec<String>], column: usize) -> usize {
    lines.iter().filter_map(|line| Some(length(line.get(column)?))).max().unwrap_or(0).max(3)
}

/// Columns in the order in which they give way.
const GIVE_WAY: [&str; 32] = [
    "sha256",
    "schema version",
    "CPU wall ms",
    "other ms",
    "copy ms",
    "sync ms",
    "link",
    "mode",
    "size",
    "host memory",
    "domain",
    "hidden ms",
    "noise",
    "block",
    "instances",
    "kernels",
    "family",
    "L2 %",
    "memory %",
    "mean µs",
    "mean ms",
    "FLOP/B",
    "overlapped %",
    "ranks",
    "calls",
    "launches",
    "occupancy %",
    "device",
    "model",
    "head ms",
    "base ms",
    "share %",
];

/// Columns of sentences and lists, which wrap.
const PROSE: [&str; 4] = ["why", "meaning", "purpose", "stages"];

/// Columns of text that are of no use in part: a hash, and ids that a user types.
const WHOLE: [&str; 3] = ["sha256", "finding", "run"];

/// Widths below which the first column, a column of sentences and any other text do not shrink while a column can give way.
const LEAST_NAME: usize = 32;
const LEAST_PROSE: usize = 24;
const LEAST_TEXT: usize = 12;

/// Width below which a column of text does not shrink at all.
const SMALLEST: usize = 8;

/// Space between two columns.
const GAP: usize = 2;

/// Fits the lines of a table, of which the first has the headings, into a width. Returns the headings that are left, the lines, and
/// the row that begins with each line.
fn fit(
    headings: &[Heading],
    lines: &[Vec<String>],
    width: usize,
) -> (Vec<Heading>, Vec<Vec<String>>, Vec<Option<usize>>) {
    let natural: Vec<usize> = (0..headings.len()).map(|i| widest(lines, i)).collect();
    let named = |i: usize, names: &[&str]| names.contains(&headings[i].name.as_str());
    let rigid = |i: usize| headings[i].numeric || named(i, &WHOLE);
    let least = |i: usize| match i {
        _ if rigid(i) => natural[i],
        0 => natural[i].min(LEAST_NAME),
        _ if named(i, &PROSE) => natural[i].min(LEAST_PROSE),
        _ => natural[i].min(LEAST_TEXT),
    };
    let total = |kept: &[usize], width_of: &dyn Fn(usize) -> usize| {
        kept.iter().map(|i| width_of(*i)).sum::<usize>() + GAP * kept.len().saturating_sub(1)
    };
    let mut kept: Vec<usize> = (0..headings.len()).collect();
    for name in GIVE_WAY {
        if total(&kept, &least) <= width {
            break;
        }
        kept.retain(|i| *i == 0 || headings[*i].name != name);
    }
    while total(&kept, &least) > width && kept.len() > 2 {
        kept.pop();
    }
    let mut widths: Vec<usize> = kept.iter().map(|i| natural[*i]).collect();
    let excess = total(&kept, &|i| natural[i]).saturating_sub(width);
    for _ in 0..excess {
        let texts = kept.iter().zip(widths.iter_mut()).filter(|(i, width)| !rigid(**i) && **width > SMALLEST);
        let Some((_, widest)) = texts.max_by_key(|(_, width)| **width) else { break };
        *widest -= 1;
    }
    let (mut fitted, mut rows) = (Vec::new(), Vec::new());
    for (at, line) in lines.iter().enumerate() {
        let cell = |(i, width): (&usize, &usize)| {
            let cell = line.get(*i).map_or("", String::as_str);
            if named(*i, &PROSE) { wrapped(cell, *width) } else { vec![shrunk(cell, *width)] }
        };
        let cells: Vec<Vec<String>> = kept.iter().zip(&widths).map(cell).collect();
        for part in 0..cells.iter().map(Vec::len).max().unwrap_or(1) {
            fitted.push(cells.iter().map(|cell| cell.get(part).cloned().unwrap_or_default()).collect());
            rows.push(at.checked_sub(1).filter(|_| part == 0));
        }
    }
    (kept.iter().map(|i| headings[*i].clone()).collect(), fitted, rows)
}

fn length(text: &str) -> usize {
    text.chars().count()
}

/// Shortens text from the middle: both ends of a kernel's name tell more than its middle.
fn shrunk(text: &str, width: usize) -> String {
    let all = length(text);
    if all <= width {
        return text.to_owned();
    }
    let kept = width.saturating_sub(1);
    let tail = kept / 3;
    let start = text.chars().take(kept - tail);
    start.chain(['…']).chain(text.chars().skip(all - tail)).collect()
}

/// Breaks a sentence at words into lines of a width. A longer word is broken.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        if let Some(line) = lines.last_mut()
            && length(line) + 1 + length(word) <= width
        {
            line.push(' ');
            line.push_str(word);
            continue;
        }
        let letters: Vec<char> = word.chars().collect();
        lines.extend(letters.chunks(width.max(1)).map(String::from_iter));
    }
    if lines.is_empty() { vec![String::new()] } else { lines }
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
        assert_eq!(NARROW.status("failed "), "\x1b[31mfailed \x1b[0m");
        assert_eq!(NARROW.status("new"), "new");
        assert_eq!(Screen::default().status("failed"), "failed");
    }

    fn narrow(width: usize) -> Screen {
        Screen { color: false, width: Some(width) }
    }

    #[test]
    fn columns_give_way_before_names_shrink() {
        let mut table = Table::new(&["kernel", "family", "total ms>", "calls>", "mean µs>"]);
        let name = "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64>>";
        table.row([name, "attention", "1,234.567", "1,024", "12.34"].map(str::to_owned));
        let text = table.text(narrow(60));
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
        assert!(text.contains("void flash::flash") && text.contains("64>>"), "{text}");
        assert!(!text.contains("family"), "{text}");
        assert!(text.contains("1,234.567"), "{text}");
        let whole = table.text(Screen::default());
        assert!(whole.contains(name) && whole.contains("family"), "{whole}");
    }

    #[test]
    fn reasons_wrap_inside_their_column() {
        let mut table = Table::new(&["phase", "why"]);
        table.row(
            ["counters", "ncu may not read the counters of this GPU without permission"].map(str::to_owned),
        );
        assert_eq!(
            table.text(narrow(42)),
            "phase     why\ncounters  ncu may not read the counters of\n          this GPU without permission\n"
        );
    }

    #[test]
    fn a_hash_is_whole_or_gives_way() {
        let mut table = Table::new(&["file", "size>", "sha256", "purpose"]);
        let hash = "0123456789abcdef".repeat(4);
        table.row(["nsys/run.sqlite", "1.2 MB", &hash, "timeline"].map(str::to_owned));
        assert_eq!(
            table.text(narrow(60)),
            "file               size  purpose\nnsys/run.sqlite  1.2 MB  timeline\n"
        );
        assert!(table.text(narrow(100)).contains(&hash));
    }

    #[test]
    fn a_list_of_times_wraps() {
        let mut table = Table::new(&["run", "status", "model", "device", "mode", "stages", "size>"]);
        let row = [
            "20261116-022345",
            "complete",
            "deepseek-ocr-tiny",
            "Xeon(R) Processor @ 2.50GHz",
            "deep",
            "prefill 1.21 s, decode 571 ms",
            "5.1 MB",
        ];
        table.row(row.map(str::to_owned));
        let text = table.text(narrow(60));
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
        assert!(!text.contains('…'), "{text}");
        assert!(text.contains("20261116-022345") && text.contains("decode 571"), "{text}");
    }

    #[test]
    fn names_keep_both_ends() {
        assert_eq!(shrunk("abcdefghijkl", 7), "abcd…kl");
        assert_eq!(shrunk("abc", 7), "abc");
        assert_eq!(wrapped("a verylongword", 5), ["a", "veryl", "ongwo", "rd"]);
        assert_eq!(wrapped("", 5), [""]);
    }
}
