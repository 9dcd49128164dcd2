//! CUPTI, loaded at run time: [`sys`] is the raw interface, [`library`] finds the file, [`api`] has the functions.

pub mod api;
pub mod library;
pub mod sys;

pub use api::{Api, Failure, Subscriber};
