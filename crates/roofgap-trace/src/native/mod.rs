//! Captures of the native collector (`.rgcap`): CUPTI and NVTX from inside the program, one file a process.

mod annotations;
mod demangle;
mod identity;
mod reader;

pub use reader::{Account, Ending, kernel_names, looks_like, read};

#[cfg(test)]
mod tests;
