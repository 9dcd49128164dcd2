//! Counters of a job of several ranks, which are those of one rank.

use std::path::PathBuf;

use crate::support::{Bench, MODEL, NVIDIA_SMI, notes, stand_in, status, why};
use roofgap_base::exit::Exit;
use roofgap_collect::child::Cancel;
use roofgap_record::run::{NativeLibrary, Outcome, profile};
use roofgap_runs::run_dir::PhaseName;
use roofgap_wire::{
    End, FrameBuilder, Header, Kernel, LaunchShape, LauncherVariable, Process, Record, StreamEntry, Text,
    TextEntry,
};

/// An empty library: the stand-in program writes the captures that a collector would write.
const LIBRARY: NativeLibrary = NativeLibrary { bytes: b"" };

/// Writes a capture of one kernel, in a process that a launcher started as a rank of two.
fn capture_of_rank(bench: &Bench, rank: u32) -> PathBuf {
    let pid = 100 + rank;
    let mut frame = FrameBuilder::new();
    let text = |text: &'static str| Text(text.as_bytes());
    frame.put(&Record::Process(Process { pid, parent: 1, at: 1, name: text("python3") }));
    for (name, value) in [("RANK", rank), ("WORLD_SIZE", 2)] {
        let name = text(name);
        frame.put(&Record::LauncherVariable(LauncherVariable { value, name }));
    }
    frame.put(&Record::TextEntry(TextEntry { id: 0, text: text("gemm") }));
    frame.put(&Record::LaunchShape(LaunchShape {
        id: 0,
        name: 0,
        grid: [3, 1, 1],
        block: [128, 1, 1],
        registers: 40,
        static_shared: 0,
        dynamic_shared: 0,
        local: 0,
    }));
    frame.put(&Record::StreamEntry(StreamEntry { id: 0, device: 0, context: 1, stream: 7 }));
    frame.put(&Record::Kernel(Kernel {
        shape: 0,
        stream_id: 0,
        correlation: 1,
        graph: 0,
        start: 1_000,
        end: 51_000,
        node: 0,
    }));
    frame.put(&Record::End(End { how: 1, at: 90_000 }));
    let mut bytes = Header::new(pid, 1, 2).encode().to_vec();
    bytes.extend_from_slice(frame.close());
    let path = bench.path(&format!("{rank}.capture"));
    std::fs::write(&path, bytes).unwrap();
    path
}

/// Profiles a stand-in for a launcher that starts these ranks.
fn profile_ranks(ranks: &[u32], overrides: &[&str]) -> (Bench, Outcome) {
    let bench = Bench::new();
    bench.script("bin/nvidia-smi", NVIDIA_SMI);
    let mut text = format!(
        "{MODEL}\necho \"$ROOFGAP_PHASE ${{ROOFGAP_COUNTERS_RANK:-unset}}\" >> '{}'\n",
        bench.path("phases").display()
    );
    for rank in ranks {
        text.push_str(&format!(
            "[ -z \"${{ROOFGAP_NATIVE_DIR:-}}\" ] || cp '{}' \"$ROOFGAP_NATIVE_DIR/{rank}.rgcap\"\n",
            capture_of_rank(&bench, *rank).display()
        ));
    }
    let program = bench.script("bin/torchrun", &text);
    let ncu = stand_in("ncu");
    let mut all = vec![ncu.as_str(), "profiling.timeline=native"];
    all.extend(overrides);
    let mut props = bench.props(&[program.to_str().unwrap()], &all);
    props.native = Ok(LIBRARY);
    let outcome = profile(&props, &Cancel::new(), &mut |_| {}).unwrap();
    (bench, outcome)
}

fn phases(bench: &Bench) -> String {
    std::fs::read_to_string(bench.path("phases")).unwrap()
}

/// Lists the words of the first command of the phase.
fn command(outcome: &Outcome) -> &[String] {
    let commands = &outcome.record.phase(PhaseName::Counters).unwrap().commands;
    let timeline = why(outcome, PhaseName::Timeline);
    let first = commands.first();
    &first.unwrap_or_else(|| panic!("{} {timeline}", why(outcome, PhaseName::Counters))).argv
}

#[test]
fn ncu_measures_one_rank_and_the_session_says_which() {
    let (bench, outcome) = profile_ranks(&[0, 1], &[]);
    assert_eq!(status(&outcome, PhaseName::Counters).word(), "ok", "{}", why(&outcome, PhaseName::Counters));
    let words = command(&outcome);
    let excluded = ["--nvtx-exclude".to_owned(), "roofgap.other_rank".to_owned()];
    assert!(words.windows(2).any(|pair| pair == excluded), "{words:?}");
    assert!(phases(&bench).contains("counters 0\n"), "{}", phases(&bench));
    assert!(phases(&bench).contains("timeline unset\n"), "{}", phases(&bench));
    // The stand-in plays back launches of a program without ranks.
    let said = notes(&outcome, PhaseName::Counters);
    assert!(said.contains("ncu cannot tell rank 0 from the others"), "{said}");

    let (bench, outcome) = profile_ranks(&[0, 1], &["profiling.ncu.rank=1"]);
    assert!(phases(&bench).contains("counters 1\n"), "{}", phases(&bench));
    assert_eq!(status(&outcome, PhaseName::Counters).word(), "ok", "{}", why(&outcome, PhaseName::Counters));
}

#[test]
fn every_rank_is_measured_where_the_user_wants_it() {
    let (bench, outcome) = profile_ranks(&[0, 1], &["profiling.ncu.rank=null"]);
    assert!(!command(&outcome).contains(&"roofgap.other_rank".to_owned()));
    assert!(phases(&bench).contains("counters unset\n"), "{}", phases(&bench));
}

#[test]
fn a_session_without_the_measured_rank_runs_the_program_without_ncu() {
    let (bench, outcome) = profile_ranks(&[1], &[]);
    let words = command(&outcome);
    assert!(words[0].ends_with("/torchrun"), "{words:?}");
    assert!(phases(&bench).contains("counters unset\n"), "{}", phases(&bench));
    assert_eq!(status(&outcome, PhaseName::Counters).word(), "skipped");
    let why = why(&outcome, PhaseName::Counters);
    assert!(why.contains("those of one rank, 0") && why.contains("the ranks here are 1;"), "{why}");
    assert_eq!(outcome.exit, Exit::Done, "{:?}", outcome.record.missing);
}
