//! Load for an OpenAI-compatible server, and the workload account with it.
//!
//! - `client`: prompts, and one streaming request with the times of its tokens
//! - `run`: all requests, in a closed or an open loop
//! - `stats`: percentiles, throughput and the metrics of the server
//! - `server`: starting a server, waiting until it is ready, stopping it

mod client;
mod run;
mod server;
mod stats;

pub use roofgap_runs::config::settings::Load;
pub use run::{LoadRun, run};
pub use server::{ServerProps, serve_and_load};

use std::io;
use std::path::{Path, PathBuf};

use roofgap_base::error::Error;
use roofgap_base::file::write_atomic;
use roofgap_wire::account::{Account, SCHEMA};

/// The load on a server.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LoadProps {
    /// Address of the server, such as `http://127.0.0.1:8000`.
    pub url: String,
    /// Requests. With a rate they start at random times (Poisson), whether or not earlier ones are done; without one, the next starts
    /// when one is done.
    pub load: Load,
}

impl LoadProps {
    /// Checks the port of the address: libraries take one that is too large for none, and ask port 80.
    ///
    /// # Errors
    /// Fails for a port that is not a number from 1 to 65535.
    fn check_port(&self) -> Result<(), Error> {
        let (_, place) = self.url.split_once("://").unwrap_or(("", &self.url));
        let place = place.split(['/', '?', '#']).next().unwrap_or_default();
        // A name may precede the host; the colons of an IPv6 address are in brackets.
        let after = place.rsplit_once(['@', ']']).map_or(place, |(_, after)| after);
        match after.rsplit_once(':') {
            Some((_, port)) if !port.parse::<u16>().is_ok_and(|port| port > 0) => {
                Err(Error::new(format!("{}: {port:?} is not a port from 1 to 65535", self.url)))
            }
            _ => Ok(()),
        }
    }
}

/// Returns the path at which the server itself may write an account, beside that of the load.
pub fn server_account_path(account: &Path) -> PathBuf {
    account.with_extension("server.json")
}

/// Writes the account: that of the server, where it wrote one, with the requests added.
///
/// # Errors
/// Fails when the file cannot be written.
pub fn write_account(path: &Path, load: &LoadRun) -> io::Result<()> {
    let own = std::fs::read(server_account_path(path)).ok();
    // A server that writes no account, or one that cannot be read, has no facts to add.
    let own = own.and_then(|text| Account::from_json(&text).ok());
    let account = Account {
        schema: SCHEMA.to_owned(),
        requests: Some(load.requests.clone()),
        token_hash: load.answers_hash.clone(),
        ..own.unwrap_or_default()
    };
    write_atomic(path, &account.to_json().map_err(io::Error::other)?)
}

#[cfg(test)]
mod account_tests {
    use super::*;
    use roofgap_wire::account::RequestStats;

    #[test]
    fn a_port_is_a_number_that_a_socket_has() {
        let check = |url: &str| LoadProps { url: url.to_owned(), ..LoadProps::default() }.check_port();
        for url in [
            "http://a:8000",
            "http://a",
            "https://a/x:y",
            "http://[::1]:1/v1",
            "http://[::1]",
            "http://u:p@a",
            "a:65535",
        ] {
            assert!(check(url).is_ok(), "{url}");
        }
        for url in
            ["http://a:99999", "http://a:65536/v1", "http://a:0", "http://a:", "http://[::1]:x", "a:-1"]
        {
            let error = check(url).unwrap_err().to_string();
            assert!(error.contains("is not a port"), "{url}: {error}");
        }
    }

    #[test]
    fn the_facts_of_the_server_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("workload.json");
        let load = LoadRun {
            requests: RequestStats { sent: 3, ..RequestStats::default() },
            answers_hash: Some("sha256:00".to_owned()),
        };
        write_account(&path, &load).unwrap();
        let server = r#"{"schema": "roofgap.workload/1", "model": {"name": "m"}}"#;
        std::fs::write(folder.path().join("workload.server.json"), server).unwrap();
        write_account(&path, &load).unwrap();
        let account = Account::from_json(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(account.model.unwrap().name.as_deref(), Some("m"));
        assert_eq!(account.requests.unwrap().sent, 3);
        assert_eq!(account.token_hash.as_deref(), Some("sha256:00"));
    }
}
