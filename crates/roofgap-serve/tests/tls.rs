//! A server with a certificate, and clients that speak TLS, do not, or take their time.

// clippy allows these in #[test] functions only, not in their helpers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use roofgap_base::error::Error;
use roofgap_collect::child::Cancel;
use roofgap_serve::{Limits, Permissions, ServeProps, Server, TlsFiles, Token, serve};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// Time after which a test gives up waiting.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server with a certificate for `localhost`.
struct Running {
    folder: tempfile::TempDir,
    cert: CertificateDer<'static>,
    address: SocketAddr,
    token: String,
    cancel: Cancel,
    thread: Option<JoinHandle<Result<(), Error>>>,
}

impl Running {
    fn start(limits: Limits) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let files = TlsFiles { cert: folder.path().join("cert.pem"), key: folder.path().join("key.pem") };
        fs::write(&files.cert, made.cert.pem()).unwrap();
        fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
        fs::set_permissions(&files.key, fs::Permissions::from_mode(0o600)).unwrap();
        let (token, _) = Token::open(&folder.path().join("token")).unwrap();
        let cancel = Cancel::new();
        let server = Server::bind(ServeProps {
            runs: folder.path().join("runs"),
            listen: ([127, 0, 0, 1], 0).into(),
            token: token.clone(),
            hosts: Vec::new(),
            tls: Some(files),
            behind_tls_proxy: false,
            permissions: Permissions::default(),
            config_dir: None,
            executable: "/bin/false".into(),
            version: "0".into(),
            limits,
            cancel: cancel.clone(),
        })
        .unwrap();
        Running {
            folder,
            cert: made.cert.der().clone(),
            address: server.address(),
            token: token.text().to_owned(),
            cancel,
            thread: Some(std::thread::spawn(move || serve(server))),
        }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Connects a client that trusts the certificate.
    fn encrypted(&self) -> StreamOwned<ClientConnection, TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(self.cert.clone()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let client = ClientConnection::new(Arc::new(config), name).unwrap();
        StreamOwned::new(client, self.connect())
    }

    fn get(&self, path: &str, token: &str) -> String {
        let mut stream = self.encrypted();
        let port = self.address.port();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.cancel.request();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap().unwrap();
        }
        assert!(self.folder.path().join("token").is_file());
    }
}

/// Reads until the server closes the connection; a reset is an end too.
fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut answer = Vec::new();
    if let Err(error) = stream.read_to_end(&mut answer) {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    }
    answer
}

#[test]
fn requests_are_encrypted_and_the_cookie_is_for_encrypted_connections_only() {
    let server = Running::start(Limits::default());
    assert!(server.get("/runs", &server.token).starts_with("HTTP/1.1 200"));
    assert!(server.get("/runs", "wrong").starts_with("HTTP/1.1 401"));
    let login = server.get(&format!("/login?token={}", server.token), "");
    assert!(login.contains("; Secure"), "{login}");
}

#[test]
fn a_client_without_tls_learns_nothing() {
    let server = Running::start(Limits::default());
    let mut stream = server.connect();
    // The server may hang up before all of it is sent.
    let _ = write!(
        stream,
        "GET /runs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\r\n",
        server.token
    );
    let answer = read_to_end(&mut stream);
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    assert!(server.get("/runs", &server.token).starts_with("HTTP/1.1 200"));
}

#[test]
fn a_client_that_stops_in_the_handshake_is_dropped_and_gives_its_place_back() {
    let server =
        Running::start(Limits { connections: 2, client: Duration::from_secs(1), ..Limits::default() });
    // Nothing, and the beginning of a greeting: both places are taken.
    let begun = Instant::now();
    let mut silent = server.connect();
    let mut slow = server.connect();
    slow.write_all(&[22, 3, 1, 2, 0, 1]).unwrap();
    // Waits for a place, until the first of them is dropped.
    assert!(server.get("/runs", &server.token).starts_with("HTTP/1.1 200"));
    assert!(begun.elapsed() >= Duration::from_secs(1));
    for stream in [&mut silent, &mut slow] {
        assert!(!read_to_end(stream).starts_with(b"HTTP"));
    }
}
