//! TLS: the certificate, its key, and the handshake.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::props::TlsFiles;
use roofgap_base::error::Error;

/// Reads the certificate and its key.
///
/// # Errors
/// Fails for a key that everyone can read, for files that hold none, and for a key of another certificate.
pub fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, Error> {
    let chain = certificates(&files.cert)?;
    let key = key(&files.key)?;
    let refused = |error: tokio_rustls::rustls::Error| {
        let (cert, key) = (files.cert.display(), files.key.display());
        Error::new(format!("cannot use the certificate {cert} with the key {key}: {error}"))
    };
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(refused)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(refused)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn malformed(path: &Path, wanted: &'static str) -> impl FnOnce(pem::Error) -> Error {
    move |error| {
        let why = match error {
            pem::Error::NoItemsFound => "it has none".to_owned(),
            error => error.to_string(),
        };
        Error::new(format!("{} must hold {wanted}: {why}", path.display()))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    const WANTED: &str = "a certificate in PEM form";
    let text = fs::read(path).map_err(Error::io("read", path))?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let chain = chain.map_err(malformed(path, WANTED))?;
    if chain.is_empty() {
        return Err(malformed(path, WANTED)(pem::Error::NoItemsFound));
    }
    Ok(chain)
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, Error> {
    let text = fs::read(path).map_err(Error::io("read", path))?;
    // A group of its own for keys is usual.
    if fs::metadata(path).is_ok_and(|facts| facts.mode() & 0o007 != 0) {
        let path = path.display();
        return Err(Error::new(format!("the key {path} can be read by everyone; `chmod 600` it")));
    }
    PrivateKeyDer::from_pem_slice(&text)
        .map_err(malformed(path, "a private key in PEM form without a password"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn write(path: &Path, text: &str, mode: u32) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_certificate_needs_its_own_key_that_not_everyone_can_read() {
        let folder = tempfile::tempdir().unwrap();
        let [cert, key] = ["cert.pem", "key.pem"].map(|name| folder.path().join(name));
        let files = TlsFiles { cert: cert.clone(), key: key.clone() };
        let made = || rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let (own, other) = (made(), made());
        let error = || acceptor(&files).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error().starts_with("cannot read "));
        write(&cert, &own.cert.pem(), 0o644);
        write(&key, &own.signing_key.serialize_pem(), 0o640);
        assert!(acceptor(&files).is_ok());
        write(&key, &own.signing_key.serialize_pem(), 0o644);
        assert!(error().contains("can be read by everyone"));
        write(&key, &other.signing_key.serialize_pem(), 0o600);
        assert!(error().starts_with("cannot use the certificate "));
        write(&key, &own.cert.pem(), 0o600);
        assert!(error().contains("key.pem") && error().contains("it has none"));
        write(&cert, "no certificate", 0o644);
        assert!(error().contains("cert.pem") && error().contains("it has none"));
    }
}
