//! Kernel names as NVIDIA's tools write them.
//!
//! CUPTI gives mangled names, nsys and ncu print them in a style of their own: literals with their type (`(int)4`),
//! template parameters by number (`T2`), lambdas as `[lambda(int) (instance 1)]`. Names are the join key between
//! captures and counters, so this demangler is written by hand in that spelling. A name that is not understood stays mangled.

mod names;
mod parser;
mod types;

use parser::Parser;

/// Demangles a function name; `None` if it is not mangled or not understood.
pub fn demangle(name: &str) -> Option<String> {
    let mangled = name.strip_prefix("_Z")?;
    let mut parser = Parser::new(mangled.as_bytes());
    let text = parser.encoding()?;
    parser.is_done().then_some(text)
}

#[cfg(test)]
mod tests;
