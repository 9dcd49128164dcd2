//! CUPTI, opened while the program runs and never linked: [`sys`] is its raw shape, [`library`] finds the file, [`api`]
//! holds the functions that were found.

pub(crate) mod api;
pub(crate) mod library;
pub(crate) mod sys;

pub(crate) use api::{Api, Failure, Subscriber};
