//! The Python this binary carries, written into a run directory.

use std::io;
use std::path::{Path, PathBuf};

use crate::rundir::write_whole;

/// Each script, and where it goes: they find one another by these places.
const SCRIPTS: &[(&str, &str)] = &[
    ("hf_driver.py", include_str!("../../python/hf_driver.py")),
    ("hf_model.py", include_str!("../../python/hf_model.py")),
    ("hf_loop.py", include_str!("../../python/hf_loop.py")),
    ("roofgap_probe.py", include_str!("../../python/roofgap_probe.py")),
    (
        "annotate/sitecustomize.py",
        include_str!("../../python/annotate/sitecustomize.py"),
    ),
    (
        "annotate/roofgap_annotate.py",
        include_str!("../../python/annotate/roofgap_annotate.py"),
    ),
];

/// The scripts in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scripts {
    /// The driver of Hugging Face models.
    pub driver: PathBuf,
    /// The folder that goes on the `PYTHONPATH` of a program to be annotated.
    pub annotate: PathBuf,
}

impl Scripts {
    /// Writes them into `folder`, which is made where it is missing.
    pub fn install(folder: &Path) -> io::Result<Scripts> {
        for (name, text) in SCRIPTS {
            let path = folder.join(name);
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent)?;
            }
            write_whole(&path, text.as_bytes())?;
        }
        Ok(Scripts {
            driver: folder.join("hf_driver.py"),
            annotate: folder.join("annotate"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child::probe;
    use crate::command::CommandLine;
    use crate::program::Annotation;
    use std::time::Duration;

    const LIMIT: Duration = Duration::from_secs(60);

    fn python_works() -> bool {
        let works = probe(&CommandLine::new("python3").arg("--version"), LIMIT).is_ok_and(|answer| answer.ok);
        if !works {
            println!("skipped: no python3");
        }
        works
    }

    #[test]
    fn the_driver_explains_itself_where_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let scripts = Scripts::install(&folder.path().join("a b")).unwrap();
        if !python_works() {
            return;
        }
        let answer = probe(
            &CommandLine::new("python3").arg(&scripts.driver).arg("--help"),
            LIMIT,
        )
        .unwrap();
        assert!(
            answer.ok && answer.stdout.contains("--profile-operators"),
            "{}",
            answer.text()
        );
    }

    #[test]
    fn a_program_runs_under_annotation_as_without() {
        let folder = tempfile::tempdir().unwrap();
        let scripts = Scripts::install(folder.path()).unwrap();
        if !python_works() {
            return;
        }
        let program = CommandLine::new("python3").args([
            "-c",
            "import sys; print('sitecustomize' in sys.modules); sys.exit(5)",
        ]);
        let annotated = Annotation {
            folder: scripts.annotate,
            sync: true,
            inherited: None,
        }
        .apply(program);
        let answer = probe(&annotated, LIMIT).unwrap();
        assert_eq!(
            (answer.stdout.trim(), answer.how.as_str()),
            ("True", "ended with status 5"),
            "{}",
            answer.stderr
        );
    }
}
