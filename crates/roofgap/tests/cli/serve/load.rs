//! Many clients.

use super::support::Place;
use std::io::{Read, Write};
use std::net::TcpStream;

#[test]
fn a_thousand_requests_at_once_are_answered() {
    let place = Place::new();
    let run = place.profile();
    let server = place.serve();
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
