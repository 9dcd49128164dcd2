//! Fits a table into the width of a terminal: columns of little value give way, names shrink from the middle, prose wraps.

use super::heading::Heading;

/// Columns in the order in which they give way.
const GIVE_WAY: [&str; 37] = [
    "sha256",
    "schema version",
    "shared ms",
    "other work ms",
    "queued ms",
    "CPU wall ms",
    "other ms",
    "copy ms",
    "sync ms",
    "outside ms",
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
    "GPU busy ms",
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

/// Columns of text that are of no use in part.
const WHOLE: [&str; 1] = ["sha256"];

/// Widths below which the first column, a column of sentences and any other text do not shrink while a column can give way.
const LEAST_NAME: usize = 32;
const LEAST_PROSE: usize = 24;
const LEAST_TEXT: usize = 12;

/// Width below which a column of text does not shrink at all.
const SMALLEST: usize = 8;

/// Space between two columns.
const GAP: usize = 2;

/// Fits the lines of a table, of which the first has the headings, into a width. Returns the headings that are left and the lines.
pub fn fit(headings: &[Heading], lines: &[Vec<String>], width: usize) -> (Vec<Heading>, Vec<Vec<String>>) {
    let natural: Vec<usize> = (0..headings.len())
        .map(|i| lines.iter().filter_map(|line| line.get(i)).map(|cell| length(cell)).max().unwrap_or(0))
        .collect();
    let rigid = |i: usize| {
        let heading = headings.get(i);
        heading.is_some_and(|heading| heading.numeric || WHOLE.contains(&heading.name.as_str()))
    };
    let of = |i: usize| natural.get(i).copied().unwrap_or(0).max(3);
    let prose = |i: usize| headings.get(i).is_some_and(|heading| PROSE.contains(&heading.name.as_str()));
    let least = |i: usize| match i {
        _ if rigid(i) => of(i),
        0 => of(i).min(LEAST_NAME),
        _ if prose(i) => of(i).min(LEAST_PROSE),
        _ => of(i).min(LEAST_TEXT),
    };
    let total = |kept: &[usize], width_of: &dyn Fn(usize) -> usize| {
        kept.iter().map(|i| width_of(*i)).sum::<usize>() + GAP * kept.len().saturating_sub(1)
    };
    let mut kept: Vec<usize> = (0..headings.len()).collect();
    for name in GIVE_WAY {
        if total(&kept, &least) <= width {
            break;
        }
        kept.retain(|i| *i == 0 || headings.get(*i).is_none_or(|heading| heading.name != name));
    }
    while total(&kept, &least) > width && kept.len() > 2 {
        kept.pop();
    }
    let mut widths: Vec<usize> = kept.iter().map(|i| of(*i)).collect();
    let mut excess = total(&kept, &of).saturating_sub(width);
    while excess > 0 {
        let texts = kept.iter().zip(widths.iter_mut()).filter(|(i, _)| !rigid(**i));
        let widest = texts.map(|(_, width)| width).max_by_key(|width| **width);
        let Some(widest) = widest.filter(|width| **width > SMALLEST) else {
            break;
        };
        *widest -= 1;
        excess -= 1;
    }
    let left: Vec<Heading> = kept.iter().filter_map(|i| headings.get(*i).cloned()).collect();
    let mut fitted = Vec::new();
    for line in lines {
        let cells: Vec<Vec<String>> = kept
            .iter()
            .zip(&widths)
            .map(|(i, width)| {
                let cell = line.get(*i).map(String::as_str).unwrap_or_default();
                if prose(*i) { wrapped(cell, *width) } else { vec![shrunk(cell, *width)] }
            })
            .collect();
        let rows = cells.iter().map(Vec::len).max().unwrap_or(1);
        for row in 0..rows {
            let cell = |column: &Vec<String>| column.get(row).cloned().unwrap_or_default();
            fitted.push(cells.iter().map(cell).collect());
        }
    }
    (left, fitted)
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
    let head = kept - tail;
    let start = text.chars().take(head);
    let end = text.chars().skip(all - tail);
    start.chain(std::iter::once('…')).chain(end).collect()
}

/// Breaks a sentence at words into lines of a width. A longer word is broken.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let mut word = word.to_owned();
        while let Some(line) = lines.last_mut() {
            let used = length(line) + usize::from(!line.is_empty());
            if used + length(&word) <= width {
                if !line.is_empty() {
                    line.push(' ');
                }
                line.push_str(&word);
                break;
            }
            if line.is_empty() {
                *line = word.chars().take(width).collect();
                word = word.chars().skip(width).collect();
            }
            lines.push(String::new());
            if word.is_empty() {
                break;
            }
        }
    }
    if lines.len() > 1 && lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::screen::Screen;
    use crate::view::table::Table;

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
