//! Headings of columns.

/// The heading of a column, with its unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heading {
    /// Name and unit.
    pub name: String,
    /// Numbers are aligned to the right.
    pub numeric: bool,
}

impl Heading {
    /// Returns the class of its cells in a style sheet.
    pub fn class(&self) -> Option<&'static str> {
        self.numeric.then_some("n")
    }
}
