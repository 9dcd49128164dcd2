//! Checks before every request: host, origin and token.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::api_error::ApiError;
use crate::state::Shared;

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

/// Lets a request pass if it is for this server, not from a page of another site, and carries the token.
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
        return Err(ApiError::WrongHost(host.chars().take(200).collect()));
    }
    let origin = text(headers, header::ORIGIN);
    if let Some(origin) = origin {
        let place = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        // Also another port of this host is another site.
        if place != Some(host) {
            return Err(ApiError::WrongOrigin);
        }
    }
    if request.uri().path() == "/login" {
        return Ok(());
    }
    let bearer = text(headers, header::AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
    if let Some(token) = bearer {
        return if shared.token.matches(token.trim()) { Ok(()) } else { Err(ApiError::Unauthorized) };
    }
    match cookie(headers) {
        Some(token) if shared.token.matches(token) => {}
        _ => return Err(ApiError::Unauthorized),
    }
    // A browser sends the cookie by itself, so a change must come from our own page.
    if request.method() != Method::GET && origin.is_none() {
        return Err(ApiError::WrongOrigin);
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

#[cfg(test)]
mod tests {
    use super::Hosts;

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
}
