//! Names of the files of a lake.

use serde::{Deserialize, Serialize};

use crate::LakeError;
use crate::tables::Table;

/// File that marks a lake.
pub const MARKER: &str = "roofgap.lake.json";

/// Start of the name of a merged file.
const MERGED: &str = "merged-";

/// A partition of every table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Partition {
    /// Date, `YYYY-MM-DD`.
    pub date: String,
    /// Project.
    pub project: String,
    /// Host.
    pub host: String,
}

impl Partition {
    /// Returns the folder of the partition in a table.
    pub fn folder(&self, table: &Table) -> String {
        let Self { date, project, host } = self;
        format!("{}/date={date}/project={project}/host={host}", table.name)
    }
}

/// The place of a run, which its first writer chooses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Partition.
    #[serde(flatten)]
    pub partition: Partition,
    /// Origin of the date.
    pub date_from: String,
}

impl Place {
    /// Returns the content of the file with the place.
    pub fn text(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Understands the content; `None` where it cannot be part of a path.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let place: Self = serde_json::from_slice(text).ok()?;
        let Partition { date, project, host } = &place.partition;
        self::date("date", date).ok()?;
        partition_value("project", project).ok()?;
        partition_value("host", host).ok()?;
        Some(place)
    }
}

/// The content of a file of a table, by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileName {
    /// Rows of one run.
    Run {
        /// Key of the run.
        key: String,
    },
    /// Rows of many runs.
    Merged,
    /// A temporary file.
    Temporary,
    /// Anything else.
    Foreign,
}

/// A file of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableFile {
    /// Path below the lake.
    pub path: String,
    /// Path of its folder below the table, such as `date=2026-03-01/project=chat/host=a`.
    pub partition: String,
    /// Content by the name.
    pub name: FileName,
}

impl TableFile {
    /// Understands a path below the lake; `None` for a path that is not that of a table.
    pub fn parse(path: &str, table: &Table) -> Option<Self> {
        let below = path.strip_prefix(table.name)?.strip_prefix('/')?;
        let (partition, name) = below.rsplit_once('/').unwrap_or(("", below));
        let place: Vec<&str> = partition.split('/').collect();
        let in_place = matches!(place.as_slice(), [date, project, host]
            if date.starts_with("date=") && project.starts_with("project=") && host.starts_with("host="));
        let name = match name.strip_suffix(".parquet") {
            _ if name.starts_with('.') || name.contains(".parquet#") => FileName::Temporary,
            Some(stem) if in_place && stem.starts_with(MERGED) => FileName::Merged,
            Some(stem) if in_place && is_key(stem) => FileName::Run { key: stem.to_owned() },
            _ => FileName::Foreign,
        };
        Some(Self { path: path.to_owned(), partition: partition.to_owned(), name })
    }
}

/// Tells whether a text can be a key: 32 hexadecimal digits.
pub fn is_key(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Returns the path of the rows of one run.
pub fn run_file(table: &Table, partition: &Partition, key: &str) -> String {
    format!("{}/{key}.parquet", partition.folder(table))
}

/// Returns the path of a merged file of a folder. `hash` identifies its content.
pub fn merged_file(table: &Table, partition: &str, hash: &str) -> String {
    format!("{}/{partition}/{MERGED}{hash}.parquet", table.name)
}

/// Returns the path of the mark of a key.
pub fn key_mark(key: &str) -> String {
    format!("_keys/{}/{key}", key.get(..2).unwrap_or(key))
}

/// Returns the path of the file with the place of a run.
pub fn key_place(key: &str) -> String {
    format!("{}.place", key_mark(key))
}

/// Checks a value of a partition.
pub fn partition_value(what: &'static str, value: &str) -> Result<String, LakeError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if value.is_empty() || !value.chars().all(allowed) || value.chars().all(|c| c == '.') || value.len() > 128
    {
        let allowed = "use letters, digits, `.`, `_` and `-`, and not only dots";
        return Err(LakeError::Usage(format!("{what} {value:?}: {allowed}")));
    }
    Ok(value.to_owned())
}

/// Checks a date, `YYYY-MM-DD`.
pub fn date(what: &'static str, value: &str) -> Result<String, LakeError> {
    let parsed: Option<jiff::civil::Date> = (value.len() == 10).then(|| value.parse().ok()).flatten();
    match parsed {
        Some(date) => Ok(date.to_string()),
        None => Err(LakeError::Usage(format!("{what} {value:?} is not a date; write YYYY-MM-DD"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::table;

    #[test]
    fn a_name_tells_the_content_of_a_file() {
        let runs = table("runs").unwrap();
        let key = "0123456789abcdef0123456789abcdef";
        let place = "date=2026-03-01/project=chat/host=gpu-1";
        let name = |path: String| TableFile::parse(&path, &runs).unwrap().name;
        assert_eq!(name(format!("runs/{place}/{key}.parquet")), FileName::Run { key: key.to_owned() });
        assert_eq!(name(merged_file(&runs, place, "12")), FileName::Merged);
        assert_eq!(name(format!("runs/{place}/.{key}.parquet.1-0.tmp")), FileName::Temporary);
        assert_eq!(name(format!("runs/{place}/{key}.parquet#1")), FileName::Temporary);
        assert_eq!(name(format!("runs/{key}.parquet")), FileName::Foreign);
        assert_eq!(name(format!("runs/{place}/notes.txt")), FileName::Foreign);
        assert_eq!(TableFile::parse("runs_old/x.parquet", &runs), None);
    }

    #[test]
    fn a_value_of_a_partition_cannot_leave_its_folder() {
        for good in ["chat", "gpu-07.cluster", "a_b", "..a"] {
            assert_eq!(partition_value("--project", good).unwrap(), good);
        }
        for bad in ["", ".", "..", "a/b", "a b", "a=b/c", "ü", "a%2Fb"] {
            assert!(partition_value("--project", bad).is_err(), "{bad}");
        }
        let place = |host: &str| Place {
            partition: Partition {
                date: "2026-03-01".to_owned(),
                project: "chat".to_owned(),
                host: host.to_owned(),
            },
            date_from: "file".to_owned(),
        };
        assert_eq!(Place::parse(&place("a").text()), Some(place("a")));
        assert_eq!(Place::parse(&place("../a").text()), None);
        assert_eq!(date("--date", "2026-03-01").unwrap(), "2026-03-01");
        for bad in ["2026-3-1", "2026-02-30", "today", "2026-03-01T10:00"] {
            assert!(date("--date", bad).is_err(), "{bad}");
        }
    }
}
