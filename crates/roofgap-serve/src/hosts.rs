//! The names under which the server is reached.

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
