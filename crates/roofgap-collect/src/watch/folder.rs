//! Private folders: only their owner can enter them.

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Failure to use a private folder.
#[expect(missing_docs, reason = "the messages name the fields")]
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// The folder cannot be created or read.
    #[error("cannot use the folder {}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    /// Others can enter the folder.
    #[error("{} must be a folder of this user with mode 0700; remove it, or set {variable} to another place", path.display())]
    NotPrivate { path: PathBuf, variable: &'static str },
}

/// Creates a private folder, or checks the one that exists. `variable`: variable of the environment that moves it.
pub fn private(path: &Path, variable: &'static str) -> Result<(), FolderError> {
    let failed = |source| FolderError::Io { path: path.to_owned(), source };
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    let found = std::fs::symlink_metadata(path).map_err(failed)?;
    let user = rustix::process::geteuid().as_raw();
    if !found.is_dir() || found.uid() != user || found.mode() & 0o077 != 0 {
        return Err(FolderError::NotPrivate { path: path.to_owned(), variable });
    }
    Ok(())
}

/// Creates or checks the folder for captures: `roofgap-UID` in the folder for temporary files.
pub fn of_captures(temporary: &Path) -> Result<PathBuf, FolderError> {
    let path = temporary.join(format!("roofgap-{}", rustix::process::geteuid().as_raw()));
    private(&path, "TMPDIR")?;
    Ok(path)
}

/// Creates or checks the folder for registrations and sockets: `roofgap` in the user's runtime folder where there is one, else that for
/// captures.
pub fn of_sockets(runtime: Option<&Path>, captures: &Path) -> Result<PathBuf, FolderError> {
    let Some(runtime) = runtime.filter(|path| path.is_absolute() && path.is_dir()) else {
        return Ok(captures.to_owned());
    };
    let path = runtime.join("roofgap");
    private(&path, "XDG_RUNTIME_DIR")?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_folder_that_others_can_enter_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("own");
        private(&path, "TMPDIR").unwrap();
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o700);
        private(&path, "TMPDIR").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let error = private(&path, "TMPDIR").unwrap_err();
        assert!(error.to_string().contains("mode 0700"), "{error}");
        let link = base.path().join("link");
        std::os::unix::fs::symlink(base.path(), &link).unwrap();
        assert!(private(&link, "TMPDIR").is_err());
    }

    #[test]
    fn sockets_are_in_the_runtime_folder_if_there_is_one() {
        let base = tempfile::tempdir().unwrap();
        let captures = of_captures(base.path()).unwrap();
        let sockets = |runtime: Option<&Path>| of_sockets(runtime, &captures).unwrap();
        assert_eq!(sockets(Some(base.path())), base.path().join("roofgap"));
        assert_eq!(sockets(None), captures);
        assert_eq!(sockets(Some(Path::new("relative"))), captures);
        assert_eq!(sockets(Some(&base.path().join("missing"))), captures);
    }
}
