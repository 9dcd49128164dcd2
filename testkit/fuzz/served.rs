//! What servers read: requests of HTTP and messages of the Model Context Protocol.

use super::Outcome;
use roofgap_collect::child::Cancel;
use roofgap_mcp::message::Incoming;
use roofgap_serve::{Limits, ServeProps, Server, Token, serve};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::LazyLock;
use std::time::Duration;

pub(super) const HTTP: &str = "http-request";
pub(super) const MCP: &str = "mcp-message";

/// Stands for the token of the server in a request.
const TOKEN: &[u8] = b"TOKEN";

/// A server of this process, and its token.
static SERVER: LazyLock<(SocketAddr, String)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap().keep();
    let runs = folder.join("runs");
    let run = runs.join("20260101-000000");
    std::fs::create_dir_all(&run).unwrap();
    std::fs::write(run.join("session.json"), "{}").unwrap();
    std::fs::write(run.join("metrics.json"), "{\"schema\": \"roofgap.analysis/1\"}").unwrap();
    let (token, _) = Token::open(&folder.join("token")).unwrap();
    let text = token.text().to_owned();
    let props = ServeProps {
        runs,
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        token,
        hosts: Vec::new(),
        behind_tls_proxy: false,
        version: "0".to_owned(),
        limits: Limits { client: Duration::from_secs(2), ..Limits::default() },
        cancel: Cancel::new(),
    };
    let server = Server::bind(props).unwrap();
    let address = server.address();
    std::thread::spawn(move || serve(server).unwrap());
    (address, text)
});

/// Lists a request of every kind.
pub(super) fn requests() -> Vec<Vec<u8>> {
    let run = "20260101-000000";
    let gets = [
        "/".to_owned(),
        "/login?token=TOKEN&next=/".to_owned(),
        "/openapi.json".to_owned(),
        "/runs?limit=5&after=x".to_owned(),
        format!("/runs/{run}"),
        format!("/runs/{run}/page"),
        format!("/compare?base={run}&head=latest"),
        format!("/profile/{run}/artifacts"),
        format!("/profile/{run}/artifacts/metrics.json"),
        format!("/profile/{run}/artifacts/%2e%2e/%2e%2e/token"),
        format!("/profile/{run}/timeline?start_ns=0&end_ns=100"),
    ];
    let head =
        "Host: localhost\r\nAuthorization: Bearer TOKEN\r\nRange: bytes=0-5\r\nOrigin: http://localhost\r\n";
    let get = |path: &String| format!("GET {path} HTTP/1.1\r\n{head}Connection: close\r\n\r\n").into_bytes();
    let post = |path: &str, body: &str| {
        let length = body.len();
        let own = "Content-Type: application/json\r\nConnection: close";
        format!("POST {path} HTTP/1.1\r\n{head}{own}\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
    };
    gets.iter().map(get).chain([post("/profile/run", "{}")]).collect()
}

/// Sends a request and reads the answer. The server may refuse it or close the connection, but not fail.
pub(super) fn request(bytes: &[u8]) -> Result<Outcome, String> {
    let (address, token) = &*SERVER;
    let failed = |error: std::io::Error| format!("the connection failed: {error}");
    let mut bytes = bytes.to_vec();
    while let Some(at) = bytes.windows(TOKEN.len()).position(|part| part == TOKEN) {
        bytes.splice(at..at + TOKEN.len(), token.bytes());
    }
    let mut stream = TcpStream::connect(address).map_err(failed)?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).map_err(failed)?;
    // The server closes the connection after a request that it refuses.
    let _ = stream.write_all(&bytes).and_then(|()| stream.shutdown(Shutdown::Write));
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
            return Err("no answer in 10 s".to_owned());
        }
        _ => {}
    }
    match answer.get(..12) {
        Some(b"HTTP/1.1 500") => Err(format!("status 500: {}", String::from_utf8_lossy(&answer))),
        Some(start) if start.starts_with(b"HTTP/1.1 2") => Ok(Outcome::Analysed),
        Some(start) if !start.starts_with(b"HTTP/1.") => Err(format!("not HTTP: {start:?}")),
        _ => Ok(Outcome::Refused),
    }
}

/// Lists messages of a client.
pub(super) fn messages() -> Vec<Vec<u8>> {
    [
        r#"{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a", "version": "0"}}}"#,
        r#"{"jsonrpc": "2.0", "method": "notifications/initialized"}"#,
        r#"{"jsonrpc": "2.0", "id": "a", "method": "tools/list", "params": {"cursor": "x"}}"#,
        r#"{"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "kernels", "arguments": {"input": "latest", "limit": 5}}}"#,
        r#"{"jsonrpc": "2.0", "id": 4, "result": {}}"#,
        r#"{"jsonrpc": "2.0", "id": 5, "error": {"code": 1, "message": "x"}}"#,
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}

/// Reads a message. One that cannot be read has an answer with a code of the protocol.
pub(super) fn message(bytes: &[u8]) -> Result<Outcome, String> {
    match Incoming::read(bytes) {
        Incoming::Message(_) => Ok(Outcome::Analysed),
        Incoming::Refused(answer)
            if ![-32700, -32600].contains(&answer["error"]["code"].as_i64().unwrap_or(0)) =>
        {
            Err(format!("another code: {answer}"))
        }
        Incoming::Refused(_) | Incoming::Nothing => Ok(Outcome::Refused),
    }
}
