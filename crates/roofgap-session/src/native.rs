//! The native collector as it lies in the binary.

use crate::session::NativeLibrary;

static BYTES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/native.so"));
static SHA256: &str = include_str!(concat!(env!("OUT_DIR"), "/native.sha256"));
static WHY: &str = include_str!(concat!(env!("OUT_DIR"), "/native.why"));

/// The shared library with its hash, or why this binary carries none.
pub fn library() -> Result<NativeLibrary, String> {
    if BYTES.is_empty() {
        return Err(format!(
            "this binary was built without the native collector: {WHY}"
        ));
    }
    Ok(NativeLibrary {
        bytes: BYTES,
        sha256: SHA256,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest, Sha256};

    #[test]
    #[cfg(target_os = "linux")]
    fn the_library_is_there_and_is_what_its_hash_says() {
        let library = library().unwrap();
        assert!(library.bytes.starts_with(b"\x7fELF"));
        let hash: String = Sha256::digest(library.bytes)
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        assert_eq!(hash, library.sha256);
    }
}
