//! Views that are safe to read: columns of one table, so that reading them takes as long as reading the table.

/// Returns the table of a view of the form `CREATE VIEW name AS SELECT columns FROM table`; `None` for any other view.
///
/// Calls, subqueries, joins, conditions and comments are other views.
pub fn table_of(sql: &str) -> Option<String> {
    let tokens = tokens(sql)?;
    let word = |at: usize, word: &str| matches!(tokens.get(at), Some(Token::Word(w)) if w.eq_ignore_ascii_case(word));
    if !(word(0, "create") && word(1, "view") && word(3, "as") && word(4, "select")) {
        return None;
    }
    let length = match tokens.last()? {
        Token::Symbol(';') => tokens.len() - 1,
        _ => tokens.len(),
    };
    // `FROM` and the table are the last two; no other clause fits between or before.
    let from = length.checked_sub(2)?;
    let clauses = ["from", "select", "union", "intersect", "except", "with", "values"];
    let is_clause = |at: usize| clauses.iter().any(|clause| word(at, clause));
    let symbols_are_harmless =
        tokens[..length].iter().all(|token| !matches!(token, Token::Symbol('(' | ')' | ';')));
    if from < 6 || !word(from, "from") || (5..from).any(is_clause) || !symbols_are_harmless {
        return None;
    }
    match tokens.get(from + 1)? {
        Token::Word(table) | Token::Quoted(table) => Some(table.clone()),
        Token::Symbol(_) => None,
    }
}

/// Returns true if the text of a view names another object.
pub fn mentions(sql: &str, other: &str) -> bool {
    let part_of_name = |c: char| c.is_alphanumeric() || c == '_';
    let (sql, other) = (sql.to_lowercase(), other.to_lowercase());
    match other.chars().all(part_of_name) {
        true => sql.split(|c| !part_of_name(c)).any(|word| word == other),
        false => sql.contains(&other),
    }
}

#[derive(Debug, PartialEq)]
enum Token {
    /// A word without quotes: a keyword, a name or a number.
    Word(String),
    /// A name or a text in quotes.
    Quoted(String),
    Symbol(char),
}

/// Splits SQL into tokens; `None` if it has comments or an open quote.
fn tokens(sql: &str) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut chars = sql.chars().peekable();
    while let Some(first) = chars.next() {
        let close = match first {
            '"' | '`' | '\'' => first,
            '[' => ']',
            _ if first.is_whitespace() => continue,
            _ if first.is_alphanumeric() || first == '_' => {
                let mut word = String::from(first);
                while let Some(next) = chars.next_if(|c| c.is_alphanumeric() || matches!(c, '_' | '$')) {
                    word.push(next);
                }
                tokens.push(Token::Word(word));
                continue;
            }
            _ => {
                let next = chars.peek().copied();
                if matches!((first, next), ('-', Some('-')) | ('/', Some('*'))) {
                    return None;
                }
                tokens.push(Token::Symbol(first));
                continue;
            }
        };
        let mut text = String::new();
        loop {
            let next = chars.next()?;
            if next != close {
                text.push(next);
            } else if close != ']' && chars.next_if_eq(&close).is_some() {
                text.push(close);
            } else {
                break;
            }
        }
        tokens.push(Token::Quoted(text));
    }
    Some(tokens)
}

#[cfg(test)]
mod tests {
    use super::table_of;

    #[test]
    fn columns_of_one_table_are_simple() {
        for (sql, table) in [
            ("CREATE VIEW v AS SELECT * FROM t", "t"),
            ("CREATE VIEW v AS SELECT b, a * 10 AS c FROM t;", "t"),
            ("create view \"a view\" as select [b] from \"a \"\"table\"", "a \"table"),
            ("CREATE VIEW v AS SELECT 'from x' AS c FROM `t`", "t"),
        ] {
            assert_eq!(table_of(sql).as_deref(), Some(table), "{sql}");
        }
    }

    #[test]
    fn anything_else_is_not() {
        for sql in [
            "CREATE VIEW v AS WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT i FROM n",
            "CREATE VIEW v AS SELECT randomblob(1000000000) AS a FROM t",
            "CREATE VIEW v AS SELECT * FROM a, b",
            "CREATE VIEW v AS SELECT * FROM a JOIN b",
            "CREATE VIEW v AS SELECT * FROM a UNION ALL SELECT * FROM b",
            "CREATE VIEW v AS SELECT * FROM (SELECT 1)",
            "CREATE VIEW v AS SELECT * FROM t ORDER BY a",
            "CREATE VIEW v AS SELECT * FROM t -- comment",
            "CREATE VIEW v AS SELECT /* FROM */ * FROM t",
            "CREATE VIEW v AS SELECT 'open FROM t",
            "CREATE VIEW v AS VALUES (1)",
            "CREATE VIEW v AS SELECT 1",
            "",
        ] {
            assert_eq!(table_of(sql), None, "{sql}");
        }
    }
}
