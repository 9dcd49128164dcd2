//! Tables of a file, and the ones that can be read page by page.

/// A column of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    pub name: String,
    /// True for an alias of the row id, which is stored outside the record.
    pub row_id: bool,
    /// True if SQLite stores numbers without a fraction as integers.
    pub real: bool,
    /// True if rows older than the column have a value other than null.
    pub default: bool,
}

/// A table.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// The columns in the order in which a record stores them.
    pub columns: Vec<Column>,
    /// The page its tree begins on, where the tree is the usual one of rows by id.
    pub root: Option<u32>,
    /// True for a virtual table and for a view that is more than columns of one table; their rows are not read.
    pub refused: bool,
}

impl Table {
    /// Returns the position of a column.
    pub fn position(&self, column: &str) -> Option<usize> {
        self.columns.iter().position(|c| c.name == column)
    }
}

/// Returns true if a column of this declared type converts integers to floating-point numbers.
///
/// SQLite goes by the words the type contains, the first rule that fits.
pub fn has_real_affinity(declared: &str) -> bool {
    let declared = declared.to_ascii_uppercase();
    let any = |words: &[&str]| words.iter().any(|w| declared.contains(w));
    !any(&["INT", "CHAR", "CLOB", "TEXT", "BLOB"]) && any(&["REAL", "FLOA", "DOUB"])
}

#[cfg(test)]
mod tests {
    use super::has_real_affinity;

    #[test]
    fn affinity_goes_by_the_first_rule_that_fits() {
        for real in ["REAL", "double precision", "Float", "REALLY"] {
            assert!(has_real_affinity(real), "{real}");
        }
        for other in ["FLOATING POINT", "INTEGER", "TEXT", "", "NUMERIC", "DECIMAL(10,5)", "REAL TEXT"] {
            assert!(!has_real_affinity(other), "{other}");
        }
    }
}
