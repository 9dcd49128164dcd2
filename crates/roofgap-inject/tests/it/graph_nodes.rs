//! Nodes of CUDA graphs in the capture: those that a stand-in CUPTI reports while a program captures a graph.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::Command;

use roofgap_wire::{Message, Reader, Record};

/// Compiles one of the stand-ins in a folder of the test's own.
fn compile(folder: &Path, out: &str, source: &str, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stand-in").join(source);
    let out = folder.join(out);
    let mut cc = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    cc.args(["-O1", "-o"]).arg(&out).arg(&source).args(flags);
    let done = cc.args(["-ldl", "-lpthread"]).output().expect("a C compiler");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    out
}

/// Nodes and kernels of a capture.
#[derive(Debug, Default, PartialEq)]
struct Nodes {
    /// Each created node with the ranges around it, `/` between them.
    created: BTreeMap<u64, String>,
    /// Each cloned node with its original.
    cloned: BTreeMap<u64, u64>,
    /// Nodes of the kernels.
    kernels: Vec<u64>,
    losses: Vec<String>,
}

/// Runs the program that captures a graph of modules, and reads its capture.
fn run(environment: &[(&str, &str)]) -> Nodes {
    let folder = tempfile::tempdir().unwrap();
    let captures = folder.path().join("captures");
    std::fs::create_dir(&captures).unwrap();
    let tests = std::env::current_exe().unwrap();
    let library = tests.with_file_name("libroofgap_inject.so");
    let done = Command::new(compile(folder.path(), "program", "program.c", &[]))
        .arg("modules")
        .env("CUDA_INJECTION64_PATH", &library)
        .env("NVTX_INJECTION64_PATH", &library)
        .env("CUPTI_LIBRARY", compile(folder.path(), "cupti.so", "cupti.c", &["-shared", "-fPIC"]))
        .env("ROOFGAP_NATIVE_DIR", &captures)
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    assert!(done.status.success(), "{:?}", done.status);
    let capture = std::fs::read_dir(&captures).unwrap().next().unwrap().unwrap();
    read(&capture.path())
}

fn read(path: &Path) -> Nodes {
    let mut reader = Reader::open(BufReader::new(File::open(path).unwrap())).unwrap();
    let mut nodes = Nodes::default();
    let mut open: Vec<String> = Vec::new();
    while let Some(records) = reader.next_frame().unwrap() {
        for record in records {
            match record {
                Record::NvtxEvent(event) => match event.message {
                    Message::Inline(text) => open.push(text.to_str().into_owned()),
                    other => panic!("{other:?}"),
                },
                Record::NvtxPop(_) => drop(open.pop()),
                Record::GraphNode(node) if node.original == 0 => {
                    nodes.created.insert(node.node, open.join("/"));
                }
                Record::GraphNode(node) => drop(nodes.cloned.insert(node.node, node.original)),
                Record::Kernel(kernel) => nodes.kernels.push(kernel.node),
                Record::Loss(loss) => nodes.losses.push(loss.id.to_str().into_owned()),
                _ => {}
            }
        }
    }
    nodes
}

#[test]
fn nodes_are_recorded_among_the_ranges_of_their_capture() {
    let nodes = run(&[]);
    let created = [
        (1, ""),
        (2, ""),
        (3, ""),
        (101, "model/layer:model.layers.0.mlp"),
        (102, "model/layer:model.layers.1.mlp"),
        (103, ""),
    ];
    assert_eq!(
        nodes.created,
        created.map(|(node, ranges)| (node, ranges.to_owned())).into(),
        "a node without an id is left out"
    );
    assert_eq!(nodes.cloned, [(1, 101), (2, 102), (3, 103)].into());
    assert_eq!(nodes.kernels, [1, 2, 3]);
    assert!(nodes.losses.is_empty(), "{:?}", nodes.losses);
}

#[test]
fn a_dormant_collector_has_no_nodes_unless_they_are_requested() {
    let dormant = ("ROOFGAP_NATIVE_DORMANT", "1");
    let late = run(&[dormant]);
    assert_eq!(late.created.len() + late.cloned.len(), 0);
    assert_eq!(late.kernels, [1, 2, 3], "the replay is recorded");
    let always = run(&[dormant, ("ROOFGAP_NATIVE_NODES", "always")]);
    assert_eq!((always.created.len(), always.cloned.len()), (6, 3));
    assert_eq!(always.kernels, [1, 2, 3]);
}

#[test]
fn nodes_can_be_left_out() {
    for setting in [("ROOFGAP_NATIVE_NODES", "0"), ("ROOFGAP_NATIVE_GRAPH", "graph")] {
        let nodes = run(&[setting]);
        assert_eq!(nodes.created.len() + nodes.cloned.len(), 0, "{setting:?}");
    }
}
