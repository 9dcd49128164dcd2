//! One value cell of a page.

/// Content of a cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell<'a> {
    /// Nothing was printed.
    Empty,
    /// The tool says that it has no value (`n/a`, `nan`, `inf`).
    NotAvailable,
    /// A number, and what each instance of the unit counted where the page lists them.
    Number { value: f64, instances: Vec<f64> },
    /// A word.
    Text(&'a str),
    /// Digits that are no number as ncu writes them: better lost than misread.
    Malformed,
}

/// Reads a cell: `1,234.50`, `n/a`, `all`, `5504 (64; 64; 48)`, `5504 (0: 64; 1: 48)`.
pub fn parse(text: &str) -> Cell<'_> {
    let text = text.trim();
    if text.is_empty() {
        return Cell::Empty;
    }
    if is_not_available(text) {
        return Cell::NotAvailable;
    }
    if let Some(value) = number(text) {
        return Cell::Number { value, instances: Vec::new() };
    }
    if let Some(cell) = with_instances(text) {
        return cell;
    }
    let looks_numeric = text.bytes().any(|b| b.is_ascii_digit())
        && text
            .bytes()
            .all(|b| b.is_ascii_digit() || matches!(b, b',' | b'.' | b'-' | b'+' | b' ' | b';' | b'\''));
    if looks_numeric { Cell::Malformed } else { Cell::Text(text) }
}

fn is_not_available(text: &str) -> bool {
    ["n/a", "nan", "-nan", "inf", "-inf", "(!) n/a", "(!) nan"]
        .iter()
        .any(|word| text.eq_ignore_ascii_case(word))
}

/// Parses a number with or without thousands commas. Groups must have three digits, so that a decimal comma is not misread.
pub fn number(text: &str) -> Option<f64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text),
    };
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    if !digits.contains(',') {
        return digits.parse::<f64>().ok().filter(|v| v.is_finite()).map(|v| sign * v);
    }
    let (whole, fraction) = match digits.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (digits, None),
    };
    let mut groups = whole.split(',');
    let first = groups.next()?;
    let mut plain = String::with_capacity(digits.len());
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !is_digits(first) || first.len() > 3 {
        return None;
    }
    plain.push_str(first);
    for group in groups {
        if group.len() != 3 || !is_digits(group) {
            return None;
        }
        plain.push_str(group);
    }
    if let Some(fraction) = fraction {
        if !fraction.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        plain.push('.');
        plain.push_str(fraction);
    }
    plain.parse::<f64>().ok().filter(|v| v.is_finite()).map(|v| sign * v)
}

/// Splits `total (a; b; c)` or `total (id: a; id: b)`; the total may be missing, as in `(burn)`.
fn with_instances(text: &str) -> Option<Cell<'_>> {
    let open = text.find('(')?;
    let inner = text.get(open + 1..)?.strip_suffix(')')?;
    let head = text.get(..open)?.trim_end();
    if let Some(value) = number(head) {
        let instances = inner.split(';').filter_map(|part| number(last_of_pair(part))).collect();
        return Some(Cell::Number { value, instances });
    }
    let listed = last_of_pair(inner.split(';').next()?);
    match (head.is_empty(), listed) {
        // `all (all)`: the aggregate is the word.
        (false, one) if one == head => Some(Cell::Text(head)),
        (true, one) if !inner.contains(';') && !one.is_empty() => match number(one) {
            Some(value) => Some(Cell::Number { value, instances: vec![value] }),
            None => Some(Cell::Text(one)),
        },
        _ => None,
    }
}

fn last_of_pair(part: &str) -> &str {
    part.rsplit_once(": ").map_or(part, |(_, value)| value).trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(value: f64) -> Cell<'static> {
        Cell::Number { value, instances: Vec::new() }
    }

    #[test]
    fn numbers() {
        assert_eq!(parse("0"), plain(0.0));
        assert_eq!(parse("1,048,576"), plain(1_048_576.0));
        assert_eq!(parse("152,646,341,463.41"), plain(152_646_341_463.41));
        assert_eq!(parse(" -3.5 "), plain(-3.5));
        assert_eq!(parse("1e3"), plain(1000.0));
    }

    #[test]
    fn a_decimal_comma_is_not_misread() {
        assert_eq!(parse("1.048,58"), Cell::Malformed);
        assert_eq!(parse("3,18"), Cell::Malformed);
        assert_eq!(parse("1 048 576"), Cell::Malformed);
    }

    #[test]
    fn absent_and_words() {
        assert_eq!(parse(""), Cell::Empty);
        assert_eq!(parse("n/a"), Cell::NotAvailable);
        assert_eq!(parse("nan"), Cell::NotAvailable);
        assert_eq!(parse("PolicySpread"), Cell::Text("PolicySpread"));
        assert_eq!(parse("NVIDIA H200"), Cell::Text("NVIDIA H200"));
    }

    #[test]
    fn instances_follow_the_total() {
        assert_eq!(parse("4096 (4096)"), Cell::Number { value: 4096.0, instances: vec![4096.0] });
        assert_eq!(
            parse("5,504 (64; 64; 48)"),
            Cell::Number { value: 5504.0, instances: vec![64.0, 64.0, 48.0] }
        );
        assert_eq!(
            parse("176 (0: 64; 512: 112)"),
            Cell::Number { value: 176.0, instances: vec![64.0, 112.0] }
        );
        assert_eq!(parse("all (0: all)"), Cell::Text("all"));
        assert_eq!(parse("(burn)"), Cell::Text("burn"));
    }
}
