//! NVTX annotations of the program: [`sys`] is the raw interface, [`handlers`] has the functions that NVTX calls,
//! [`attach`] installs them.

pub(crate) mod attach;
mod handlers;
mod sys;
mod text;
