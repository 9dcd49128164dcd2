//! Tables of a file, from the SQL that created them.

use super::file::PageFile;
use super::record::Plan;
use super::scan;
use crate::ReadError;
use std::collections::BTreeMap;

/// A column of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    pub name: String,
    /// True for an alias of the row id, which is stored outside the record.
    pub row_id: bool,
    /// True if SQLite stores numbers without a fraction as integers.
    pub real: bool,
    /// True if rows older than the column have a value other than null.
    pub default: bool,
}

/// A table.
#[derive(Debug, Clone, PartialEq)]
pub struct TableSchema {
    /// Columns in the order in which a record stores them.
    pub columns: Vec<Column>,
    /// First page of the tree of rows.
    pub root: u32,
    /// Description of a form of storage that is not read; `None` for the usual one, rows by id.
    pub odd: Option<&'static str>,
}

/// Reads the list of tables and views.
pub fn tables(file: &PageFile) -> Result<BTreeMap<String, TableSchema>, ReadError> {
    let columns = ["type", "name", "tbl_name", "rootpage", "sql"].map(|name| Column {
        name: name.to_owned(),
        row_id: false,
        real: false,
        default: false,
    });
    let list = TableSchema { columns: columns.into(), root: 1, odd: None };
    let (mut tables, mut views) = (BTreeMap::new(), Vec::new());
    scan::each(file, &Plan::new(&list, &["type", "name", "rootpage", "sql"]), &mut |row| {
        let (Some(kind), Some(name)) = (row[0].text(), row[1].text()) else { return };
        let sql = row[3].text().unwrap_or_default();
        if kind == "table" {
            let root = row[2].int().and_then(|root| u32::try_from(root).ok()).unwrap_or(0);
            tables.insert(name.into_owned(), TableSchema::parse(&sql, root));
        } else if kind == "view" {
            views.push((name.into_owned(), table_of_view(&sql)));
        }
    })?;
    for (name, base) in views {
        let view = match base {
            Some(base) => tables.get(&base).cloned(),
            None => Some(TableSchema::odd("a view with a query of its own")),
        };
        // A view of what is not here has no rows that anybody could read.
        tables.extend(view.map(|view| (name, view)));
    }
    Ok(tables)
}

impl TableSchema {
    /// Returns the position of a column.
    pub fn position(&self, column: &str) -> Option<usize> {
        self.columns.iter().position(|c| c.name == column)
    }

    fn odd(form: &'static str) -> Self {
        Self { columns: Vec::new(), root: 0, odd: Some(form) }
    }

    /// Parses the SQL of a table, as SQLite stores it.
    fn parse(sql: &str, root: u32) -> Self {
        let tokens = tokens(sql).unwrap_or_default();
        let word = |at: usize, word: &str| tokens.get(at).is_some_and(|token| token.is(word));
        if word(1, "virtual") {
            return Self::odd("a virtual table");
        }
        let end = tokens.iter().rposition(|token| token.depth == 1 && token.is(")")).unwrap_or(0);
        let Some(inside) = tokens.get(4..end).filter(|_| word(0, "create") && word(1, "table")) else {
            return Self::odd("declared in an unknown form");
        };
        let mut table = Self { columns: Vec::new(), root, odd: None };
        let mut integers = Vec::new();
        for part in inside.split(|token| token.depth == 1 && token.is(",")) {
            let Some(first) = part.first() else { continue };
            let top: Vec<&Token> = part.iter().filter(|token| token.depth == 1).collect();
            let primary = top.iter().position(|token| token.is("primary"));
            if CONSTRAINTS.iter().any(|word| first.is(word)) {
                let mut names = part.iter().filter(|token| token.depth == 2).skip(1);
                // A key of several columns is not the row id.
                if let Some(key) = primary.and_then(|_| names.next())
                    && !names.any(|token| token.is(","))
                {
                    for (column, integer) in table.columns.iter_mut().zip(&integers) {
                        column.row_id |= *integer && column.name.eq_ignore_ascii_case(&key.text);
                    }
                }
                continue;
            }
            let has = |word: &str| top.iter().any(|token| token.is(word));
            if has("as") {
                table.odd = Some("a table with computed columns");
            }
            let declared =
                top.iter().skip(1).take_while(|token| !AFTER_TYPE.iter().any(|word| token.is(word)));
            let declared =
                declared.map(|token| token.text.to_ascii_uppercase()).collect::<Vec<_>>().join(" ");
            integers.push(declared == "INTEGER");
            table.columns.push(Column {
                name: first.text.clone(),
                // For the sake of old files, the row id is not meant with `DESC`.
                row_id: declared == "INTEGER"
                    && primary.is_some_and(|at| !top.get(at + 2).is_some_and(|token| token.is("desc"))),
                real: has_real_affinity(&declared),
                default: has("default"),
            });
        }
        if tokens.iter().skip(end).any(|token| token.is("without")) {
            table.odd = Some("stored WITHOUT ROWID");
        }
        table
    }
}

/// Words that begin a constraint in the list of columns.
const CONSTRAINTS: [&str; 5] = ["constraint", "primary", "unique", "check", "foreign"];

/// Words that end the declared type of a column.
const AFTER_TYPE: [&str; 11] = [
    "constraint",
    "primary",
    "not",
    "null",
    "unique",
    "check",
    "default",
    "collate",
    "references",
    "generated",
    "as",
];

/// Returns true if a column of this declared type, in capitals, converts integers to floating-point numbers.
///
/// SQLite goes by the words the type contains, the first rule that fits.
fn has_real_affinity(declared: &str) -> bool {
    let any = |words: &[&str]| words.iter().any(|w| declared.contains(w));
    !any(&["INT", "CHAR", "CLOB", "TEXT", "BLOB"]) && any(&["REAL", "FLOA", "DOUB"])
}

/// Returns the table of a view of the form `CREATE VIEW name AS SELECT * FROM table`; `None` for any other view.
fn table_of_view(sql: &str) -> Option<String> {
    let tokens = tokens(sql)?;
    let form = ["create", "view", "", "as", "select", "*", "from"];
    let fits = form.iter().zip(&tokens).all(|(word, token)| word.is_empty() || token.is(word));
    let table = tokens.get(form.len()).filter(|_| fits)?;
    tokens[form.len() + 1..].iter().all(|token| token.is(";")).then(|| table.text.clone())
}

/// A word, a quoted name or text, or a symbol.
#[derive(Debug, PartialEq)]
struct Token {
    text: String,
    quoted: bool,
    /// Number of parentheses around it, counting itself.
    depth: usize,
}

impl Token {
    /// Returns true for a keyword or symbol.
    fn is(&self, word: &str) -> bool {
        !self.quoted && self.text.eq_ignore_ascii_case(word)
    }
}

/// Splits SQL into tokens without comments; `None` if a quote is open.
fn tokens(sql: &str) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut depth: usize = 0;
    let mut rest = sql;
    while let Some(first) = rest.chars().next() {
        let (text, quoted, length) = match first {
            _ if first.is_whitespace() => {
                rest = rest.trim_start();
                continue;
            }
            '-' if rest.starts_with("--") => {
                rest = rest.split_once('\n').map_or("", |(_, after)| after);
                continue;
            }
            '/' if rest.starts_with("/*") => {
                rest = rest.split_once("*/").map_or("", |(_, after)| after);
                continue;
            }
            '"' | '`' | '\'' => quoted(rest, first)?,
            '[' => rest.find(']').map(|end| (rest[1..end].to_owned(), true, end + 1))?,
            _ => {
                let in_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$');
                let length = rest.find(|c| !in_word(c)).unwrap_or(rest.len()).max(first.len_utf8());
                (rest[..length].to_owned(), false, length)
            }
        };
        depth += usize::from(first == '(');
        tokens.push(Token { text, quoted, depth });
        depth = depth.saturating_sub(usize::from(first == ')'));
        rest = &rest[length..];
    }
    Some(tokens)
}

/// Reads a quoted name or text, in which a doubled quote is one; returns it with its length.
fn quoted(sql: &str, quote: char) -> Option<(String, bool, usize)> {
    let mut text = String::new();
    let mut at = 1;
    loop {
        let end = at + sql.get(at..)?.find(quote)?;
        text.push_str(&sql[at..end]);
        at = end + 1;
        if !sql[at..].starts_with(quote) {
            return Some((text, true, at));
        }
        text.push(quote);
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn affinity_goes_by_the_first_rule_that_fits() {
        for real in ["REAL", "DOUBLE PRECISION", "FLOAT", "REALLY"] {
            assert!(has_real_affinity(real), "{real}");
        }
        for other in ["FLOATING POINT", "INTEGER", "TEXT", "", "NUMERIC", "DECIMAL 10 , 5", "REAL TEXT"] {
            assert!(!has_real_affinity(other), "{other}");
        }
    }

    #[test]
    fn all_columns_of_one_table_are_a_view_that_is_read() {
        for (sql, table) in [
            ("CREATE VIEW v AS SELECT * FROM t", "t"),
            ("create view \"a view\" as select * from \"a \"\"table\";", "a \"table"),
            ("CREATE VIEW v AS SELECT /* all */ * FROM `t` -- here", "t"),
        ] {
            assert_eq!(table_of_view(sql).as_deref(), Some(table), "{sql}");
        }
        for sql in [
            "CREATE VIEW v AS WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT i FROM n",
            "CREATE VIEW v AS SELECT randomblob(1000000000) AS a FROM t",
            "CREATE VIEW v AS SELECT a FROM t",
            "CREATE VIEW v AS SELECT * FROM a, b",
            "CREATE VIEW v AS SELECT * FROM a JOIN b",
            "CREATE VIEW v AS SELECT * FROM a UNION ALL SELECT * FROM b",
            "CREATE VIEW v AS SELECT * FROM (SELECT 1)",
            "CREATE VIEW v AS SELECT * FROM t ORDER BY a",
            "CREATE VIEW v AS SELECT 'open FROM t",
            "CREATE VIEW v AS VALUES (1)",
            "CREATE VIEW v AS SELECT * FROM",
            "",
        ] {
            assert_eq!(table_of_view(sql), None, "{sql}");
        }
    }
}
