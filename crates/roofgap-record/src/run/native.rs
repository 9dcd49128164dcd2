//! The native collector, a shared library embedded in the binary.

static BYTES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/native.so"));
static SHA256: &str = include_str!(concat!(env!("OUT_DIR"), "/native.sha256"));
static WHY: &str = include_str!(concat!(env!("OUT_DIR"), "/native.why"));

/// The shared library of the native collector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NativeLibrary {
    /// Content.
    pub bytes: &'static [u8],
    /// SHA-256 in hexadecimal, computed by the build.
    pub sha256: &'static str,
}

/// Error: the binary has no native collector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the native collector is not available: {why}")]
pub struct NativeUnavailable {
    /// Reason.
    pub why: String,
}

/// Returns the embedded library.
pub fn library() -> Result<NativeLibrary, NativeUnavailable> {
    if BYTES.is_empty() {
        return Err(NativeUnavailable { why: format!("this binary was built without it: {WHY}") });
    }
    Ok(NativeLibrary { bytes: BYTES, sha256: SHA256 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn the_library_is_embedded_and_has_its_hash() {
        let library = library().unwrap();
        assert!(library.bytes.starts_with(b"\x7fELF"));
        assert_eq!(roofgap_base::file::sha256(library.bytes), library.sha256);
    }
}
