//! Unpacked copies of compressed inputs. A killed process leaves none behind: the copy has no name.

use crate::ReadError;
use roofgap_base::file::Unpacked;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// The unpacked content of a file.
#[derive(Debug)]
pub struct TemporaryCopy {
    path: PathBuf,
    /// Keeps the content: a file without a name, or one that is removed at the end.
    _content: Content,
}

#[derive(Debug)]
enum Content {
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "needs /proc"))]
    Nameless(File),
    Named(tempfile::NamedTempFile),
}

impl Content {
    fn create() -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        if named::can_name() {
            return tempfile::tempfile().map(Self::Nameless);
        }
        let named = tempfile::Builder::new().prefix("roofgap-").tempfile()?;
        Ok(Self::Named(named))
    }

    fn file(&mut self) -> &mut File {
        match self {
            Self::Nameless(file) => file,
            Self::Named(file) => file.as_file_mut(),
        }
    }

    fn path(&self) -> PathBuf {
        match self {
            #[cfg(target_os = "linux")]
            Self::Nameless(file) => named::path_of(file),
            #[cfg(not(target_os = "linux"))]
            Self::Nameless(_) => PathBuf::new(),
            Self::Named(file) => file.path().to_path_buf(),
        }
    }
}

impl TemporaryCopy {
    /// Unpacks a gzip file.
    pub fn unpack(path: &Path) -> Result<Self, ReadError> {
        let no_room = |e: io::Error| ReadError::Unsupported {
            path: path.to_path_buf(),
            what: format!("cannot unpack it into {}: {e}", std::env::temp_dir().display()),
            remedy: "unpack it with gunzip first, or set TMPDIR to a folder with more room".into(),
        };
        let mut inside = Unpacked::open(path).map_err(|e| ReadError::io(path, e))?;
        let mut content = Content::create().map_err(no_room)?;
        let mut buffer = vec![0u8; 1 << 18];
        // Not `io::copy`: errors of reading and of writing differ.
        loop {
            match inside.read(&mut buffer).map_err(|e| ReadError::damaged(path, "gzip file", e))? {
                0 => break,
                n => content.file().write_all(buffer.get(..n).unwrap_or_default()).map_err(no_room)?,
            }
        }
        content.file().flush().map_err(no_room)?;
        Ok(Self { path: content.path(), _content: content })
    }

    /// Returns a path under which the copy can be opened.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Opens a path with a function that needs a name in a folder, which SQLite does. A copy without a name has one meanwhile.
#[cfg_attr(not(feature = "nsys"), allow(dead_code))]
pub fn open_by_name<T>(path: &Path, open: impl FnOnce(&Path) -> T) -> io::Result<T> {
    #[cfg(target_os = "linux")]
    if path.starts_with(named::DESCRIPTORS) {
        let folder = tempfile::Builder::new().prefix("roofgap-").tempdir()?;
        let name = folder.path().join("copy");
        named::link(path, &name)?;
        return Ok(open(&name));
    }
    Ok(open(path))
}

/// Names of files without one.
#[cfg(target_os = "linux")]
mod named {
    use rustix::fs::{AtFlags, CWD, linkat};
    use std::fs::File;
    use std::io;
    use std::os::fd::AsRawFd;
    use std::path::{Path, PathBuf};

    /// Folder of the open files of this process.
    pub const DESCRIPTORS: &str = "/proc/self/fd";

    pub fn path_of(file: &File) -> PathBuf {
        Path::new(DESCRIPTORS).join(file.as_raw_fd().to_string())
    }

    /// Gives a file a name. That is possible once.
    pub fn link(file: &Path, name: &Path) -> io::Result<()> {
        Ok(linkat(CWD, file, CWD, name, AtFlags::SYMLINK_FOLLOW)?)
    }

    /// Tells whether the folder of temporary files lets a file without a name have one later.
    pub fn can_name() -> bool {
        let try_it = || {
            let folder = tempfile::Builder::new().prefix("roofgap-").tempdir()?;
            let file = tempfile::tempfile()?;
            link(&path_of(&file), &folder.path().join("probe"))
        };
        try_it().is_ok()
    }
}
