//! CUPTI, loaded at run time: [`sys`] is the raw interface, [`library`] finds the file, [`api`] has the functions.

pub(crate) mod api;
pub(crate) mod library;
pub(crate) mod sys;

pub(crate) use api::{Api, Failure, Subscriber};
