//! The model inside this binary.

use std::path::Path;

use super::setting::Setting;
use crate::command::CommandLine;

/// `EXE workload --account FILE ARG...`: this binary again, as the program to profile.
pub fn embedded(exe: &Path, args: &[String], setting: &Setting) -> CommandLine {
    let line = CommandLine::new(exe)
        .args(["workload", "--account"])
        .arg(&setting.account)
        .args(args.iter().map(String::as_str));
    setting.apply(line)
}

#[cfg(test)]
mod tests {
    use super::super::setting::example;
    use super::*;

    #[test]
    fn this_binary_is_the_program() {
        let line = embedded(
            Path::new("/bin/roofgap"),
            &["--repeats".to_owned(), "3".to_owned()],
            &example(),
        );
        assert_eq!(
            line.argv(),
            [
                "/bin/roofgap",
                "workload",
                "--account",
                "/runs/1/baseline/workload.json",
                "--repeats",
                "3"
            ]
        );
    }
}
