//! The nsys on this machine.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::help::Help;
use super::importer::{self, Import};
use super::search::{Candidate, Found, Place, Rejected, Search};
use super::version::Version;
use crate::child::{Answer, probe};
use crate::command::CommandLine;

/// An nsys that answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nsys {
    /// The program.
    pub path: PathBuf,
    /// How it was come by.
    pub place: Place,
    /// Its version, where it told one.
    pub version: Option<Version>,
    /// The options of `nsys profile`.
    pub profile: Help,
    /// The options of `nsys export`.
    pub export: Help,
    /// The reports of `nsys stats`.
    pub reports: Vec<String>,
    /// Whether it can import what it records.
    pub import: Import,
}

/// How long a tool may take to answer a question; nsys unpacks things on its first start.
const PATIENCE: Duration = Duration::from_secs(30);

impl Nsys {
    /// The best nsys there is: the first that answers and can import, else the first that answers.
    pub fn find(search: &Search) -> Found<Nsys> {
        let mut rejected = Vec::new();
        let mut fallback: Option<Nsys> = None;
        for candidate in search.nsys() {
            let path = candidate.path.clone();
            match Nsys::ask(candidate) {
                Ok(nsys) if nsys.import.is_hopeful() => {
                    if let Some(unable) = fallback {
                        rejected.push(Rejected {
                            path: unable.path,
                            why: "it cannot import what it records".to_owned(),
                        });
                    }
                    return Found {
                        tool: Some(nsys),
                        rejected,
                    };
                }
                Ok(nsys) if fallback.is_none() => fallback = Some(nsys),
                Ok(nsys) => {
                    rejected.push(Rejected {
                        path: nsys.path,
                        why: "it cannot import what it records".to_owned(),
                    });
                }
                Err(why) => rejected.push(Rejected { path, why }),
            }
        }
        Found {
            tool: fallback,
            rejected,
        }
    }

    fn ask(candidate: Candidate) -> Result<Nsys, String> {
        let Candidate { path, place } = candidate;
        let answered = answer(&path, &["--version"])?;
        let said = answered.text();
        // A wrapper may print a banner with numbers of its own.
        let named = said.lines().find(|line| line.contains("Nsight Systems"));
        let version = named
            .and_then(Version::find)
            .or_else(|| Version::find(&said).filter(Version::is_of_a_year));
        if version.is_none() && named.is_none() {
            return Err(not_like("nsys", &answered));
        }
        let profile = Help::read(&answer(&path, &["profile", "--help"])?.text());
        let export = Help::read(&answer(&path, &["export", "--help"])?.text());
        let reports = report_names(&answer(&path, &["stats", "--help-reports"])?.text());
        let import = importer::check(&path);
        Ok(Nsys {
            path,
            place,
            version,
            profile,
            export,
            reports,
            import,
        })
    }
}

/// What a tool answers, whatever status it ends with (`nsys stats --help-reports` ends with 1, and a wrapper may lose one);
/// or why it does not answer at all.
pub(super) fn answer(path: &Path, args: &[&str]) -> Result<Answer, String> {
    let command = CommandLine::new(path).args(args.iter().copied());
    match probe(&command, PATIENCE) {
        Ok(answer) if answer.itself => Ok(answer),
        Ok(answer) => Err(format!("{command} {}, {}", answer.how, answer.gist())),
        Err(error) => Err(error.to_string()),
    }
}

/// Why a program is not the tool whose name it has.
pub(super) fn not_like(tool: &str, answer: &Answer) -> String {
    let gist = answer.gist();
    format!(
        "it does not answer --version like {tool}: it {}, {gist}",
        answer.how
    )
}

/// The names of `nsys stats --help-reports`: `  cuda_gpu_kern_sum[:nvtx-name][:base|:mangled] -- CUDA GPU Kernel Summary`.
fn report_names(text: &str) -> Vec<String> {
    text.lines()
        .filter_map(|line| {
            let (head, _) = line.strip_prefix("  ")?.split_once(" -- ")?;
            let name = head.split(['[', ':', ' ']).next()?;
            (!name.is_empty()).then(|| name.to_owned())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_reports() {
        let text = "The following built-in reports are available:\n\n  cuda_api_sum -- CUDA API Summary\n  \
                    gpukernsum[:base|:mangled] -- CUDA GPU Kernel Summary\n  cuda_gpu_kern_sum[:nvtx-name][:base] -- X\n";
        assert_eq!(
            report_names(text),
            ["cuda_api_sum", "gpukernsum", "cuda_gpu_kern_sum"]
        );
    }
}
