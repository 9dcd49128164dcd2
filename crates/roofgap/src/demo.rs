//! The capture inside the binary: a small Llama on an H200, its timeline and its counters.

use roofgap_analyze::model::{Architecture, Tokens};
use roofgap_base::error::Error;
use roofgap_base::file::write_atomic;
use roofgap_runs::open::Overrides;
use std::path::{Path, PathBuf};

/// Title of the reports.
pub const TITLE: &str = "demo: a Llama with 4 layers on an NVIDIA H200";

const CAPTURES: [(&str, &[u8]); 2] = [
    ("timeline.sqlite.gz", include_bytes!("../demo/timeline.sqlite.gz")),
    ("counters.csv.gz", include_bytes!("../demo/counters.csv.gz")),
];

/// Writes the captures into a folder and returns their paths.
pub fn write(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    std::fs::create_dir_all(folder).map_err(Error::io("write", folder))?;
    let mut paths = Vec::new();
    for (name, bytes) in CAPTURES {
        let path = folder.join(name);
        write_atomic(&path, bytes).map_err(Error::io("write", &path))?;
        paths.push(path);
    }
    Ok(paths)
}

/// Returns the model and its tokens, which the captures do not name.
pub fn overrides() -> Overrides {
    let config = serde_json::from_slice(include_bytes!("../demo/config.json")).unwrap_or_default();
    Overrides {
        // The test checks that the file describes a model.
        model: Architecture::from_config(&config).ok(),
        tokens: Tokens { prompt: Some(256), generated: Some(8), batch: Some(1), ..Tokens::default() },
        ..Overrides::default()
    }
}

#[cfg(test)]
mod tests {
    use super::{CAPTURES, overrides};
    use std::path::Path;

    #[test]
    fn the_captures_are_the_fixtures() {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
        let names = ["h200/llama4.sqlite.gz", "ncu/llama4_light_raw_base.csv.gz"];
        for ((name, bytes), fixture) in CAPTURES.into_iter().zip(names) {
            assert!(std::fs::read(fixtures.join(fixture)).unwrap() == bytes, "{name}");
        }
        let size: usize = CAPTURES.iter().map(|(_, bytes)| bytes.len()).sum();
        assert!(size < 1 << 20, "{size} bytes");
    }

    #[test]
    fn the_model_is_known() {
        assert!(overrides().model.is_some());
    }
}
