//! Readers of every input format, the one event model they fill, and what was lost on the way.
