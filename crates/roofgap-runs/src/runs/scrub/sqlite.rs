//! Rewrites an nsys export with the tables and rows that a report needs, without free pages.
//!
//! An export holds the environment of the program three times, the names of all processes, host and user names, and the output
//! of the program. So tables are kept by an allow-list.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, Error, OpenFlags, params};

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
const IN_PART: [&str; 5] = ["StringIds", "PROCESSES", "ThreadNames", "META_DATA_EXPORT", "EXPORT_META_DATA"];

/// Rows with the versions of the export.
const VERSIONS: &str = "name LIKE 'EXPORT_PRODUCT_%' OR name LIKE 'EXPORT_SCHEMA_%' OR name IN ('EXPORT_ARCH', 'EXPORT_PLATFORM')";

/// Columns that refer to `StringIds` without a declared reference.
const POINTERS: [&str; 6] = ["nameId", "textId", "shortName", "demangledName", "mangledName", "jsonTextId"];

/// A table of the source file.
struct Table {
    name: String,
    sql: String,
    columns: Vec<String>,
    /// Columns that may hold text or bytes.
    texts: Vec<String>,
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
        self.columns.iter().filter(|column| POINTERS.contains(&column.as_str()) || declared(column)).collect()
    }
}

/// Collects the private data of an export.
pub fn collect(path: &Path, private: &mut Private) -> Result<(), Error> {
    let old = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let there = |name: &str| -> Result<bool, Error> {
        let sql = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?1";
        old.query_row(sql, [name], |row| row.get::<_, i64>(0)).map(|count| count > 0)
    };
    for table in ["META_DATA_CAPTURE", "TARGET_INFO_SYSTEM_ENV", "META_DATA_EXPORT", "EXPORT_META_DATA"] {
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
pub fn rewrite(
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
        for column in ["globalTid", "globalPid"].iter().filter(|column| table.has(column)) {
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
    for table in whole.iter().chain(in_part.iter().filter(|table| table.name == "ThreadNames")) {
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
    let named: Vec<(String, String)> =
        rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
    let mut tables = Vec::new();
    for (name, sql) in named {
        let mut rows = new.prepare("SELECT name, type FROM pragma_table_info(?1, 'old')")?;
        let declared: Vec<(String, String)> =
            rows.query_map([&name], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
        let holds_text = |(_, kind): &&(String, String)| {
            let kind = kind.to_ascii_uppercase();
            kind.is_empty() || ["TEXT", "CHAR", "CLOB", "BLOB"].iter().any(|text| kind.contains(text))
        };
        let texts = declared.iter().filter(holds_text);
        tables.push(Table {
            texts: texts.map(|(column, _)| column.clone()).collect(),
            columns: declared.into_iter().map(|(column, _)| column).collect(),
            name,
            sql,
        });
    }
    Ok(tables)
}

/// Creates a table in the new file and copies rows.
fn copy(new: &Connection, table: &Table, which: &str) -> Result<(), Error> {
    new.execute_batch(&table.sql)?;
    let name = quoted(&table.name);
    new.execute(&format!("INSERT INTO main.{name} SELECT * FROM old.{name} WHERE {which}"), [])?;
    Ok(())
}

/// Cleans the copied texts. Bytes with private data are emptied.
fn clean(
    new: &Connection,
    whole: &[Table],
    in_part: &[Table],
    private: &Private,
    count: &mut BTreeMap<String, u64>,
) -> Result<(), Error> {
    new.execute_batch("CREATE TEMP TABLE changed (old PRIMARY KEY, new) WITHOUT ROWID;")?;
    for table in whole.iter().chain(in_part) {
        for column in &table.texts {
            let (name, column) = (quoted(&table.name), quoted(column));
            let mut insert = new.prepare("INSERT INTO temp.changed VALUES (?1, ?2)")?;
            let mut changes = false;
            let mut rows = new.prepare(&format!(
                "SELECT DISTINCT {column} FROM main.{name} WHERE typeof({column}) IN ('text', 'blob')"
            ))?;
            let mut rows = rows.query([])?;
            while let Some(row) = rows.next()? {
                let old = row.get_ref(0)?;
                if let Some(clean) = clean_value(&table.name, old, private, count)? {
                    insert.execute(params![ToSqlOutput::Borrowed(old), clean])?;
                    changes = true;
                }
            }
            if changes {
                new.execute_batch(&format!(
                    "UPDATE main.{name} SET {column} = (SELECT new FROM temp.changed WHERE old = {column})
                         WHERE {column} IN (SELECT old FROM temp.changed);
                     DELETE FROM temp.changed;"
                ))?;
            }
        }
    }
    new.execute_batch("DROP TABLE temp.changed;")
}

/// Returns the clean form of a value; `None` where it is clean.
fn clean_value(
    table: &str,
    value: ValueRef<'_>,
    private: &Private,
    count: &mut BTreeMap<String, u64>,
) -> Result<Option<Value>, Error> {
    let bytes = match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes,
        _ => return Ok(None),
    };
    if let (ValueRef::Text(_), Ok(text)) = (value, std::str::from_utf8(bytes)) {
        // The path of a program may name its user.
        let short = if table == "PROCESSES" { text.rsplit('/').next().unwrap_or(text) } else { text };
        let clean = private.clean(short, count);
        let clean = clean.or_else(|| (short != text).then(|| short.to_owned()));
        return Ok(clean.map(Value::Text));
    }
    // Reading from memory cannot fail.
    let found = private.found_in(&mut &*bytes).unwrap_or_default();
    if let Some(what) = &found {
        *count.entry(what.clone()).or_default() += 1;
    }
    Ok(found.map(|_| Value::Blob(Vec::new())))
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
