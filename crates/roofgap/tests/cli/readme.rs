//! The output that the README shows is real.

use crate::support::{Run, roofgap, root};

/// A command of a `console` block and the output shown below it.
struct Example {
    command: String,
    shown: Vec<String>,
}

/// Collects the commands that are shown with output. Those that need a GPU are shown without.
fn examples(readme: &str) -> Vec<Example> {
    let mut found: Vec<Example> = Vec::new();
    for block in readme.split("```console\n").skip(1) {
        let (block, _) = block.split_once("```").unwrap();
        for line in block.lines().map(str::trim_end) {
            if let Some(command) = line.strip_prefix("$ ") {
                let (command, shown) = (command.to_owned(), Vec::new());
                found.push(Example { command, shown });
            } else if let Some(example) = found.last_mut() {
                example.shown.push(line.to_owned());
            }
        }
    }
    found.retain(|example| !example.shown.is_empty());
    found
}

/// Checks that the output has each line that is shown, in order; `...` stands for omitted lines.
#[test]
fn the_examples_are_real() {
    let examples = examples(&(read("README.md") + &read("docs/commands.md")));
    assert!(!examples.is_empty(), "the README shows output");
    for Example { command, shown } in examples {
        let arguments = command.strip_prefix("roofgap ").unwrap_or_else(|| panic!("{command}"));
        let output = roofgap(arguments.split(' ')).env("COLUMNS", "80").output().unwrap();
        let run: Run = output.into();
        assert_eq!(run.status, Some(0), "{}", run.stderr);
        let mut lines = run.stdout.lines().map(str::trim_end);
        for line in shown.iter().filter(|line| !line.is_empty() && *line != "...") {
            assert!(
                lines.any(|printed| printed == line),
                "the README shows a line that `{command}` does not print (there): {line}\n{}",
                run.stdout
            );
        }
    }
}

/// The first page stays short: what is more belongs into the book.
#[test]
fn the_readme_is_read_in_minutes() {
    let words = read("README.md").split_whitespace().count();
    assert!(words <= 800, "{words} words");
}

fn read(page: &str) -> String {
    std::fs::read_to_string(root().join(page)).unwrap()
}
