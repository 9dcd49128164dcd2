//! What belongs to what: GPU operations to the calls that launched them, calls to the ranges and operators around them.

mod contexts;
mod launches;
mod nesting;
mod tables;

pub use contexts::Contexts;
pub use launches::{LaunchCount, Launches, NO_CALL, is_migration, launch_counts};
pub use nesting::{CallKind, CallNode, Scope, around_calls, call_tree, operation_tree};
pub use tables::{add_operator, operator_table, range_table, sort_operators};
