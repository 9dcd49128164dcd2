//! Load for an OpenAI-compatible server: how much, how long the prompts are, when requests start, and the workload account with them.
//!
//! - `client`: prompts, and one streaming request with the times of its tokens
//! - `run`: all requests, in a closed or an open loop
//! - `stats`: percentiles, throughput, the metrics of the server, and the ratio of times measured in pairs, with its confidence interval
//! - `server`: starting a server, waiting until it is ready, stopping it
//! - `pairs`: overhead of the collector in a server

mod client;
mod pairs;
mod run;
mod server;
mod stats;

pub(crate) use client::{agent, get};
pub use roofgap_runs::config::traffic::{Lengths, Load};
pub use run::{LoadRun, run};
pub use server::{ServerProps, serve_and_load};
pub use stats::exported;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use roofgap_base::error::Error;
use roofgap_base::file::write_atomic;
use roofgap_trace::vitals::{self, GpuState, GpuVitals};
use roofgap_wire::account::{Account, RequestStats, SCHEMA};
use tempfile::TempDir;

use crate::run::phases::sampler::Sampler;

/// The load on a server.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LoadProps {
    /// Address of the server, such as `http://127.0.0.1:8000`.
    pub url: String,
    /// Requests. With a rate they start at random times (Poisson), whether or not earlier ones are done; without one, the next starts
    /// when one is done.
    pub load: Load,
    /// Pairs of windows that measure the overhead of the collector in the server, after the load.
    pub pairs: Option<PairProps>,
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

/// Pairs of windows to measure.
#[derive(Debug, Clone, PartialEq)]
pub struct PairProps {
    /// Number of pairs.
    pub pairs: u32,
    /// Length of a window.
    pub window: Duration,
    /// Shortest measured load after which pairs are worth their time.
    pub after: Duration,
    /// Private folder of the control sockets of the server's processes.
    pub control: PathBuf,
}

/// Meters of the GPUs of this host while load is sent.
pub struct Meter {
    sampler: Sampler,
    folder: TempDir,
}

/// File of the vitals until they are read.
const VITALS: &str = "vitals.jsonl";

impl Meter {
    /// Starts a process of this `executable` that reads them, where the server is on this host.
    pub fn start(executable: &Path, url: &str) -> Option<Self> {
        let (_, place) = url.split_once("://").unwrap_or(("", url));
        let is_here = ["localhost", "127.", "[::1]", "0.0.0.0"].iter().any(|host| place.starts_with(host));
        let folder = is_here.then(tempfile::tempdir)?.ok()?;
        Some(Self { sampler: Sampler::vitals(executable, &folder.path().join(VITALS), true), folder })
    }

    /// Adds the energy of the GPUs that worked to the requests. Without a meter there is none.
    pub fn add(self, requests: &mut RequestStats) {
        drop(self.sampler);
        let gpus = vitals::read(&self.folder.path().join(VITALS)).unwrap_or_default();
        let (start, lasts) = (requests.start_unix_ns, requests.window_ns);
        // The first bit is that of an idle GPU.
        let worked = |gpu: &&GpuVitals| {
            let within = |state: &&GpuState| (start..=start.saturating_add(lasts)).contains(&state.at);
            gpu.states.iter().filter(within).any(|state| state.reasons & 1 == 0)
        };
        let joules = gpus.iter().filter(worked).filter_map(|gpu| gpu.joules(start, lasts));
        requests.joules = joules.reduce(|sum, own| sum + own);
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
        paired_overhead: load.paired_overhead,
        ..own.unwrap_or_default()
    };
    write_atomic(path, &account.to_json().map_err(io::Error::other)?)
}

#[cfg(test)]
mod account_tests {
    use super::*;

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
    fn the_energy_is_that_of_the_gpus_that_worked() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("sampler");
        let line = |device: u32, at: i64, mj: u64, reasons: u32| {
            let state = format!(r#"{{"at":{at},"device":{device},"sm_mhz":1980,"reasons":{reasons}}}"#);
            format!("{state}\n{{\"at\":{at},\"device\":{device},\"energy_mj\":{mj}}}\n")
        };
        let head = r#"{"schema":"roofgap.vitals/1","devices":[{"device":0},{"device":1}]}"#;
        let mut lines = format!("{head}\n");
        // The readings span a half of the window; the second GPU is idle.
        for (at, mj) in [(125, 1_000), (175, 6_000)] {
            lines.extend([line(0, at, mj, 0), line(1, at, mj, 1)]);
        }
        let text = format!(
            "#!/bin/sh\ncat > \"$2.part\" <<'END'\n{lines}END\nmv \"$2.part\" \"$2\"\nexec sleep 600\n"
        );
        std::fs::write(&script, text).unwrap();
        std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        assert!(Meter::start(&script, "https://example.org:8000").is_none(), "a server elsewhere");
        let meter = Meter::start(&script, "http://127.0.0.1:8000").unwrap();
        while !meter.folder.path().join(VITALS).exists() {
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut requests = RequestStats { start_unix_ns: 100, window_ns: 100, ..RequestStats::default() };
        meter.add(&mut requests);
        assert_eq!(requests.joules, Some(10.0));
    }

    #[test]
    fn the_facts_of_the_server_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("workload.json");
        let load = LoadRun {
            requests: RequestStats { sent: 3, ..RequestStats::default() },
            answers_hash: Some("sha256:00".to_owned()),
            paired_overhead: None,
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
