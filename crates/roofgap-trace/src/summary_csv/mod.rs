//! Kernel summaries of `nsys stats` in CSV: totals of each kernel, without times of launches.
//!
//! Reads `cuda_gpu_kern_sum`, `cuda_gpu_kern_gb_sum` (a row per grid and block) and their older names, as written to a file
//! or as printed with titles around them.

mod columns;
mod reader;

pub use reader::FORMAT;
