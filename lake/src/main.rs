//! Tables of many profiling runs, and questions about them.

fn main() {}
