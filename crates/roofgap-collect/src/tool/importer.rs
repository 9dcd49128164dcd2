//! The importer of nsys, which turns a recording into a report.
//!
//! Recording and importing are two programs. If the importer is missing or lacks a library, `nsys profile` still exits
//! with status 0 and leaves an unreadable `.qdstrm`, so it is checked before a run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::child::probe;
use crate::command::{CommandLine, is_executable};
use crate::entries;

/// State of the importer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImporterState {
    /// The importer starts.
    Works {
        /// Path of the importer.
        importer: PathBuf,
    },
    /// The importer is missing or does not start.
    Fails {
        /// Reason.
        why: String,
        /// Suggested fix.
        remedy: String,
    },
    /// The state is unknown.
    Unknown {
        /// Reason.
        why: String,
    },
}

impl ImporterState {
    /// Suggests a fix, if the import will certainly fail.
    pub fn remedy(&self) -> Option<&str> {
        match self {
            Self::Works { .. } | Self::Unknown { .. } => None,
            Self::Fails { remedy, .. } => Some(remedy),
        }
    }
}

/// Finds the importer of the nsys at `path` and starts it once.
pub fn check(path: &Path) -> ImporterState {
    let nsys = real_binary(path);
    let Some(folder) = nsys.as_deref().and_then(Path::parent) else {
        return ImporterState::Unknown {
            why: format!("{} does not name the binary it starts", path.display()),
        };
    };
    let Some(importer) = find_importer(folder) else {
        let why = format!("no QdstrmImporter beside {}", folder.display());
        let remedy = "install the complete Nsight Systems: QdstrmImporter is in its host part, not in the command-line package";
        return ImporterState::Fails { why, remedy: remedy.to_owned() };
    };
    let error = match probe(&CommandLine::new(&importer).arg("--version"), Duration::from_secs(20)) {
        Ok(output) if output.success => return ImporterState::Works { importer },
        Ok(output) => format!("{}: {}", output.ended, output.text().trim()),
        Err(error) => error.to_string(),
    };
    let name = importer.display();
    let Some(library) = missing_library(&error) else {
        return ImporterState::Fails {
            why: error,
            remedy: format!("run {name} --version and fix the error it prints"),
        };
    };
    let remedy = match package_of(library) {
        Some(package) => {
            format!("apt-get install {package}    (or the package that provides {library} on your system)")
        }
        None => format!("install the package that provides {library}"),
    };
    ImporterState::Fails { why: format!("{name} needs {library}, which is missing"), remedy }
}

/// Follows links, and wrapper scripts that name the binary.
fn real_binary(path: &Path) -> Option<PathBuf> {
    let real = std::fs::canonicalize(path).ok()?;
    let head = read_head(&real);
    if !head.starts_with(b"#!") {
        return Some(real);
    }
    let script = String::from_utf8_lossy(&head).into_owned();
    script
        .split(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ';'))
        .filter(|word| word.starts_with('/') && word.ends_with("/nsys"))
        .map(PathBuf::from)
        .find(|named| is_executable(named) && !read_head(named).starts_with(b"#!"))
        .and_then(|named| std::fs::canonicalize(named).ok())
}

fn read_head(path: &Path) -> Vec<u8> {
    use std::io::Read;
    let mut head = Vec::new();
    if let Ok(file) = std::fs::File::open(path) {
        let _ = file.take(16 << 10).read_to_end(&mut head);
    }
    head
}

/// Finds the importer: in the folder of nsys, in a sibling folder (`host-linux-x64`, ...), or below `host`.
fn find_importer(folder: &Path) -> Option<PathBuf> {
    let parent = folder.parent()?;
    let folders = [folder.to_owned()].into_iter().chain(entries(parent)).chain(entries(&parent.join("host")));
    folders.map(|folder| folder.join("QdstrmImporter")).find(|path| path.is_file())
}

/// Extracts the library that the dynamic linker did not find.
fn missing_library(output: &str) -> Option<&str> {
    let rest = output.split_once("error while loading shared libraries: ")?.1;
    Some(rest.split(':').next()?.trim())
}

/// Returns the Debian package of a library that nsys often lacks.
fn package_of(library: &str) -> Option<&'static str> {
    Some(match library.split(".so").next()? {
        "libdw" => "libdw1",
        "libelf" => "libelf1",
        "libssh" => "libssh-4",
        "libpfm" => "libpfm4",
        "libbz2" => "libbz2-1.0",
        "liblzma" => "liblzma5",
        "libglib-2" | "libglib-2.0" => "libglib2.0-0",
        "libxkbcommon" => "libxkbcommon0",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn put(path: &Path, text: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Creates an install folder. The "binary" is no script, so its own folder counts.
    fn layout(importer: Option<&str>) -> (tempfile::TempDir, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let nsys = root.path().join("target-linux-x64/nsys");
        put(&nsys, "\u{7f}ELF");
        if let Some(text) = importer {
            put(&root.path().join("host-linux-x64/QdstrmImporter"), text);
        }
        std::fs::create_dir(root.path().join("bin")).unwrap();
        std::os::unix::fs::symlink("../target-linux-x64/nsys", root.path().join("bin/nsys")).unwrap();
        let link = root.path().join("bin/nsys");
        (root, link)
    }

    #[test]
    fn an_importer_that_starts() {
        let (_root, nsys) = layout(Some("#!/bin/sh\necho QdstrmImporter 1\n"));
        assert!(matches!(check(&nsys), ImporterState::Works { .. }));
    }

    #[test]
    fn a_library_is_missing() {
        let error = "QdstrmImporter: error while loading shared libraries: libdw.so.1: cannot open shared object file";
        let (_root, nsys) = layout(Some(&format!("#!/bin/sh\necho '{error}' >&2\nexit 127\n")));
        let import = check(&nsys);
        assert!(
            matches!(&import, ImporterState::Fails { why, .. } if why.ends_with("needs libdw.so.1, which is missing")),
            "{import:?}"
        );
        assert!(import.remedy().unwrap().starts_with("apt-get install libdw1"));
    }

    #[test]
    fn no_importer() {
        let (_root, nsys) = layout(None);
        let import = check(&nsys);
        assert!(import.remedy().unwrap().contains("host part"));
    }

    #[test]
    fn a_wrapper_script_is_followed_and_the_state_of_another_is_unknown() {
        let (root, _) = layout(Some("#!/bin/sh\n"));
        let wrapper = root.path().join("wrapper");
        put(&wrapper, &format!("#!/bin/sh\nexec {}/target-linux-x64/nsys \"$@\"\n", root.path().display()));
        assert!(matches!(check(&wrapper), ImporterState::Works { .. }));
        put(&wrapper, "#!/bin/sh\necho hello\n");
        assert!(matches!(check(&wrapper), ImporterState::Unknown { .. }));
    }
}
