//! Load against a stand-in server that streams with known delays.

use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_collect::child::Cancel;
use roofgap_collect::command::CommandLine;
use roofgap_record::traffic::{LoadRun, serve_and_load};
use roofgap_runs::config::{Config, ConfigProps, Span, compose};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Delays of the stand-in, ns.
const FIRST_NS: i64 = 30_000_000;
const NEXT_NS: i64 = 5_000_000;

/// Returns a port for a server to listen on. The system gives ports of another range to programs that ask for any, so that none of
/// them takes it meanwhile.
fn free_port() -> u16 {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    loop {
        let asked = ASKED.fetch_add(1, Ordering::SeqCst);
        let number = std::process::id().wrapping_mul(8).wrapping_add(asked);
        let port = 10_000 + (number % 20_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Returns a server and the load on it.
fn props(mode: &str) -> (CommandLine, Config) {
    let port = free_port();
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/stand-in/openai_server.py");
    let url = format!("server.url=http://127.0.0.1:{port}");
    let overrides = [
        url.as_str(),
        "server.ready_timeout=300",
        "run.grace=20",
        "load.concurrency=4",
        "load.prompt_tokens=17",
        "load.output_tokens=6",
        "load.requests=12",
        "load.warmup=2",
    ];
    let overrides = overrides.map(str::to_owned).to_vec();
    let config = compose(&ConfigProps { overrides, ..ConfigProps::default() }).unwrap().config;
    (CommandLine::new("python3").arg(script).args([port.to_string().as_str(), mode]), config)
}

fn run(server: &CommandLine, load: &Config) -> (Result<LoadRun, Error>, Vec<String>) {
    let mut seen = Vec::new();
    let result = serve_and_load(server, None, load, &Cancel::new(), &mut |line| seen.push(line.to_owned()));
    (result, seen)
}

#[test]
fn every_token_is_counted_and_no_time_is_shorter_than_the_server_took() {
    let (server, load) = props("normal");
    let (result, seen) = run(&server, &load);
    let stats = result.unwrap().requests;
    assert_eq!((stats.sent, stats.completed, stats.failed), (12, 12, 0));
    assert_eq!((stats.prompt_tokens, stats.output_tokens), (Some(12 * 17), Some(12 * 6)));
    let (ttft, itl, e2e) = (stats.ttft_ns.unwrap(), stats.itl_ns.unwrap(), stats.e2e_ns.unwrap());
    assert!(ttft.p50 >= FIRST_NS, "{ttft:?}");
    assert_eq!(itl.count, 12 * 5);
    // Tokens may arrive together on a busy machine, but none arrives early. Means are rounded down.
    assert!(ttft.mean + 5 * itl.mean + 6 >= FIRST_NS + 5 * NEXT_NS, "{ttft:?} {itl:?}");
    assert!(e2e.p50 >= FIRST_NS + 5 * NEXT_NS, "{e2e:?}");
    assert!(stats.window_ns >= 3 * (FIRST_NS + 5 * NEXT_NS), "four at a time: {stats:?}");
    let (first, last) = (stats.each.first().unwrap(), stats.each.last().unwrap());
    assert_eq!(stats.each.len(), 12);
    assert!(first.start_ns >= 0 && last.last_ns <= stats.window_ns, "{first:?} {last:?}");
    assert!(first.first_ns - first.start_ns >= FIRST_NS, "{first:?}");
    assert_eq!(stats.gauges["vllm:kv_cache_usage_perc"].max, 0.25);
    // The counters of the measured window only.
    assert_eq!(stats.metrics.get("vllm:prompt_tokens_total"), Some(&f64::from(12 * 17)));
    assert_eq!(stats.metrics.get("vllm:generation_tokens_total"), Some(&f64::from(12 * 6)));
    assert!(stats.metrics["connections_total"] < 12.0, "connections are used again: {:?}", stats.metrics);
    assert!(seen.contains(&"the server is ready; model stand-in".to_owned()));
    assert_eq!(seen.last().unwrap(), "the server has ended");
}

#[test]
fn an_open_loop_sends_every_request() {
    let (server, mut load) = props("normal");
    (load.load.rate, load.load.concurrency) = (Some(200.0), 16);
    load.load.requests = 30;
    let stats = run(&server, &load).0.unwrap().requests;
    assert_eq!((stats.sent, stats.completed), (30, 30));
    assert!(stats.ttft_ns.unwrap().p50 >= FIRST_NS);
}

#[test]
fn a_server_that_refuses_unknown_fields_is_asked_without_them() {
    let (server, load) = props("strict");
    let (result, seen) = run(&server, &load);
    assert_eq!(result.unwrap().requests.completed, 12);
    assert!(seen.iter().any(|line| line.contains("ignore_eos")), "{seen:?}");
}

#[test]
fn failed_requests_are_counted_with_their_reason() {
    let (server, load) = props("busy");
    let stats = run(&server, &load).0.unwrap().requests;
    assert_eq!(stats.completed + stats.failed, 12);
    assert!(stats.failed > 0);
    assert!(stats.failures[0].why.contains("429"), "{:?}", stats.failures);
    let (server, load) = props("cut");
    let error = run(&server, &load).0.unwrap_err();
    assert!(error.to_string().starts_with("all 12 requests failed"), "{error}");
    assert_eq!(error.exit(), Exit::ProgramFailed);
}

#[test]
fn an_answer_that_is_no_stream_is_named() {
    let (server, load) = props("garbage");
    let error = run(&server, &load).0.unwrap_err().to_string();
    assert!(error.contains("not what an OpenAI-compatible server sends"), "{error}");
}

#[test]
fn a_server_that_is_never_ready_is_given_up() {
    let (server, mut load) = props("normal");
    // Answers from the start, unlike a program, whose start may take longer than any limit.
    let busy = TcpListener::bind("127.0.0.1:0").unwrap();
    load.server.url = format!("http://{}", busy.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in busy.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).unwrap();
            let answer = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    load.server.ready_timeout = Span(Duration::ZERO);
    let (result, seen) = run(&server, &load);
    let error = result.unwrap_err();
    assert!(error.to_string().ends_with("was not ready after 0 s: HTTP status 503"), "{error}");
    assert_eq!(seen.last().unwrap(), "the server has ended", "it was stopped");
}

#[test]
fn a_server_that_dies_is_named_with_its_last_words() {
    let (server, load) = props("dies");
    let error = run(&server, &load).0.unwrap_err();
    let error = error.to_string();
    assert!(error.contains(" under load\n") && error.contains("out of memory"), "{error}");
    let load = props("normal").1;
    let server = CommandLine::new("python3").args(["-c", "raise SystemExit('no such model')"]);
    let error = run(&server, &load).0.unwrap_err();
    let error = error.to_string();
    assert!(error.contains(" before it was ready\n") && error.contains("no such model"), "{error}");
}

#[test]
fn a_server_that_ignores_polite_signals_is_killed() {
    let (server, mut load) = props("stubborn");
    load.run.grace = Span(Duration::from_millis(300));
    let (result, _) = run(&server, &load);
    assert_eq!(result.unwrap().requests.completed, 12);
    assert!(std::net::TcpStream::connect(load.server.url.trim_start_matches("http://")).is_err());
}

#[test]
fn a_line_without_an_end_is_refused() {
    let (server, mut load) = props("endless");
    (load.load.requests, load.load.warmup) = (2, 0);
    let error = run(&server, &load).0.unwrap_err().to_string();
    assert!(error.contains("a line of more than 4 MiB"), "{error}");
}

#[test]
fn more_requests_than_fit_into_memory_are_refused() {
    for (requests, warmup) in [(u64::MAX, 8), (u64::MAX - 8, 0)] {
        let (server, mut load) = props("normal");
        (load.load.requests, load.load.warmup) = (requests, warmup);
        let error = run(&server, &load).0.unwrap_err();
        assert!(error.to_string().starts_with("more than 10000000 requests"), "{error}");
        assert_eq!(error.exit(), Exit::Usage);
    }
}
