//! The tables of a lake, `roofgap.lake/1`.
//!
//! - `rows`: the tables, field by field;
//! - `batch`: rows as Arrow batches and Parquet bytes.

pub mod batch;
pub mod rows;

use std::fmt::Write as _;
use std::sync::Arc;

/// Type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// 64-bit integer.
    Integer,
    /// 64-bit floating point.
    Float,
    /// UTF-8 text.
    Text,
    /// True or false.
    Boolean,
    /// Moment in UTC, µs since 1970.
    Timestamp,
}

impl Kind {
    /// Returns the SQL type.
    pub fn sql(self) -> &'static str {
        match self {
            Self::Integer => "BIGINT",
            Self::Float => "DOUBLE",
            Self::Text => "VARCHAR",
            Self::Boolean => "BOOLEAN",
            Self::Timestamp => "TIMESTAMP",
        }
    }
}

/// A column of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Name.
    pub name: &'static str,
    /// Type.
    pub kind: Kind,
    /// True where the value can be missing.
    pub nullable: bool,
    /// Meaning, with the unit.
    pub doc: &'static str,
}

/// A table of the lake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Table {
    /// Name, also of its folder.
    pub name: &'static str,
    /// Meaning of a row.
    pub doc: &'static str,
    /// Columns in order. Further columns may be added at the end.
    pub columns: &'static [Column],
    /// Columns by which a file is sorted.
    pub order: &'static [&'static str],
}

/// A moment, µs since 1970 in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Micros(pub i64);

/// A value of a row.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// Missing.
    Null,
    /// Integer.
    Integer(i64),
    /// Floating point.
    Float(f64),
    /// Text.
    Text(Arc<str>),
    /// True or false.
    Boolean(bool),
    /// Moment, µs since 1970.
    Timestamp(i64),
}

/// A type that fields of a row may have.
pub trait Value {
    /// Type of the column.
    const KIND: Kind;
    /// True where the value can be missing.
    const NULLABLE: bool = false;
    /// Converts the value.
    fn into_cell(self) -> Cell;
}

macro_rules! values {
    ($($type:ty => $kind:ident, $value:ident => $cell:expr;)*) => {
        $(impl Value for $type {
            const KIND: Kind = Kind::$kind;
            fn into_cell(self) -> Cell {
                let $value = self;
                $cell
            }
        })*
    };
}

values! {
    i64 => Integer, value => Cell::Integer(value);
    // A count never reaches 2^63.
    // Neither infinity nor NaN is a measurement, and readers differ in how they order them.
    f64 => Float, value => if value.is_finite() { Cell::Float(value) } else { Cell::Null };
    bool => Boolean, value => Cell::Boolean(value);
    Micros => Timestamp, value => Cell::Timestamp(value.0);
    Arc<str> => Text, value => Cell::Text(value);
}

impl<T: Value> Value for Option<T> {
    const KIND: Kind = T::KIND;
    const NULLABLE: bool = true;

    fn into_cell(self) -> Cell {
        self.map_or(Cell::Null, T::into_cell)
    }
}

/// A row of a table.
pub trait Record {
    /// The table.
    const TABLE: Table;
    /// Returns the values in the order of the columns.
    fn cells(self) -> Vec<Cell>;
}

/// Declares rows. The first column of every table is `run_key`.
macro_rules! records {
    ($($(#[doc = $doc:literal])+ $row:ident in $table:literal by [$($order:literal),*] {
        $($(#[doc = $field_doc:literal])+ $field:ident: $type:ty,)*
    })*) => {
        $($(#[doc = $doc])+
        #[derive(Debug, Clone, Default, PartialEq)]
        pub struct $row {
            $($(#[doc = $field_doc])+ pub $field: $type,)*
        }

        impl Record for $row {
            const TABLE: Table = Table {
                name: $table,
                doc: concat!($($doc),+),
                columns: &[$(Column {
                    name: stringify!($field),
                    kind: <$type as Value>::KIND,
                    nullable: <$type as Value>::NULLABLE,
                    doc: concat!($($field_doc),+),
                }),*],
                order: &[$($order),*],
            };

            fn cells(self) -> Vec<Cell> {
                vec![$(self.$field.into_cell()),*]
            }
        })*
    };
}

pub(crate) use records;

/// The name of the schema.
pub const SCHEMA: &str = "roofgap.lake/1";

/// All tables. `runs` is written last of those of a run.
pub const TABLES: [Table; 11] = [
    rows::RunRow::TABLE,
    rows::StageRow::TABLE,
    rows::StepRow::TABLE,
    rows::KernelRow::TABLE,
    rows::CounterRow::TABLE,
    rows::FindingRow::TABLE,
    rows::CommunicationRow::TABLE,
    rows::RankRow::TABLE,
    rows::RequestRow::TABLE,
    rows::ErrorRow::TABLE,
    rows::EventRow::TABLE,
];

/// Partition columns and their types, in the order of the folders.
pub const PARTITIONS: [(&str, &str); 3] = [("date", "DATE"), ("project", "VARCHAR"), ("host", "VARCHAR")];

/// Returns the table of a name.
pub fn table(name: &str) -> Option<Table> {
    TABLES.into_iter().find(|table| table.name == name)
}

/// Describes all tables as Markdown, field by field, for `docs/lake.md`.
pub fn markdown() -> String {
    let mut text = String::new();
    for table in TABLES {
        let _ = write!(
            text,
            "### `{}`\n\n{}\n\n| column | type | null | meaning |\n|---|---|---|---|\n",
            table.name,
            table.doc.trim()
        );
        for column in table.columns {
            let null = if column.nullable { "yes" } else { "" };
            let (name, kind, doc) = (column.name, column.kind.sql(), column.doc.trim());
            let _ = writeln!(text, "| `{name}` | {kind} | {null} | {doc} |");
        }
        let order: Vec<String> = table.order.iter().map(|name| format!("`{name}`")).collect();
        let _ = write!(text, "\nSorted by {}.\n\n", order.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_has_every_column() {
        let page = include_str!("../../../docs/lake.md");
        let text = markdown();
        assert!(
            page.ends_with(text.trim_end()) || page.trim_end().ends_with(text.trim_end()),
            "docs/lake.md must end with:\n{text}"
        );
    }

    #[test]
    fn other_engines_read_the_same_columns() {
        let schema = include_str!("../../sql/schema.json");
        let schema: std::collections::BTreeMap<String, Vec<(String, String)>> =
            serde_json::from_str(schema).unwrap();
        for table in TABLES {
            let known = table.columns.iter();
            let mut known: Vec<(String, String)> =
                known.map(|c| (c.name.to_owned(), c.kind.sql().to_owned())).collect();
            known.extend(PARTITIONS.map(|(name, kind)| (name.to_owned(), kind.to_owned())));
            assert_eq!(schema.get(table.name), Some(&known), "{}", table.name);
        }
    }

    #[test]
    fn every_table_begins_with_the_key_and_sorts_by_its_own_columns() {
        for table in TABLES {
            let names: Vec<&str> = table.columns.iter().map(|column| column.name).collect();
            assert_eq!(names.first(), Some(&"run_key"), "{}", table.name);
            assert!(table.order.iter().all(|name| names.contains(name)), "{}", table.name);
            let mut unique = names.clone();
            unique.sort_unstable();
            unique.dedup();
            assert_eq!(unique.len(), names.len(), "{}", table.name);
            for partition in ["date", "project", "host"] {
                assert!(!names.contains(&partition), "{} has {partition}", table.name);
            }
        }
    }
}
