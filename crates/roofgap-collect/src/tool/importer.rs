//! Whether nsys can turn what it recorded into a report.
//!
//! Recording and importing are two programs. Where the second is missing or lacks a library, `nsys profile` ends with
//! status 0 and leaves a `.qdstrm` nobody can read, so this is asked beforehand.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use crate::child::probe;
use crate::command::{CommandLine, is_executable};

/// The state of the importer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Import {
    /// It is there and starts.
    Works {
        /// The importer.
        importer: PathBuf,
    },
    /// It is not where nsys looks.
    Missing {
        /// The folder nsys starts from.
        beside: PathBuf,
    },
    /// It is there and does not start.
    Broken {
        /// The importer.
        importer: PathBuf,
        /// The library it lacks, where that is the reason.
        library: Option<String>,
        /// What it said.
        said: String,
    },
    /// It cannot be told from outside.
    Unknown {
        /// Why.
        why: String,
    },
}

impl Import {
    /// No reason is known why importing should fail.
    pub fn is_hopeful(&self) -> bool {
        matches!(self, Import::Works { .. } | Import::Unknown { .. })
    }

    /// What to do about it, where something is wrong.
    pub fn remedy(&self) -> Option<String> {
        match self {
            Import::Works { .. } | Import::Unknown { .. } => None,
            Import::Missing { .. } => {
                Some("install the whole of Nsight Systems (the host part holds QdstrmImporter), not only its command line".to_owned())
            }
            Import::Broken { library: Some(library), .. } => Some(match package_of(library) {
                Some(package) => format!("apt-get install {package}    (or the package of your system that has {library})"),
                None => format!("install the package that has {library}"),
            }),
            Import::Broken { library: None, importer, .. } => {
                Some(format!("run {} --version and mend what it complains of", importer.display()))
            }
        }
    }
}

/// Looks for the importer of the nsys at `path` and starts it once.
pub fn check(path: &Path) -> Import {
    let nsys = match real_binary(path) {
        Ok(nsys) => nsys,
        Err(why) => return Import::Unknown { why },
    };
    let Some(folder) = nsys.parent() else {
        return Import::Unknown {
            why: format!("{} has no folder", nsys.display()),
        };
    };
    let Some(importer) = find_importer(folder) else {
        return Import::Missing {
            beside: folder.to_path_buf(),
        };
    };
    match probe(
        &CommandLine::new(&importer).arg("--version"),
        Duration::from_secs(20),
    ) {
        Ok(answer) if answer.ok => Import::Works { importer },
        Ok(answer) => {
            let library = missing_library(&answer.text());
            Import::Broken {
                importer,
                library,
                said: format!("{}: {}", answer.how, answer.text().trim()),
            }
        }
        Err(error) => Import::Broken {
            importer,
            library: None,
            said: error.to_string(),
        },
    }
}

/// Follows links, and a wrapper script that names the binary.
fn real_binary(path: &Path) -> Result<PathBuf, String> {
    let real = std::fs::canonicalize(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let head = read_head(&real);
    if !head.starts_with(b"#!") {
        return Ok(real);
    }
    let script = String::from_utf8_lossy(&head).into_owned();
    script
        .split(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ';'))
        .filter(|word| word.starts_with('/') && word.ends_with("/nsys"))
        .map(PathBuf::from)
        .find(|named| is_executable(named) && !read_head(named).starts_with(b"#!"))
        .and_then(|named| std::fs::canonicalize(named).ok())
        .ok_or_else(|| {
            format!(
                "{} is a script that does not name the program it starts",
                real.display()
            )
        })
}

fn read_head(path: &Path) -> Vec<u8> {
    use std::io::Read;
    let mut head = Vec::new();
    if let Ok(file) = std::fs::File::open(path) {
        let _ = file.take(16 << 10).read_to_end(&mut head);
    }
    head
}

/// The importer lies in a folder beside that of nsys (`host-linux-x64`, `linux-desktop-glibc_2_11_3-x64`, ...) or below `host`.
fn find_importer(folder: &Path) -> Option<PathBuf> {
    let parent = folder.parent()?;
    let below = |folder: &Path| -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(folder) else {
            return Vec::new();
        };
        let mut found: Vec<PathBuf> = entries
            .flatten()
            .map(|entry| entry.path().join("QdstrmImporter"))
            .filter(|path| path.is_file())
            .collect();
        found.sort();
        found
    };
    let own = folder.join("QdstrmImporter");
    own.is_file()
        .then_some(own)
        .into_iter()
        .chain(below(parent))
        .chain(below(&parent.join("host")))
        .next()
}

/// The library the dynamic linker did not find.
fn missing_library(said: &str) -> Option<String> {
    let rest = said.split_once("error while loading shared libraries: ")?.1;
    Some(rest.split(':').next()?.trim().to_owned())
}

/// The Debian package of a library nsys is known to lack on bare machines.
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

    /// A layout like a real one; the "binary" is no script, so that its folder counts.
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
        assert!(matches!(check(&nsys), Import::Works { .. }));
    }

    #[test]
    fn a_library_is_missing() {
        let said = "QdstrmImporter: error while loading shared libraries: libdw.so.1: cannot open shared object file";
        let (_root, nsys) = layout(Some(&format!("#!/bin/sh\necho '{said}' >&2\nexit 127\n")));
        let import = check(&nsys);
        assert!(
            matches!(&import, Import::Broken { library: Some(name), .. } if name == "libdw.so.1"),
            "{import:?}"
        );
        assert!(import.remedy().unwrap().starts_with("apt-get install libdw1"));
        assert!(!import.is_hopeful());
    }

    #[test]
    fn no_importer() {
        let (_root, nsys) = layout(None);
        let import = check(&nsys);
        assert!(matches!(import, Import::Missing { .. }));
        assert!(import.remedy().unwrap().contains("host part"));
    }

    #[test]
    fn a_wrapper_script_is_followed_and_another_script_is_not_judged() {
        let (root, _) = layout(Some("#!/bin/sh\n"));
        let wrapper = root.path().join("wrapper");
        put(
            &wrapper,
            &format!(
                "#!/bin/sh\nexec {}/target-linux-x64/nsys \"$@\"\n",
                root.path().display()
            ),
        );
        assert!(matches!(check(&wrapper), Import::Works { .. }));
        put(&wrapper, "#!/bin/sh\necho hello\n");
        assert!(matches!(check(&wrapper), Import::Unknown { .. }));
    }
}
