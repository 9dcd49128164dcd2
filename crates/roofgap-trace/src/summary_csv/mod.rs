//! Kernel summaries of `nsys stats` in CSV: totals of each kernel, and nothing about when it ran.
//!
//! `cuda_gpu_kern_sum`, `cuda_gpu_kern_gb_sum` (a row for each grid and block) and their older names, as written to a file or
//! as printed with titles around them.

mod columns;
mod reader;
mod unit;

pub use reader::{looks_like, may_follow, read};
