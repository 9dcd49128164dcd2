//! Finds CUPTI: the library that the program has loaded, else the one nearest to its CUDA.

use std::fs;
use std::path::{Path, PathBuf};

/// Names in the loader's search path, newest first.
const BY_NAME: [&str; 4] = ["libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8", "libcupti.so"];

/// Inputs of the search.
#[derive(Debug, Default)]
pub struct Surroundings {
    /// `CUPTI_LIBRARY`: path set by the user.
    pub named: Option<PathBuf>,
    /// `/proc/self/maps`.
    pub maps: String,
    /// `CUDA_HOME`, `CUDA_PATH`.
    pub toolkits: Vec<PathBuf>,
}

impl Surroundings {
    /// Collects the inputs of this process.
    pub fn here() -> Self {
        let path = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        Self {
            named: path("CUPTI_LIBRARY"),
            maps: fs::read_to_string("/proc/self/maps").unwrap_or_default(),
            toolkits: ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(path).collect(),
        }
    }

    /// Files to try, best first, none twice.
    pub fn candidates(&self) -> Vec<PathBuf> {
        if let Some(named) = &self.named {
            return vec![named.clone()];
        }
        let loaded = loaded_files(&self.maps);
        let mut candidates: Vec<PathBuf> = loaded.iter().filter(|path| is_cupti(path)).cloned().collect();
        if candidates.is_empty() {
            for folder in near(&loaded) {
                candidates.extend(cupti_in(&folder));
            }
            for root in &self.toolkits {
                candidates.extend(in_toolkit(root));
            }
            candidates.extend(BY_NAME.iter().map(PathBuf::from));
            for root in installed_toolkits() {
                candidates.extend(in_toolkit(&root));
            }
        }
        let mut seen = Vec::new();
        candidates.retain(|path| {
            let real = fs::canonicalize(path).unwrap_or_else(|_| path.clone());
            let new = !seen.contains(&real);
            seen.push(real);
            new
        });
        candidates
    }
}

/// Returns the files mapped into the process.
fn loaded_files(maps: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = Vec::new();
    for line in maps.lines() {
        let Some(at) = line.find('/') else { continue };
        let path = Path::new(line.get(at..).unwrap_or_default());
        if files.last().is_none_or(|last| last != path) && !files.iter().any(|file| file == path) {
            files.push(path.to_path_buf());
        }
    }
    files
}

fn name_of(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

fn is_cupti(path: &Path) -> bool {
    name_of(path).starts_with("libcupti.so")
}

/// Returns true if a loaded file is part of CUDA or of a framework that ships it.
fn is_cuda(path: &Path) -> bool {
    const PARTS: [&str; 9] = [
        "libcudart.so",
        "libcublas",
        "libcudnn",
        "libnvrtc",
        "libcufft",
        "libcusparse",
        "libtorch",
        "libc10_cuda",
        "libnccl",
    ];
    let name = name_of(path);
    PARTS.iter().any(|part| name.starts_with(part))
}

/// Folders near the program's CUDA that may hold CUPTI.
fn near(loaded: &[PathBuf]) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    let mut add = |folder: PathBuf| {
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    };
    for file in loaded.iter().filter(|file| is_cuda(file)) {
        let Some(folder) = file.parent() else { continue };
        add(folder.to_path_buf());
        if let Some(root) = folder.parent() {
            add(root.join("extras/CUPTI/lib64"));
            add(root.join("../../extras/CUPTI/lib64"));
        }
        for above in folder.ancestors().skip(1).take(4) {
            // Python packages: site-packages/nvidia/<part>/lib beside site-packages/torch/lib.
            for package in subfolders(&above.join("nvidia")) {
                add(package.join("lib"));
            }
        }
    }
    folders
}

fn subfolders(folder: &Path) -> Vec<PathBuf> {
    listed(folder, Path::is_dir)
}

/// Returns the CUPTI files of a folder, newest name first.
fn cupti_in(folder: &Path) -> Vec<PathBuf> {
    listed(folder, is_cupti)
}

/// Returns the entries of a folder to keep, last name first.
fn listed(folder: &Path, keep: fn(&Path) -> bool) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| keep(path)).collect();
    paths.sort();
    paths.reverse();
    paths
}

fn in_toolkit(root: &Path) -> Vec<PathBuf> {
    ["extras/CUPTI/lib64", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib", "lib64"]
        .iter()
        .flat_map(|folder| cupti_in(&root.join(folder)))
        .collect()
}

/// Toolkits in the usual place, the default one first, then the newest.
fn installed_toolkits() -> Vec<PathBuf> {
    let local = Path::new("/usr/local");
    let mut roots = vec![local.join("cuda")];
    roots.extend(subfolders(local).into_iter().filter(|path| name_of(path).starts_with("cuda-")));
    roots
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loaded_cupti_is_the_only_candidate() {
        let maps = "7f00-7f01 r-xp 00000000 08:01 5 /usr/lib/libc.so.6\n\
                    7f02-7f03 r-xp 00000000 08:01 6 /venv/nvidia/cu13/lib/libcupti.so.13\n\
                    7f03-7f04 rw-p 00000000 08:01 6 /venv/nvidia/cu13/lib/libcupti.so.13\n\
                    7f05-7f06 rw-p 00000000 00:00 0 [heap]\n";
        let around = Surroundings { maps: maps.into(), ..Surroundings::default() };
        assert_eq!(around.candidates(), [PathBuf::from("/venv/nvidia/cu13/lib/libcupti.so.13")]);
    }

    #[test]
    fn the_users_word_comes_first() {
        let maps = "7f02-7f03 r-xp 00000000 08:01 6 /x/libcupti.so.13\n".to_string();
        let around = Surroundings { named: Some("/mine/libcupti.so".into()), maps, toolkits: vec![] };
        assert_eq!(around.candidates(), [PathBuf::from("/mine/libcupti.so")]);
    }

    #[test]
    fn python_packages_beside_the_programs_cuda_are_found() {
        let root = tempfile::tempdir().unwrap();
        let site = root.path().join("lib/python3.12/site-packages");
        let cupti = site.join("nvidia/cuda_cupti/lib/libcupti.so.12");
        for file in [
            &cupti,
            &site.join("torch/lib/libtorch_cuda.so"),
            &site.join("nvidia/cublas/lib/libcublas.so.12"),
        ] {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        }
        let maps =
            format!("7f02-7f03 r-xp 0 08:01 6 {}\n", site.join("torch/lib/libtorch_cuda.so").display());
        let around = Surroundings { maps, ..Surroundings::default() };
        assert_eq!(around.candidates().first(), Some(&cupti));
    }

    #[test]
    fn a_toolkit_is_searched() {
        let root = tempfile::tempdir().unwrap();
        let cupti = root.path().join("extras/CUPTI/lib64/libcupti.so.13");
        fs::create_dir_all(cupti.parent().unwrap()).unwrap();
        fs::write(&cupti, "").unwrap();
        let around = Surroundings { toolkits: vec![root.path().into()], ..Surroundings::default() };
        assert_eq!(around.candidates().first(), Some(&cupti));
    }
}
