//! The nsys on this machine.

use std::path::PathBuf;

use super::help::Help;
use super::importer::{self, ImporterState};
use super::query::{ToolError, query, query_version};
use super::search::{Candidate, RejectedCandidate, Search, SearchResult, ToolLocation};
use super::version::Version;

/// A working nsys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nsys {
    /// Path of the program.
    pub path: PathBuf,
    /// Location of the program.
    pub location: ToolLocation,
    /// Version, if known.
    pub version: Option<Version>,
    /// Options of `nsys profile`.
    pub profile: Help,
    /// Options of `nsys export`.
    pub export: Help,
    /// Reports of `nsys stats`.
    pub reports: Vec<String>,
    /// State of the importer.
    pub importer: ImporterState,
}

impl Nsys {
    /// Finds the first nsys that works and can import, else the first that works.
    pub fn find(search: &Search) -> SearchResult<Nsys> {
        let mut rejected = Vec::new();
        let mut fallback: Option<Nsys> = None;
        let cannot_import = |nsys: Nsys| RejectedCandidate { path: nsys.path, why: ToolError::CannotImport };
        for candidate in search.nsys() {
            let path = candidate.path.clone();
            match Nsys::query(candidate) {
                Ok(nsys) if nsys.importer.may_work() => {
                    rejected.extend(fallback.map(cannot_import));
                    let tool = Some(nsys);
                    return SearchResult { tool, rejected };
                }
                Ok(nsys) if fallback.is_none() => fallback = Some(nsys),
                Ok(nsys) => rejected.push(cannot_import(nsys)),
                Err(why) => rejected.push(RejectedCandidate { path, why }),
            }
        }
        let tool = fallback;
        SearchResult { tool, rejected }
    }

    fn query(candidate: Candidate) -> Result<Nsys, ToolError> {
        let Candidate { path, location } = candidate;
        let mut version = None;
        query_version(&path, "nsys", |text| {
            // A wrapper may print a banner with other numbers.
            let product = text.lines().find(|line| line.contains("Nsight Systems"));
            version = product
                .and_then(Version::find)
                .or_else(|| Version::find(text).filter(Version::starts_with_year));
            version.is_some() || product.is_some()
        })?;
        Ok(Nsys {
            profile: Help::parse(&query(&path, &["profile", "--help"])?.text()),
            export: Help::parse(&query(&path, &["export", "--help"])?.text()),
            reports: report_names(&query(&path, &["stats", "--help-reports"])?.text()),
            importer: importer::check(&path),
            path,
            location,
            version,
        })
    }
}

/// Extracts the report names of `nsys stats --help-reports`: `  cuda_gpu_kern_sum[:nvtx-name][:base|:mangled] -- CUDA GPU Kernel Summary`.
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
        assert_eq!(report_names(text), ["cuda_api_sum", "gpukernsum", "cuda_gpu_kern_sum"]);
    }
}
