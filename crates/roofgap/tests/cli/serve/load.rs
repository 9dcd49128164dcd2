//! Many clients, and slow ones.

use super::support::{Place, Server};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

#[test]
fn a_thousand_requests_at_once_are_answered() {
    let place = Place::new();
    let run = place.profile();
    let server = place.serve_with(&["--max-connections", "64"]);
    let paths = [
        "/runs".to_owned(),
        format!("/runs/{run}"),
        format!("/profile/{run}/artifacts/metrics.json"),
        "/openapi.json".to_owned(),
    ];
    let start = std::sync::Barrier::new(1000);
    let ask = |position: usize| {
        start.wait();
        let mut stream = TcpStream::connect(&server.address).unwrap();
        let path = &paths[position % paths.len()];
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\r\n",
            server.address, server.token
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    std::thread::scope(|scope| {
        let ask = &ask;
        let threads: Vec<_> = (0..1000).map(|position| scope.spawn(move || ask(position))).collect();
        for thread in threads {
            let answer = thread.join().unwrap();
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        }
    });
}

/// Opens a connection and sends the beginning of a request.
fn half_request(server: &Server, start: &str) -> TcpStream {
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.write_all(start.as_bytes()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

#[test]
fn slow_clients_are_dropped_and_block_nobody() {
    let place = Place::new();
    let server = place.serve_with(&["--allow-run", "--max-connections", "8", "--client-timeout", "3"]);
    let head = format!(
        "POST /profile/run HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Length: 50\r\n\r\n{{",
        server.address, server.token
    );
    // They take every place: no head, half a head, half a body.
    let slow: Vec<TcpStream> = ["", "GET /runs HT", "GET /runs HTTP/1.1\r\nHost: x\r\n", head.as_str()]
        .iter()
        .cycle()
        .take(8)
        .map(|start| half_request(&server, start))
        .collect();
    assert_eq!(server.get("/runs").status, 200);
    for mut stream in slow {
        let mut answer = Vec::new();
        // It ends with or without an answer, but it ends.
        if let Err(error) = stream.read_to_end(&mut answer) {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        }
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
    }
}

#[test]
fn a_client_that_takes_nothing_of_an_answer_is_dropped() {
    let place = Place::new();
    let run = place.profile();
    let large = place.at("runs").join(&run).join("large.log");
    std::fs::File::create(&large).unwrap().set_len(64 << 20).unwrap();
    let server = place.serve_with(&["--max-connections", "1", "--client-timeout", "3"]);
    let request = format!(
        "GET /profile/{run}/artifacts/large.log HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
        server.address, server.token
    );
    let stuck = half_request(&server, &request);
    // The only place is free again once the first client was dropped.
    assert_eq!(server.get("/runs").status, 200);
    drop(stuck);
}
