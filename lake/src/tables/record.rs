//! Typed rows: a table is declared once, as a struct whose fields are its columns.

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
    u64 => Integer, value => Cell::Integer(i64::try_from(value).unwrap_or(i64::MAX));
    u32 => Integer, value => Cell::Integer(value.into());
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
