//! The example in the README is real output.

use crate::support::{ok, root};

/// Checks that the output has each line of the example, in order; `...` stands for omitted lines.
#[test]
fn the_example_is_real() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let (_, example) = readme
        .split_once("```console\n$ roofgap ")
        .expect("the README has an example");
    let (command, shown) = example.split_once('\n').unwrap();
    let (shown, _) = shown.split_once("```").unwrap();
    let run = ok(command.split(' '));
    let mut lines = run.stdout.lines().map(str::trim_end);
    for line in shown
        .lines()
        .map(str::trim_end)
        .filter(|line| !line.is_empty() && *line != "...")
    {
        assert!(
            lines.any(|printed| printed == line),
            "the README shows a line that is not printed (there): {line}"
        );
    }
}
