//! A typed column of a table.

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};
use parquet::errors::Result;
use parquet::file::writer::SerializedColumnWriter;
use parquet::schema::types::Type;

/// Values in the type in which they are stored.
#[derive(Debug)]
pub enum Values {
    Long(Vec<i64>),
    MaybeLong(Vec<Option<i64>>),
    MaybeInt(Vec<Option<i32>>),
    MaybeReal(Vec<Option<f64>>),
    Flag(Vec<bool>),
    Text(Vec<ByteArray>),
    MaybeText(Vec<Option<ByteArray>>),
}

/// A column of some rows.
#[derive(Debug)]
pub struct Column {
    pub name: &'static str,
    pub values: Values,
}

impl Column {
    /// Creates a column.
    pub fn new(name: &'static str, values: Values) -> Self {
        Self { name, values }
    }

    /// Creates a column of integers.
    pub fn long(name: &'static str, values: impl Iterator<Item = i64>) -> Self {
        Self::new(name, Values::Long(values.collect()))
    }

    /// Creates a column of optional integers.
    pub fn maybe_long(name: &'static str, values: impl Iterator<Item = Option<i64>>) -> Self {
        Self::new(name, Values::MaybeLong(values.collect()))
    }

    /// Creates a column of flags.
    pub fn flag(name: &'static str, values: impl Iterator<Item = bool>) -> Self {
        Self::new(name, Values::Flag(values.collect()))
    }

    /// Creates a column of text.
    pub fn text(name: &'static str, values: impl Iterator<Item = ByteArray>) -> Self {
        Self::new(name, Values::Text(values.collect()))
    }

    /// Creates a column of optional text.
    pub fn maybe_text(name: &'static str, values: impl Iterator<Item = Option<ByteArray>>) -> Self {
        Self::new(name, Values::MaybeText(values.collect()))
    }

    /// Declares the column in the schema of a file.
    pub fn declaration(&self) -> Result<Type> {
        let (physical, optional) = match &self.values {
            Values::Long(_) => (Physical::INT64, false),
            Values::MaybeLong(_) => (Physical::INT64, true),
            Values::MaybeInt(_) => (Physical::INT32, true),
            Values::MaybeReal(_) => (Physical::DOUBLE, true),
            Values::Flag(_) => (Physical::BOOLEAN, false),
            Values::Text(_) => (Physical::BYTE_ARRAY, false),
            Values::MaybeText(_) => (Physical::BYTE_ARRAY, true),
        };
        let repetition = if optional { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        let logical = (physical == Physical::BYTE_ARRAY).then_some(LogicalType::String);
        Type::primitive_type_builder(self.name, physical)
            .with_repetition(repetition)
            .with_logical_type(logical)
            .build()
    }

    /// Writes the values.
    pub fn write(self, writer: &mut SerializedColumnWriter<'_>) -> Result<()> {
        match self.values {
            Values::Long(v) => writer.typed::<Int64Type>().write_batch(&v, None, None)?,
            Values::Flag(v) => writer.typed::<BoolType>().write_batch(&v, None, None)?,
            Values::Text(v) => writer.typed::<ByteArrayType>().write_batch(&v, None, None)?,
            Values::MaybeLong(v) => {
                let (levels, v) = levels(v);
                writer.typed::<Int64Type>().write_batch(&v, Some(&levels), None)?
            }
            Values::MaybeInt(v) => {
                let (levels, v) = levels(v);
                writer.typed::<Int32Type>().write_batch(&v, Some(&levels), None)?
            }
            Values::MaybeReal(v) => {
                let (levels, v) = levels(v);
                writer.typed::<DoubleType>().write_batch(&v, Some(&levels), None)?
            }
            Values::MaybeText(v) => {
                let (levels, v) = levels(v);
                writer.typed::<ByteArrayType>().write_batch(&v, Some(&levels), None)?
            }
        };
        Ok(())
    }
}

/// Splits optional values into definition levels and present values.
fn levels<T>(values: Vec<Option<T>>) -> (Vec<i16>, Vec<T>) {
    let levels = values.iter().map(|v| i16::from(v.is_some())).collect();
    (levels, values.into_iter().flatten().collect())
}
