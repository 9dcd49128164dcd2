//! A lake: Parquet tables of many profiling runs, and questions about them.
//!
//! - [`tables`]: the tables, field by field, `roofgap.lake/1`;
//! - [`layout`]: names of the files; [`store`]: folders and object stores; [`listing`]: which files count;
//! - [`ingest`]: adds runs and captures;
//! - [`query`]: the query engine, saved queries and formats of answers;
//! - [`trend`]: metrics over commits, and regressions; [`page`]: HTML;
//! - [`compact`](mod@compact), [`check`](mod@check): care of the files;
//! - [`error`]: errors and exit statuses.

pub mod check;
pub mod compact;
pub mod error;
pub mod ingest;
pub mod layout;
pub mod listing;
pub mod page;
pub mod query;
pub mod store;
pub mod tables;
pub mod trend;
