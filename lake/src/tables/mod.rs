//! The tables of a lake, `roofgap.lake/1`.
//!
//! - `record`: columns, tables and typed rows;
//! - `rows`: the tables, field by field;
//! - `batch`: rows as Arrow batches and Parquet bytes;
//! - `document`: the tables as Markdown.

pub mod batch;
pub mod document;
pub mod record;
pub mod rows;

use record::{Record, Table};

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
