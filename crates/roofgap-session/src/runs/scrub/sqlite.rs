//! Rewrites an nsys export with the tables and rows that a report needs, without free pages.
//!
//! An export holds the environment of the program three times, the names of all processes, host and user names, and the output
//! of the program. So tables are kept by an allow-list.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::{Connection, Error, OpenFlags};

use super::private::Private;

/// Prefixes of the tables with times, function names and devices.
const KEPT: [&str; 14] = [
    "CUPTI_ACTIVITY_KIND_",
    "NVTX_EVENTS",
    "ENUM_",
    "TARGET_INFO_GPU",
    "TARGET_INFO_CUDA_",
    "ANALYSIS_DETAILS",
    "OSRT_API",
    "PROFILER_OVERHEAD",
    "CUDA_GRAPH_",
    "CUDA_GPU_MEMORY_USAGE_EVENTS",
    "CUBLAS_EVENTS",
    "CUDNN_EVENTS",
    "GPU_METRICS",
    "UnwindMethodType",
];

/// Tables of which only some rows are kept.
const IN_PART: [&str; 5] = [
    "StringIds",
    "PROCESSES",
    "ThreadNames",
    "META_DATA_EXPORT",
    "EXPORT_META_DATA",
];

/// Rows with the versions of the export.
const VERSIONS: &str = "name LIKE 'EXPORT_PRODUCT_%' OR name LIKE 'EXPORT_SCHEMA_%' OR name IN ('EXPORT_ARCH', 'EXPORT_PLATFORM')";

/// Columns that refer to `StringIds` without a declared reference.
const POINTERS: [&str; 6] = [
    "nameId",
    "textId",
    "shortName",
    "demangledName",
    "mangledName",
    "jsonTextId",
];

/// A table of the source file.
struct Table {
    name: String,
    sql: String,
    columns: Vec<String>,
}

impl Table {
    fn has(&self, column: &str) -> bool {
        self.columns.iter().any(|own| own == column)
    }

    /// Lists the columns that refer to `StringIds`.
    fn pointers(&self) -> Vec<&String> {
        let declared = |column: &str| {
            self.sql.lines().any(|line| {
                line.contains("REFERENCES StringIds") && line.split_whitespace().next() == Some(column)
            })
        };
        self.columns
            .iter()
            .filter(|column| POINTERS.contains(&column.as_str()) || declared(column))
            .collect()
    }
}

/// Collects the private data of an export.
pub(super) fn collect(path: &Path, private: &mut Private) -> Result<(), Error> {
    let old = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let there = |name: &str| -> Result<bool, Error> {
        let sql = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?1";
        old.query_row(sql, [name], |row| row.get::<_, i64>(0))
            .map(|count| count > 0)
    };
    for table in [
        "META_DATA_CAPTURE",
        "TARGET_INFO_SYSTEM_ENV",
        "META_DATA_EXPORT",
        "EXPORT_META_DATA",
    ] {
        if !there(table)? {
            continue;
        }
        let mut rows = old.prepare(&format!("SELECT name, value FROM {table}"))?;
        let mut rows = rows.query([])?;
        while let Some(row) = rows.next()? {
            let name: String = row.get(0)?;
            let value: Option<String> = row.get(1)?;
            let value = value.unwrap_or_default();
            match name.rsplit(':').next().unwrap_or_default() {
                "ENVIRONMENT_VARIABLE" => private.variables_in(&value, '\0'),
                "DeviceEnvironment" => private.variables_in(&value, ';'),
                "Hostname" | "EXPORT_HOST" | "DEVICE_DISPLAY_NAME" => {
                    private.word(&value, "the host name");
                }
                "USER_NAME" | "EXPORT_USER" => private.word(&value, "the user name"),
                _ => {}
            }
        }
    }
    if there("StringIds")? {
        let mut rows = old.prepare("SELECT value FROM StringIds WHERE value LIKE '%=%'")?;
        let mut rows = rows.query([])?;
        while let Some(row) = rows.next()? {
            let value: String = row.get(0)?;
            private.variables_in(&value, ' ');
        }
    }
    Ok(())
}

/// Rewrites an export to `target`, which must not exist, through the temporary file `between`. Returns the dropped tables.
pub(super) fn rewrite(
    source: &Path,
    between: &Path,
    target: &Path,
    private: &Private,
    count: &mut BTreeMap<String, u64>,
) -> Result<Vec<String>, Error> {
    let new = Connection::open(between)?;
    new.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA secure_delete = ON;")?;
    new.execute("ATTACH DATABASE ?1 AS old", [source.to_string_lossy()])?;
    let mut dropped = Vec::new();
    let mut whole = Vec::new();
    let mut in_part = Vec::new();
    for table in tables(&new)? {
        if IN_PART.contains(&table.name.as_str()) {
            in_part.push(table);
        } else if KEPT.iter().any(|kept| table.name.starts_with(kept)) {
            whole.push(table);
        } else {
            dropped.push(table.name);
        }
    }
    for table in &whole {
        copy(&new, table, "1")?;
    }
    new.execute_batch(
        "CREATE TEMP TABLE own (pid INTEGER PRIMARY KEY); CREATE TEMP TABLE used (id INTEGER PRIMARY KEY);",
    )?;
    for table in &whole {
        for column in ["globalTid", "globalPid"]
            .iter()
            .filter(|column| table.has(column))
        {
            let sql = format!(
                "INSERT OR IGNORE INTO own SELECT DISTINCT ({column} >> 24) & 16777215 FROM main.{} WHERE {column} IS NOT NULL",
                quoted(&table.name)
            );
            new.execute(&sql, [])?;
        }
    }
    for table in in_part.iter().filter(|table| table.name != "StringIds") {
        let which = match table.name.as_str() {
            "PROCESSES" => "((globalPid >> 24) & 16777215) IN (SELECT pid FROM own)",
            "ThreadNames" => "((globalTid >> 24) & 16777215) IN (SELECT pid FROM own)",
            _ => VERSIONS,
        };
        copy(&new, table, which)?;
    }
    for table in whole
        .iter()
        .chain(in_part.iter().filter(|table| table.name == "ThreadNames"))
    {
        for column in table.pointers() {
            let sql = format!(
                "INSERT OR IGNORE INTO used SELECT DISTINCT {0} FROM main.{1} WHERE {0} IS NOT NULL",
                quoted(column),
                quoted(&table.name)
            );
            new.execute(&sql, [])?;
        }
    }
    if let Some(strings) = in_part.iter().find(|table| table.name == "StringIds") {
        copy(&new, strings, "id IN (SELECT id FROM used)")?;
    }
    clean(&new, &whole, &in_part, private, count)?;
    new.execute_batch("DETACH DATABASE old; DROP TABLE temp.own; DROP TABLE temp.used;")?;
    new.execute("VACUUM INTO ?1", [target.to_string_lossy()])?;
    Ok(dropped)
}

/// Lists the tables of the source file.
fn tables(new: &Connection) -> Result<Vec<Table>, Error> {
    let mut rows = new.prepare(
        "SELECT name, sql FROM old.sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE TABLE%' AND name NOT LIKE 'sqlite_%'",
    )?;
    let named: Vec<(String, String)> = rows
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    let mut tables = Vec::new();
    for (name, sql) in named {
        let mut rows = new.prepare("SELECT name FROM pragma_table_info(?1, 'old')")?;
        let columns = rows
            .query_map([&name], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        tables.push(Table { name, sql, columns });
    }
    Ok(tables)
}

/// Creates a table in the new file and copies rows.
fn copy(new: &Connection, table: &Table, which: &str) -> Result<(), Error> {
    new.execute_batch(&table.sql)?;
    let name = quoted(&table.name);
    new.execute(
        &format!("INSERT INTO main.{name} SELECT * FROM old.{name} WHERE {which}"),
        [],
    )?;
    Ok(())
}

/// Cleans the copied texts.
fn clean(
    new: &Connection,
    whole: &[Table],
    in_part: &[Table],
    private: &Private,
    count: &mut BTreeMap<String, u64>,
) -> Result<(), Error> {
    let texts = [
        ("StringIds", "value"),
        ("NVTX_EVENTS", "text"),
        ("NVTX_EVENTS", "jsonText"),
        ("PROCESSES", "name"),
    ];
    for (table, column) in texts {
        let mut all = whole.iter().chain(in_part);
        if !all.any(|own| own.name == table && own.has(column)) {
            continue;
        }
        let mut changed: Vec<(String, String)> = Vec::new();
        let mut rows = new.prepare(&format!(
            "SELECT DISTINCT {column} FROM main.{table} WHERE typeof({column}) = 'text'"
        ))?;
        let mut rows = rows.query([])?;
        while let Some(row) = rows.next()? {
            let text: String = row.get(0)?;
            // The path of a program may name its user.
            let short = if table == "PROCESSES" {
                text.rsplit('/').next().unwrap_or(&text)
            } else {
                &text
            };
            let clean = private.clean(short, count).unwrap_or_else(|| short.to_owned());
            if clean != text {
                changed.push((text, clean));
            }
        }
        for (text, clean) in changed {
            new.execute(
                &format!("UPDATE main.{table} SET {column} = ?2 WHERE {column} = ?1"),
                [text, clean],
            )?;
        }
    }
    Ok(())
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
