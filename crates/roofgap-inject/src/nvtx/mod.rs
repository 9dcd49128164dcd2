//! NVTX annotations of the program: [`sys`] is the raw interface, [`handlers`] has the functions that NVTX calls,
//! [`attach`] installs them.

pub mod attach;
mod handlers;
mod sys;
mod text;
