//! Checks before every request: host, origin and token.
//!
//! The bearer token: 256 random bits in a file that only its owner can read.

use crate::Shared;
use crate::api_error::ApiError;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use roofgap_base::error::Error;
use roofgap_base::text::cut;
use sha2::{Digest, Sha256};
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Name of the cookie of a browser that logged in.
pub const COOKIE: &str = "roofgap_token";

/// Headers of every answer.
const HEADERS: [(HeaderName, &str); 4] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-cache, private"),
];

/// The names under which the server is reached.
#[derive(Debug, Clone)]
pub struct Hosts(pub Vec<String>);

impl Hosts {
    /// Tells whether the value of a `Host` header, with or without a port, names this server.
    pub fn has(&self, host: &str) -> bool {
        let name = match host.rsplit_once(':') {
            // The last colon of a bare IPv6 address is not that of a port.
            Some((name, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        self.0.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

/// Lets a request pass if it reads, is for this server, not from a page of another site, and carries the token.
pub async fn check(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let mut response = match allowed(&shared, &request) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    };
    for (name, value) in HEADERS {
        let headers = response.headers_mut();
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

fn allowed(shared: &Shared, request: &Request) -> Result<(), ApiError> {
    let headers = request.headers();
    // A page whose name was pointed at this machine (DNS rebinding) still sends its own name.
    let host = text(headers, header::HOST).unwrap_or_default();
    if !shared.hosts.has(host) {
        let why = format!(
            "this server has another name than {:?}; start it with --host to add one",
            cut(host, 200)
        );
        return Err(ApiError::new(StatusCode::MISDIRECTED_REQUEST, why));
    }
    let origin = text(headers, header::ORIGIN);
    if let Some(origin) = origin {
        let place = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        // Also another port of this host is another site.
        if place != Some(host) {
            let why = "requests from pages of other sites are refused";
            return Err(ApiError::new(StatusCode::FORBIDDEN, why));
        }
    }
    if request.uri().path() == "/login" {
        return Ok(());
    }
    let bearer = text(headers, header::AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
    if !bearer
        .map(str::trim)
        .or_else(|| cookie(headers))
        .is_some_and(|token| shared.props.token.matches(token))
    {
        return Err(ApiError::unauthorized());
    }
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let why = "this server only reads; `roofgap profile` starts a run on its machine";
        let error = ApiError::new(StatusCode::METHOD_NOT_ALLOWED, why);
        // The body is not read.
        return Err(error.with_header(header::ALLOW, "GET, HEAD"));
    }
    Ok(())
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    let all = text(headers, header::COOKIE)?;
    let mut pairs = all.split(';').filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == COOKIE).map(|(_, value)| value)
}

/// Characters of a token at least.
const SHORTEST: usize = 32;

/// The secret that every request carries.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Token(..)")
    }
}

impl Token {
    /// Reads the token from a file, or makes one and writes it there. Returns true for a new one.
    ///
    /// # Errors
    /// Fails for a file that others can read, that holds no token, or that cannot be written.
    pub fn open(path: &Path) -> Result<(Self, bool), Error> {
        let failed = |action: &str| Error::io(&format!("{action} the token file"), path);
        match fs::read_to_string(path) {
            Ok(text) => {
                let facts = fs::metadata(path).map_err(failed("read"))?;
                if facts.mode() & 0o077 != 0 {
                    let remedy = "`chmod 600` it, or delete it to get a new token";
                    return Err(Error::new(format!(
                        "the token file {} can be read by others; {remedy}",
                        path.display()
                    )));
                }
                let text = text.trim();
                if text.len() < SHORTEST || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
                    let wanted = "token of at least 32 characters without spaces; delete it to get a new one";
                    return Err(Error::new(format!("{} holds no {wanted}", path.display())));
                }
                Ok((Token(text.to_owned()), false))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let token = Self::random()?;
                if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
                    let mut builder = fs::DirBuilder::new();
                    builder.recursive(true).mode(0o700);
                    builder.create(folder).map_err(failed("write"))?;
                }
                let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
                file.and_then(|mut file| writeln!(file, "{}", token.0)).map_err(failed("write"))?;
                Ok((token, true))
            }
            Err(error) => Err(failed("read")(error)),
        }
    }

    /// Returns the text, for the one time that it is shown.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Compares a token of a client in a time that does not depend on its characters.
    pub(crate) fn matches(&self, given: &str) -> bool {
        // The hashes of two texts tell nothing about how far they agree.
        Sha256::digest(self.0.as_bytes()) == Sha256::digest(given.as_bytes())
    }

    fn random() -> Result<Self, Error> {
        let mut bytes = [0_u8; 32];
        getrandom::fill(&mut bytes).map_err(|error| Error::new(format!("cannot make a token: {error}")))?;
        Ok(Token(roofgap_base::text::hex(&bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::{Hosts, *};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_host_is_known_with_and_without_its_port() {
        let hosts = Hosts(vec!["localhost".into(), "127.0.0.1".into(), "[::1]".into(), "gpu.lab".into()]);
        for host in ["localhost", "LOCALHOST:8791", "127.0.0.1:80", "[::1]:8791", "[::1]", "gpu.lab"] {
            assert!(hosts.has(host), "{host}");
        }
        for host in
            ["", "evil.example", "localhost.evil.example:80", "127.0.0.1.nip.io", "::1", ":80", "[::1]:"]
        {
            assert!(!hosts.has(host), "{host}");
        }
    }

    #[test]
    fn a_token_is_made_once_and_readable_by_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/token");
        let (made, new) = Token::open(&path).unwrap();
        assert!(new);
        assert_eq!(made.text().len(), 64);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let (read, new) = Token::open(&path).unwrap();
        assert!(!new);
        assert_eq!(read, made);
        assert!(made.matches(read.text()));
        assert!(!made.matches(""));
        assert!(!made.matches(&made.text()[1..]));
        assert!(!format!("{made:?}").contains(made.text()));
    }

    #[test]
    fn a_file_that_others_read_or_without_a_token_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, "0123456789012345678901234567890123456789").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let refused = || Token::open(&path).unwrap_err().to_string();
        assert!(refused().contains("can be read by others"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(Token::open(&path).is_ok());
        for text in ["", "short", "0123456789 0123456789 0123456789 0123456789"] {
            fs::write(&path, text).unwrap();
            assert!(refused().contains("holds no token"), "{text}");
        }
    }
}
