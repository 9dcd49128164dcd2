//! Lists the presets for `config/presets.rs`.

#![allow(clippy::print_stdout)] // cargo reads instructions from stdout

use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=presets");
    if let Err(error) = fs::write(out.join("presets.rs"), presets(&manifest.join("presets"))) {
        println!("cargo::error=cannot write presets.rs: {error}");
    }
}

/// Writes the table of preset files as Rust source.
fn presets(folder: &Path) -> String {
    let mut files = Vec::new();
    collect(folder, &mut files);
    files.sort();
    let row = |path: &PathBuf| {
        let name = path.strip_prefix(folder).unwrap_or(path).to_string_lossy().replace('\\', "/");
        format!("    ({name:?}, include_str!({:?})),\n", path.display().to_string())
    };
    let rows: String = files.iter().map(row).collect();
    format!("/// Path and text of every preset file.\nconst FILES: &[(&str, &str)] = &[\n{rows}];\n")
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
}
