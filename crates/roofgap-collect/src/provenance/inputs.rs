//! Files that went in, with size and hash.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::Serialize;
use sha2::{Digest, Sha256};

/// A file that went in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InputFile {
    /// The file.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Its hash: `sha256:<hex>`.
    pub sha256: String,
}

impl InputFile {
    /// Reads a file once, in pieces.
    pub fn read(path: &Path) -> io::Result<InputFile> {
        let mut file = File::open(path)?;
        let mut hash = Sha256::new();
        let mut bytes = 0_u64;
        let mut buffer = vec![0; 1 << 20];
        loop {
            let count = match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            hash.update(buffer.get(..count).unwrap_or_default());
            bytes += count as u64;
        }
        Ok(InputFile {
            path: path.to_path_buf(),
            bytes,
            sha256: format!("sha256:{}", hex(&hash.finalize())),
        })
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_hash() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("abc");
        std::fs::write(&path, "abc").unwrap();
        let input = InputFile::read(&path).unwrap();
        assert_eq!(input.bytes, 3);
        assert_eq!(
            input.sha256,
            "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert!(InputFile::read(&folder.path().join("none")).is_err());
    }
}
