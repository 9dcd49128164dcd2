//! Unpacked copies of compressed inputs. A killed process leaves none behind: where possible, the copy has no name.

use crate::ReadError;
use roofgap_base::file::Unpacked;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// The unpacked content of a file.
#[derive(Debug)]
pub struct TemporaryCopy {
    path: PathBuf,
    /// Keeps the content: a file without a name, or one that is removed at the end.
    _content: Content,
}

#[derive(Debug)]
#[expect(dead_code, reason = "held until the copy is no longer read")]
enum Content {
    Nameless(File),
    Named(tempfile::TempPath),
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
        let (copy, mut file) = Self::create().map_err(no_room)?;
        let mut buffer = vec![0u8; 1 << 18];
        // Not `io::copy`: errors of reading and of writing differ.
        loop {
            match inside.read(&mut buffer).map_err(|e| ReadError::damaged(path, "gzip file", e))? {
                0 => return Ok(copy),
                n => file.write_all(buffer.get(..n).unwrap_or_default()).map_err(no_room)?,
            }
        }
    }

    /// Creates an empty copy and returns it with the file to write to.
    fn create() -> io::Result<(Self, File)> {
        let nameless = tempfile::tempfile()?;
        if let Some(path) = path_of(&nameless) {
            let file = nameless.try_clone()?;
            return Ok((Self { path, _content: Content::Nameless(nameless) }, file));
        }
        let (file, path) = tempfile::Builder::new().prefix("roofgap-").tempfile()?.into_parts();
        Ok((Self { path: path.to_path_buf(), _content: Content::Named(path) }, file))
    }

    /// Returns a path under which the copy can be opened.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Returns a path of an open file without a name, where `/proc` is mounted.
fn path_of(file: &File) -> Option<PathBuf> {
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    File::open(&path).is_ok().then_some(path)
}
