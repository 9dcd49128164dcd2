//! Support for tests: a running server and requests.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The binary under test.
const ROOFGAP: &str = env!("CARGO_BIN_EXE_roofgap");
/// Time after which a test gives up waiting.
const PATIENCE: Duration = Duration::from_secs(300);

/// A folder with runs and a token.
pub(crate) struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    /// Makes an empty folder.
    pub(crate) fn new() -> Self {
        Place { folder: tempfile::tempdir().unwrap() }
    }

    /// Returns a path in the folder.
    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Makes a run with the embedded model; returns its id.
    pub(crate) fn profile(&self) -> String {
        let output = Command::new(ROOFGAP)
            .args(["profile", "--format", "json", "workload.size=nano", "workload.tokens=4"])
            .arg(format!("artifacts.stage2_dir={}", self.at("runs").display()))
            .output()
            .unwrap();
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        answer["run_id"].as_str().unwrap().to_owned()
    }

    /// Gives a run the timeline of a fixture, and makes its reports again.
    pub(crate) fn add_timeline(&self, run: &str, fixture: &str) {
        let folder = self.at("runs").join(run);
        std::fs::create_dir_all(folder.join("nsys")).unwrap();
        let fixture = Path::new("../../fixtures").join(fixture);
        std::fs::copy(fixture, folder.join("nsys/run.sqlite.gz")).unwrap();
        let made = Command::new(ROOFGAP).arg("report").arg(&folder).output().unwrap();
        assert!(folder.join("report.html").is_file(), "{}", String::from_utf8_lossy(&made.stderr));
    }

    /// Starts a server over the folder.
    pub(crate) fn serve(&self) -> Server {
        self.serve_with(&[])
    }

    /// Starts a server with further arguments.
    pub(crate) fn serve_with(&self, args: &[&str]) -> Server {
        let mut command = Command::new(ROOFGAP);
        command.args(["serve", "--quiet", "--listen", "127.0.0.1:0", "--dir"]).arg(self.at("runs"));
        command.arg("--token-file").arg(self.at("token")).args(args);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("http://").unwrap().to_owned();
        Server { child, address, token: std::fs::read_to_string(self.at("token")).unwrap().trim().to_owned() }
    }
}

/// A running server.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: String,
    pub(crate) token: String,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: ureq::http::HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {}", self.text()))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

impl Server {
    /// Gets a path with the token.
    pub(crate) fn get(&self, path: &str) -> Answer {
        self.get_with(path, &[])
    }

    /// Gets a path with the token and further headers.
    pub(crate) fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        let mut request = agent().get(format!("http://{}{path}", self.address));
        request = request.header("Authorization", format!("Bearer {}", self.token));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        answer(request.call())
    }

    /// Sends bytes as they are and reads the answer to the end of the connection.
    pub(crate) fn raw(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // The server may refuse before all is sent.
        let _ = stream.write_all(request.as_bytes());
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Ends the server as Ctrl-C does; returns its exit status.
    pub(crate) fn stop(mut self) -> Option<i32> {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        self.child.wait().unwrap().code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client that returns every status as an answer.
pub(crate) fn agent() -> ureq::Agent {
    ureq::Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .timeout_global(Some(PATIENCE))
        .build()
        .into()
}

pub(crate) fn answer(result: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Answer {
    let response = result.unwrap();
    let (parts, mut body) = response.into_parts();
    Answer {
        status: parts.status.as_u16(),
        headers: parts.headers,
        body: body.with_config().limit(1 << 30).read_to_vec().unwrap(),
    }
}

/// Hashes bytes as a client would, with the tool of the system.
pub(crate) fn sha256(folder: &Path, bytes: &[u8]) -> String {
    let file = folder.join("to-hash");
    std::fs::write(&file, bytes).unwrap();
    let output = Command::new("sha256sum").arg(&file).output().unwrap();
    String::from_utf8(output.stdout).unwrap().split(' ').next().unwrap().to_owned()
}
