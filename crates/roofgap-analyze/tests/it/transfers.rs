//! Transfers between the ranks of a pipeline, from traces of PyTorch's profiler.

use roofgap_analyze::{MatchedTransfers, Options, RankRecord, analyze, join_ranks};
use std::io::Write;

/// A rank of three with its transfers: `send` or `recv`, the other rank, the number of PyTorch, and the start, µs.
fn record(rank: u32, transfers: &[(&str, u32, u32, u32)]) -> RankRecord {
    let kernel = |&(name, peer, number, start): &(&str, u32, u32, u32)| {
        let end = if name == "send" { "Dst Rank" } else { "Src Rank" };
        format!(
            r#"{{"ph":"X","cat":"kernel","name":"ncclDevKernel_SendRecv","pid":0,"tid":7,"ts":{start},"dur":10,"args":{{"device":0,
               "stream":7,"Collective name":"{name}","{end}":{peer},"Seq":{number},"In msg nelems":8,"Out msg nelems":8,"dtype":"Int",
               "Process Group Name":"0","Process Group Description":"pp"}}}}"#
        )
    };
    let events: Vec<String> = transfers.iter().map(kernel).collect();
    let mut file = tempfile::Builder::new().suffix(".json").tempfile().unwrap();
    write!(
        file,
        r#"{{"schemaVersion":1,"distributedInfo":{{"backend":"nccl","rank":{rank},"world_size":3}},"traceEvents":[{}]}}"#,
        events.join(",")
    )
    .unwrap();
    let trace = roofgap_trace::read(&[file.path().to_owned()]).unwrap().trace;
    let analyzed = analyze(&trace, &Options::default());
    RankRecord::of(&trace, &analyzed, None).unwrap()
}

#[test]
fn numbers_of_all_transfers_of_a_rank_do_not_match_those_of_another() {
    let records = vec![
        record(0, &[("send", 1, 1, 100), ("send", 1, 2, 200)]),
        // The rank in the middle counts what it receives and what it sends.
        record(1, &[("recv", 0, 1, 100), ("send", 2, 2, 120), ("recv", 0, 3, 200), ("send", 2, 4, 220)]),
        record(2, &[("recv", 1, 1, 120), ("recv", 1, 2, 220)]),
    ];
    let mut analysis = Default::default();
    join_ranks(&mut analysis, 0, records);
    let mut rows = analysis.job.unwrap().transfers;
    rows.sort_by_key(|row| row.from);
    let found = |row: &MatchedTransfers| (row.from, row.to, row.count, row.matched_by.clone());
    let found: Vec<_> = rows.iter().map(found).collect();
    assert_eq!(found, [(0, 1, 2, "order".into()), (1, 2, 2, "order".into())]);
}
