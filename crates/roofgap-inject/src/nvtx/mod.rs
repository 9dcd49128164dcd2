//! The program's own annotations (NVTX): [`sys`] is the raw interface, [`local`] what each thread has, [`handlers`] the
//! functions that NVTX calls, [`attach`] puts them in place.

pub(crate) mod attach;
mod handlers;
pub(crate) mod local;
mod sys;
mod text;
