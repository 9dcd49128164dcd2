//! Damages inputs on purpose: the mutator of the fuzzer. The same seed gives the same damage.

use crate::random::Random;
use rusqlite::Connection;
use rusqlite::types::Value;

/// Integers at which readers and sums go wrong.
const INTEGERS: [i64; 14] = [
    0,
    1,
    -1,
    255,
    65_536,
    2_147_483_647,
    -2_147_483_648,
    4_294_967_295,
    1 << 53,
    1_763_164_800_000_000_000,
    i64::MAX,
    i64::MAX - 1,
    i64::MIN,
    i64::MIN + 1,
];

/// Numbers and other words of text formats at which readers go wrong.
const WORDS: [&str; 20] = [
    "",
    "0",
    "-1",
    "-0.5",
    "1e308",
    "-1e308",
    "1e-320",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551616",
    "99999999999999999999999999999999999999",
    "NaN",
    "inf",
    "null",
    "true",
    "\"\"",
    "[]",
    "{}",
    "1,234,567.8",
    "\u{202e}\u{1b}[2J",
];

/// Kinds of content, each damaged in its own way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Bytes: lengths, numbers and tags.
    Binary,
    /// Lines, numbers and quoted words.
    Text,
}

/// Damages inputs, reproducibly.
#[derive(Debug)]
pub struct Mutator(Random);

impl Mutator {
    /// Creates a mutator; each seed damages in another way.
    pub fn new(seed: u64) -> Self {
        Self(Random::new(seed))
    }

    /// Returns a number below `count`; 0 for none.
    pub fn below(&mut self, count: usize) -> usize {
        (self.0.next() % count.max(1) as u64) as usize
    }

    /// Damages some bytes in a few places. `other` is another input of the same format, from which pieces are taken.
    pub fn mutate(&mut self, content: Content, bytes: &mut Vec<u8>, other: &[u8]) {
        // Mostly a little damage, which gets far; sometimes a lot.
        let rounds = 1 << self.below(6);
        for _ in 0..rounds {
            match content {
                Content::Text if self.below(4) > 0 => self.damage_text(bytes),
                _ => self.damage_bytes(bytes, other),
            }
        }
        if self.0.once_in(12) {
            let end = self.below(bytes.len() + 1);
            bytes.truncate(end);
        }
    }

    fn integer(&mut self) -> i64 {
        let at = self.below(INTEGERS.len() + 1);
        INTEGERS.get(at).copied().unwrap_or_else(|| self.0.next() as i64)
    }

    /// Returns a short piece of some bytes.
    fn piece(&mut self, length: usize) -> std::ops::Range<usize> {
        let start = self.below(length + 1);
        let most = (length - start).min(1 << self.below(12));
        start..start + self.below(most + 1)
    }

    fn damage_bytes(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        let at = self.below(bytes.len());
        match self.below(7) {
            0 => {
                let bit = self.below(8);
                bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << bit);
            }
            1 => {
                let value = self.0.next() as u8;
                bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = value);
            }
            2 => {
                // A number of any width and byte order, or a varint.
                let width = 1 << self.below(4);
                let mut value = self.integer().to_le_bytes();
                if self.0.once_in(2) {
                    value.reverse();
                }
                for (byte, new) in bytes.iter_mut().skip(at).take(width).zip(value) {
                    *byte = new;
                }
            }
            3 => drop(bytes.drain(self.piece(bytes.len()))),
            4 => {
                let copy = bytes[self.piece(bytes.len())].to_vec();
                bytes.splice(at..at, copy);
            }
            5 => {
                let copy = &other[self.piece(other.len())];
                let end = (at + copy.len()).min(bytes.len());
                bytes.splice(at..end, copy.iter().copied());
            }
            _ => {
                let fill = if self.0.once_in(2) { 0 } else { 0xff };
                let piece = self.piece(bytes.len());
                bytes[piece].fill(fill);
            }
        }
    }

    fn damage_text(&mut self, bytes: &mut Vec<u8>) {
        let at = self.below(bytes.len());
        match self.below(5) {
            // Mostly numbers: that is where the sums are.
            0..=2 => {
                let is_number = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'-');
                let Some(start) = position(bytes, at, is_number) else {
                    return;
                };
                let end = position(bytes, start, |byte| !is_number(byte)).unwrap_or(bytes.len());
                let word = self.word();
                bytes.splice(start..end, word.into_bytes());
            }
            3 => {
                // The rest of a line or of a field, gone or twice.
                let stop = *[b'\n', b',', b'"', b'}'].get(self.below(4)).unwrap_or(&b'\n');
                let end = position(bytes, at, |byte| *byte == stop).unwrap_or(bytes.len());
                if self.0.once_in(2) {
                    drop(bytes.drain(at..end));
                } else {
                    let copy = bytes[at..end].to_vec();
                    bytes.splice(at..at, copy);
                }
            }
            _ => {
                // A quoted word for another.
                let quote = |bytes: &[u8], from| position(bytes, from, |byte| *byte == b'"');
                let word = |bytes: &[u8], from| {
                    let start = quote(bytes, from)? + 1;
                    Some(start..quote(bytes, start)?)
                };
                let from = self.below(bytes.len());
                if let (Some(target), Some(source)) = (word(bytes, at), word(bytes, from)) {
                    let copy = bytes[source].to_vec();
                    bytes.splice(target, copy);
                }
            }
        }
    }

    fn word(&mut self) -> String {
        match self.below(3) {
            0 => self.integer().to_string(),
            1 => format!("{}.{}", self.integer() % 1_000_000, self.below(1_000)),
            _ => {
                let at = self.below(WORDS.len());
                WORDS.get(at).copied().unwrap_or_default().to_owned()
            }
        }
    }

    /// Damages the rows of a SQLite file: values, whole rows, columns and tables.
    ///
    /// # Errors
    /// Fails when SQLite cannot read or write the file.
    pub fn mutate_tables(&mut self, db: &Connection) -> rusqlite::Result<()> {
        let names = |sql: &str| -> rusqlite::Result<Vec<String>> {
            let mut statement = db.prepare(sql)?;
            let rows = statement.query_map([], |row| row.get(0))?;
            rows.collect()
        };
        db.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")?;
        for _ in 0..1 << self.below(5) {
            // Enumerations and descriptions matter little; events are what is added up.
            let tables = match self.0.once_in(3) {
                true => names("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")?,
                false => names(
                    "SELECT name FROM sqlite_master WHERE type = 'table' AND (name LIKE 'CUPTI%' OR name LIKE 'NVTX_E%') \
                     ORDER BY name",
                )?,
            };
            let Some(table) = tables.get(self.below(tables.len())) else {
                continue;
            };
            let columns = names(&format!("SELECT name FROM pragma_table_info('{table}') ORDER BY cid"))?;
            let Some(column) = columns.get(self.below(columns.len())) else {
                continue;
            };
            let (offset, count) = (self.below(400), 1 << self.below(7));
            let rows = format!("rowid IN (SELECT rowid FROM \"{table}\" LIMIT {count} OFFSET {offset})");
            let value = match self.below(8) {
                0 => Value::Null,
                1 => Value::Real(f64::from_bits(self.0.next())),
                2 => Value::Text(self.word()),
                3 => Value::Blob(vec![0xff; self.below(300)]),
                _ => Value::Integer(self.integer()),
            };
            let done = match self.below(12) {
                0 => db.execute(&format!("DELETE FROM \"{table}\" WHERE {rows}"), []),
                1 => {
                    db.execute(&format!("INSERT INTO \"{table}\" SELECT * FROM \"{table}\" WHERE {rows}"), [])
                }
                2 if self.0.once_in(4) => db.execute(&format!("DROP TABLE \"{table}\""), []),
                3 if self.0.once_in(4) => db.execute(
                    &format!("ALTER TABLE \"{table}\" RENAME COLUMN \"{column}\" TO \"{column}_\""),
                    [],
                ),
                4..=6 => db.execute(
                    &format!("UPDATE \"{table}\" SET \"{column}\" = \"{column}\" + ?1 WHERE {rows}"),
                    [value],
                ),
                _ => db.execute(&format!("UPDATE \"{table}\" SET \"{column}\" = ?1 WHERE {rows}"), [value]),
            };
            // A constraint of the table can refuse a value; the next one may fit.
            if let Err(rusqlite::Error::SqliteFailure(error, _)) = &done
                && error.code == rusqlite::ErrorCode::DatabaseCorrupt
            {
                return done.map(drop);
            }
        }
        Ok(())
    }
}

/// Returns the first position from `from` on whose byte matches.
fn position(bytes: &[u8], from: usize, is: impl Fn(&u8) -> bool) -> Option<usize> {
    let found = bytes.get(from..)?.iter().position(is)?;
    Some(from + found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_damage_and_another_seed_another() {
        let text = b"{\"name\": \"kernel\", \"ts\": 12.5, \"dur\": 3}\n".repeat(20);
        let damaged = |seed: u64, content| {
            let mut bytes = text.clone();
            Mutator::new(seed).mutate(content, &mut bytes, b"other");
            bytes
        };
        for content in [Content::Text, Content::Binary] {
            for seed in 0..200 {
                assert_eq!(damaged(seed, content), damaged(seed, content), "{seed}");
            }
            let distinct: std::collections::HashSet<_> =
                (0..200).map(|seed| damaged(seed, content)).collect();
            assert!(distinct.len() > 150, "{}", distinct.len());
        }
    }

    #[test]
    fn nothing_can_be_damaged_too() {
        for seed in 0..200 {
            Mutator::new(seed).mutate(Content::Binary, &mut Vec::new(), b"");
            Mutator::new(seed).mutate(Content::Text, &mut Vec::new(), b"");
        }
    }

    #[test]
    fn tables_are_damaged_and_stay_readable() {
        let make = || {
            let db = Connection::open_in_memory().unwrap();
            db.execute_batch("CREATE TABLE CUPTI_X (start INTEGER, name TEXT)").unwrap();
            for at in 0..600 {
                db.execute("INSERT INTO CUPTI_X VALUES (?1, 'k')", [at]).unwrap();
            }
            db
        };
        let content = |db: &Connection| -> String {
            let sql = "SELECT ifnull(group_concat(quote(start) || quote(name)), '') FROM CUPTI_X";
            db.query_row(sql, [], |row| row.get(0)).unwrap_or_default()
        };
        let original = content(&make());
        let mut changed = 0;
        for seed in 0..50 {
            let db = make();
            Mutator::new(seed).mutate_tables(&db).unwrap();
            changed += usize::from(content(&db) != original);
        }
        assert!(changed > 30, "{changed}");
    }
}
