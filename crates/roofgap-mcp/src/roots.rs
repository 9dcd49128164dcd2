//! The folders that may be read, and the inputs in them.

use std::fs;
use std::path::{Component, Path, PathBuf};

use roofgap_base::error::Error;
use roofgap_runs::run_dir::LocateError;
use roofgap_runs::runs::resolve;

/// Depth to which a folder that a client names is checked for links that lead out.
const CHECKED_DEPTH: usize = 6;

/// The folders of the command line. No tool reads a file outside of them.
#[derive(Debug, Clone)]
pub struct Roots {
    /// Folder that contains the runs, as given.
    runs: PathBuf,
    /// Folders without links and `..`, the runs folder among them where it exists.
    folders: Vec<PathBuf>,
}

impl Roots {
    /// Takes the folder of the runs, which may not exist yet, and the other folders, which must.
    ///
    /// # Errors
    /// Fails for a folder that is missing or not readable.
    pub fn new(runs: &Path, others: &[PathBuf]) -> Result<Self, Error> {
        let mut folders = Vec::new();
        if let Ok(full) = fs::canonicalize(runs) {
            folders.push(full);
        }
        for path in others {
            let full = fs::canonicalize(path)
                .and_then(|full| fs::read_dir(&full).map(|_| full))
                .map_err(Error::io("serve the folder", path))?;
            if !folders.contains(&full) {
                folders.push(full);
            }
        }
        Ok(Roots { runs: runs.to_owned(), folders })
    }

    /// Returns the folder that contains the runs.
    pub fn runs(&self) -> &Path {
        &self.runs
    }

    /// Returns the folders, without links and `..`.
    pub fn folders(&self) -> &[PathBuf] {
        &self.folders
    }

    /// Finds what a client names: a run (id, unique prefix, `latest`) or a path, absolute or below one of the folders.
    ///
    /// # Errors
    /// Fails for a name that is unknown, ambiguous or outside of the folders, links in a named folder included.
    pub fn find(&self, input: &str) -> Result<PathBuf, Error> {
        let path = Path::new(input);
        if !input.contains('/') {
            match resolve(&self.runs, input) {
                Ok(run) => return self.inside(input, &run.path),
                Err(error @ LocateError::Ambiguous { .. }) => return Err(error.into()),
                Err(_) => {}
            }
        }
        let named: Vec<PathBuf> = if path.is_absolute() {
            vec![path.to_owned()]
        } else {
            self.folders.iter().map(|folder| folder.join(path)).collect()
        };
        match named.iter().find(|path| path.exists()) {
            Some(full) => self.inside(input, full),
            // A path outside gets the same answer whether it exists or not.
            None if named.iter().any(|path| self.contains(&plain(path))) => {
                let folders = self.listed();
                Err(Error::new(format!(
                    "no run and no file {input:?} in {folders}; the tool `list` names what there is"
                )))
            }
            None => Err(self.outside(input)),
        }
    }

    /// Returns a short name that [`Roots::find`] turns into `path` again.
    pub fn name_of(&self, path: &Path) -> String {
        let full = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let below = self
            .folders
            .iter()
            .filter_map(|folder| full.strip_prefix(folder).ok())
            .min_by_key(|below| below.as_os_str().len())
            .map(|below| below.display().to_string())
            .filter(|below| self.find(below).is_ok_and(|path| path == full));
        below.unwrap_or_else(|| full.display().to_string())
    }

    /// Returns the path without links, if all of it is in the folders.
    fn inside(&self, input: &str, path: &Path) -> Result<PathBuf, Error> {
        let full = fs::canonicalize(path).map_err(|_| self.outside(input))?;
        if self.contains(&full) && self.keeps_inside(&full, CHECKED_DEPTH) {
            Ok(full)
        } else {
            Err(self.outside(input))
        }
    }

    fn contains(&self, full: &Path) -> bool {
        self.folders.iter().any(|folder| full.starts_with(folder))
    }

    /// Tells whether no link below `path` leads out of the folders.
    fn keeps_inside(&self, path: &Path, depth: usize) -> bool {
        let Ok(entries) = fs::read_dir(path) else {
            return true;
        };
        entries.flatten().all(|entry| {
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_symlink() => {
                    fs::canonicalize(&path).map_or(true, |full| self.contains(&full))
                }
                Ok(kind) if kind.is_dir() && depth > 0 => self.keeps_inside(&path, depth - 1),
                _ => true,
            }
        })
    }

    fn outside(&self, input: &str) -> Error {
        let folders = self.listed();
        Error::new(format!("{input:?} is outside of the folders that this server may read: {folders}"))
    }

    fn listed(&self) -> String {
        let folders: Vec<String> = self.folders.iter().map(|f| f.display().to_string()).collect();
        folders.join(", ")
    }
}

/// Removes `.` and `..` from a path that does not exist, as far as its text tells.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A runs folder with one run, a folder with a capture, and a secret beside them.
    fn place() -> (tempfile::TempDir, Roots) {
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        fs::create_dir_all(at("runs/20260101-000000")).unwrap();
        fs::write(at("runs/20260101-000000/session.json"), "{}").unwrap();
        fs::create_dir_all(at("captures/deep")).unwrap();
        fs::write(at("captures/deep/a.sqlite"), "x").unwrap();
        fs::write(at("secret.sqlite"), "x").unwrap();
        let roots = Roots::new(&at("runs"), &[at("captures")]).unwrap();
        (base, roots)
    }

    #[test]
    fn runs_and_files_are_found_by_their_short_names() {
        let (base, roots) = place();
        let base = fs::canonicalize(base.path()).unwrap();
        let run = base.join("runs/20260101-000000");
        for name in ["latest", "20260101", "20260101-000000", run.to_str().unwrap()] {
            assert_eq!(roots.find(name).unwrap(), run, "{name}");
        }
        let capture = base.join("captures/deep/a.sqlite");
        assert_eq!(roots.find("deep/a.sqlite").unwrap(), capture);
        assert_eq!(roots.name_of(&capture), "deep/a.sqlite");
        assert_eq!(roots.name_of(&run), "20260101-000000");
        let error = roots.find("deep/b.sqlite").unwrap_err();
        assert!(error.to_string().starts_with("no run and no file"), "{error}");
    }

    #[test]
    fn nothing_outside_is_found_by_path_or_link() {
        let (base, roots) = place();
        let at = |name: &str| base.path().join(name);
        symlink(at("secret.sqlite"), at("captures/link.sqlite")).unwrap();
        fs::create_dir(at("captures/folder")).unwrap();
        symlink(at("secret.sqlite"), at("captures/folder/rank0.sqlite")).unwrap();
        let secret = at("secret.sqlite");
        for name in [
            "../secret.sqlite",
            "deep/../../secret.sqlite",
            secret.to_str().unwrap(),
            "link.sqlite",
            "folder",
            "/etc/passwd",
            "/etc/no-such-file",
            "..",
            "/",
        ] {
            let error = roots.find(name).unwrap_err();
            assert!(error.to_string().contains("outside of the folders"), "{name}: {error}");
        }
    }

    #[test]
    fn a_missing_folder_is_an_error_and_a_missing_runs_folder_is_not() {
        let (base, _) = place();
        let none = base.path().join("none");
        assert!(Roots::new(&none, &[]).unwrap().folders().is_empty());
        let error = Roots::new(&none, std::slice::from_ref(&none)).unwrap_err();
        assert!(error.to_string().contains("serve the folder"), "{error}");
    }
}
