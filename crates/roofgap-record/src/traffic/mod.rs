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

pub use run::{LoadRun, run};
pub use server::serve_and_load;

use std::io;
use std::path::{Path, PathBuf};

use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_base::file::write_atomic;
use roofgap_wire::account::{Account, SCHEMA};

/// Makes the error of a server that fails.
fn failed(message: impl Into<String>) -> Error {
    Error::new(message).with_exit(Exit::ProgramFailed)
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
