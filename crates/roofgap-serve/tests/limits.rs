//! Slow clients, and clients that take nothing, against a server with small limits.

// clippy allows these in #[test] functions only, not in their helpers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use roofgap_base::error::Error;
use roofgap_collect::child::Cancel;
use roofgap_serve::{Limits, ServeProps, Server, Token, serve};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

/// Time after which a test gives up waiting.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server with one run.
struct Running {
    folder: tempfile::TempDir,
    address: SocketAddr,
    token: String,
    cancel: Cancel,
    thread: Option<JoinHandle<Result<(), Error>>>,
}

impl Running {
    fn start(behind_tls_proxy: bool, connections: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("runs/20260101-000000")).unwrap();
        let (token, _) = Token::open(&folder.path().join("token")).unwrap();
        let cancel = Cancel::new();
        let server = Server::bind(ServeProps {
            runs: folder.path().join("runs"),
            listen: ([127, 0, 0, 1], 0).into(),
            token: token.clone(),
            hosts: Vec::new(),
            behind_tls_proxy,
            version: "0".into(),
            limits: Limits { connections, client: Duration::from_secs(2) },
            cancel: cancel.clone(),
        })
        .unwrap();
        Running {
            folder,
            address: server.address(),
            token: token.text().to_owned(),
            cancel,
            thread: Some(std::thread::spawn(move || serve(server))),
        }
    }

    /// Opens a connection and sends the beginning of a request.
    fn send(&self, start: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.write_all(start.as_bytes()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    fn request(&self, path: &str) -> String {
        let (address, token) = (self.address, &self.token);
        format!(
            "GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
        )
    }

    fn get(&self, path: &str) -> String {
        read_to_end(&mut self.send(&self.request(path)))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.cancel.request();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap().unwrap();
        }
    }
}

/// Reads until the server closes the connection; a reset is an end too.
fn read_to_end(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    if let Err(error) = stream.read_to_end(&mut answer) {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    }
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn slow_clients_are_dropped_and_block_nobody() {
    let server = Running::start(false, 6);
    // They take every place: no head, a word, half a head.
    let starts = ["", "GET /runs HT", "GET /runs HTTP/1.1\r\nHost: x\r\n"];
    let slow: Vec<TcpStream> = starts.iter().cycle().take(6).map(|start| server.send(start)).collect();
    assert!(server.get("/runs").starts_with("HTTP/1.1 200"));
    for mut stream in slow {
        // It ends with or without an answer, but it ends.
        let answer = read_to_end(&mut stream);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
    }
}

#[test]
fn a_client_that_takes_nothing_of_an_answer_is_dropped() {
    let server = Running::start(false, 1);
    let large = server.folder.path().join("runs/20260101-000000/large.log");
    std::fs::File::create(large).unwrap().set_len(64 << 20).unwrap();
    let stuck = server.send(&server.request("/profile/20260101-000000/artifacts/large.log"));
    // The only place is free again once the first client was dropped.
    assert!(server.get("/runs").starts_with("HTTP/1.1 200"));
    drop(stuck);
}

#[test]
fn behind_a_proxy_the_cookie_is_for_encrypted_connections_only() {
    for behind in [false, true] {
        let server = Running::start(behind, 4);
        let login = server.get(&format!("/login?token={}", server.token));
        assert_eq!(login.contains("; Secure"), behind, "{login}");
    }
}
