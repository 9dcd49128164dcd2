//! Tools that answer in unusual ways: behind wrappers, in other versions, with odd exit statuses.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use roofgap_collect::doctor::checks;
use roofgap_collect::doctor::{DoctorProps, Status, SystemFacts};
use roofgap_collect::tool::{Ncu, Nsys, Search};

struct Odd(tempfile::TempDir);

impl Odd {
    /// Both tools as the stand-ins, with shell lines before them; `$real` is the stand-in.
    fn before(lines: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for tool in ["nsys", "ncu"] {
            let real = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../../tests/stand-in")
                .join(tool)
                .canonicalize()
                .unwrap();
            let path = folder.path().join(tool);
            let text = format!("#!/bin/bash\nreal='{}'\n{lines}\nexec \"$real\" \"$@\"\n", real.display());
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        Odd(folder)
    }

    fn path(&self, tool: &str) -> PathBuf {
        self.0.path().join(tool)
    }

    fn search(&self, tool: &str) -> Search {
        Search { named: Some(self.path(tool)), path: Vec::new(), root: None }
    }

    /// Both tools, which must be usable and know as much as ever.
    fn whole(&self, version: &str) {
        let found = Nsys::find(&self.search("nsys"));
        let nsys = found.tool.unwrap_or_else(|| panic!("{:?}", found.rejected));
        let wanted = format!("{version}.90");
        assert_eq!(nsys.version.unwrap().to_string(), wanted);
        assert!(nsys.profile.offers("--trace", "nvtx") && nsys.export.has("--lazy"));
        assert!(nsys.reports.contains(&"cuda_gpu_kern_sum".to_owned()));
        let found = Ncu::find(&self.search("ncu"));
        let ncu = found.tool.unwrap_or_else(|| panic!("{:?}", found.rejected));
        assert_eq!(ncu.version.as_ref().unwrap().to_string(), wanted);
        assert!(ncu.help.offers("--filter-mode", "per-launch-config"));
        assert!(
            ncu.sets.contains(&"roofline".to_owned()) && ncu.sections.contains(&"SpeedOfLight".to_owned())
        );
        assert!(ncu.metrics_of("gh100").unwrap().contains("dram__bytes_read"));
    }

    /// Why neither can be used.
    fn useless(&self) -> [String; 2] {
        let nsys = Nsys::find(&self.search("nsys"));
        let ncu = Ncu::find(&self.search("ncu"));
        assert!(nsys.tool.is_none() && ncu.tool.is_none());
        let why =
            |rejected: &[roofgap_collect::tool::RejectedCandidate]| rejected.first().unwrap().why.to_string();
        [why(&nsys.rejected), why(&ncu.rejected)]
    }
}

const BANNER: &str =
    "echo 'module cuda/12.4.1 of 2024.05.01, Version 12.4'; echo 'WARNING: node 7.1 is old' >&2";

#[test]
fn wrappers_and_other_versions_are_seen_through() {
    let newer = "export STANDIN_VERSION=2026.2.1.90";
    let older = "export STANDIN_VERSION=2021.3.2.90";
    let same = "export STANDIN_VERSION=2025.3.1.90";
    Odd::before(newer).whole("2026.2.1");
    Odd::before(older).whole("2021.3.2");
    Odd::before(&format!("{same}; {BANNER}")).whole("2025.3.1");
    Odd::before(&format!("{same}; printf 'caf\\xe9 \\xff\\xfe\\n'")).whole("2025.3.1");
    Odd::before(&format!("{same}; exec 1>&2")).whole("2025.3.1");
    Odd::before(&format!("{same}; \"$real\" \"$@\"; exit 3")).whole("2025.3.1");
}

#[test]
fn what_only_has_the_name_is_refused_in_few_words() {
    for why in Odd::before("exit 0").useless() {
        assert!(why.contains("status 0, no output"), "{why}");
    }
    for why in Odd::before("echo 'libcuda.so.1: cannot open shared object file' >&2; exit 127").useless() {
        assert!(why.contains("status 127") && why.contains("libcuda.so.1"), "{why}");
    }
    for why in Odd::before("kill -SEGV $$").useless() {
        assert!(why.contains("signal 11"), "{why}");
    }
    for why in Odd::before("echo 'another program 1.2.3'; exit 0").useless() {
        assert!(why.contains("unexpected answer to --version"), "{why}");
    }
    // Three megabytes of noise in one line.
    for why in Odd::before("head -c 3000000 /dev/zero | tr '\\0' '\\377'; exit 0").useless() {
        assert!(why.len() < 300, "{} bytes: {why:.400}", why.len());
    }
}

#[test]
fn a_tool_without_help_is_used_as_it_is() {
    let odd = Odd::before("case \"$*\" in *--help* | *--list-* | *--query-*) exit 0 ;; esac");
    let nsys = Nsys::find(&odd.search("nsys")).tool.unwrap();
    assert!(nsys.profile.is_empty() && nsys.reports.is_empty());
    let ncu = Ncu::find(&odd.search("ncu")).tool.unwrap();
    assert!(ncu.help.is_empty() && ncu.sets.is_empty());
    let why = ncu.metrics_of("gh100").unwrap_err().to_string();
    assert!(why.contains("gh100") && why.contains("no output"), "{why}");
}

#[test]
fn the_doctor_tells_of_each() {
    let odd = Odd::before("echo 'no licence' >&2; exit 9");
    let props =
        DoctorProps { nsys: Some(odd.path("nsys")), ncu: Some(odd.path("ncu")), ..DoctorProps::default() };
    let checks = checks(&SystemFacts::collect(&props), &props);
    for id in ["nsys", "ncu"] {
        let check = checks.iter().find(|check| check.id == id).unwrap();
        assert_eq!(check.status, Status::Bad, "{check:?}");
        assert!(check.found.contains("no licence") && check.remedy.is_some(), "{check:?}");
    }
}
