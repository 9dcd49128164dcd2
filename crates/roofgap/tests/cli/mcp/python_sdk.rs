//! A client from another vendor's SDK: the package `mcp` for Python.

use super::client::{ROOFGAP, fixtures};
use std::process::Command;

#[test]
#[ignore = "needs ROOFGAP_TEST_MCP: a Python that has the package mcp"]
fn real_mcp_the_python_sdk_drives_the_server() {
    let python =
        std::env::var_os("ROOFGAP_TEST_MCP").expect("ROOFGAP_TEST_MCP names a Python with the package mcp");
    let runs = tempfile::tempdir().unwrap();
    let output = Command::new(python)
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/mcp/python_sdk.py"))
        .args([ROOFGAP, "mcp", "--dir"])
        .arg(runs.path())
        .arg(fixtures())
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stdout}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(stdout.contains("8 tools"), "{stdout}");
}
