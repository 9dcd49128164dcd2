//! Builds the native collector that `run/tools.rs` embeds.
//!
//! Cargo cannot pass the shared library of one crate to another, so this calls cargo again. The result goes to a folder that all
//! profiles share. A failed build is not an error: the binary then reports that it has no collector.

#![allow(clippy::print_stdout)] // cargo reads instructions from stdout

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let sources = Sources::beside(&manifest);
    for part in ["src", "Cargo.toml"] {
        for package in [&sources.inject, &sources.wire] {
            println!("cargo::rerun-if-changed={}", package.join(part).display());
        }
    }
    println!("cargo::rerun-if-changed=build.rs");
    let built = sources.copied(&out).and_then(|sources| build(&sources, &out));
    let (bytes, why) = match built {
        Ok(bytes) => (bytes, String::new()),
        Err(why) => {
            println!("cargo::warning=the native collector is left out: {why}");
            (Vec::new(), why)
        }
    };
    for (name, content) in [("native.so", bytes), ("native.why", why.into())] {
        if let Err(error) = fs::write(out.join(name), content) {
            println!("cargo::error=cannot write {name}: {error}");
        }
    }
}

/// Folders of the crates that the collector is built from.
struct Sources {
    inject: PathBuf,
    wire: PathBuf,
    /// Crates of a registry, whose folders have a version in their names and are not to be written to.
    packaged: bool,
}

impl Sources {
    fn beside(manifest: &Path) -> Self {
        let version = concat!("-", env!("CARGO_PKG_VERSION"));
        let packaged = manifest.join(format!("../roofgap-inject{version}")).is_dir();
        let end = if packaged { version } else { "" };
        let place = |name: &str| manifest.join(format!("../{name}{end}"));
        Self { inject: place("roofgap-inject"), wire: place("roofgap-wire"), packaged }
    }

    /// Copies crates of a registry, because cargo writes a Cargo.lock beside what it builds.
    fn copied(self, out: &Path) -> Result<Self, String> {
        if !self.packaged {
            return Ok(self);
        }
        let copy = |from: &Path, name: &str| {
            let to = out.join(name);
            copy_crate(from, &to).map_err(|e| format!("cannot copy {}: {e}", from.display()))?;
            Ok::<PathBuf, String>(to)
        };
        Ok(Self {
            inject: copy(&self.inject, "roofgap-inject")?,
            wire: copy(&self.wire, "roofgap-wire")?,
            packaged: true,
        })
    }
}

fn copy_crate(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_dir() {
            copy_crate(&path, &to.join(name))?;
        } else if name != "Cargo.lock" {
            fs::write(to.join(name), fs::read(path)?)?;
        }
    }
    Ok(())
}

/// Builds the native collector. A reason is only printed, so it stays text.
fn build(sources: &Sources, out: &Path) -> Result<Vec<u8>, String> {
    let get = |name: &str| env::var(name).unwrap_or_default();
    if get("CARGO_CFG_TARGET_OS") != "linux" {
        return Err("it runs on Linux only".into());
    }
    // OUT_DIR is <target>/[<triple>/]<profile>/build/<crate>/out.
    let folder = out.ancestors().nth(4).ok_or("an unusual build folder")?.join("native");
    let target = get("TARGET");
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.args(["build", "--release", "--offline", "--quiet", "--lib", "--target", &target]);
    if get("CARGO_CFG_TARGET_ENV") == "gnu" {
        cargo.args(["--features", "preload"]);
    }
    cargo.arg("--manifest-path").arg(sources.inject.join("Cargo.toml"));
    if sources.packaged {
        let wire = format!("patch.crates-io.roofgap-wire.path={:?}", sources.wire.display().to_string());
        cargo.args(["--config", &wire]);
    }
    cargo.arg("--target-dir").arg(&folder);
    // Linters and instrumented builds must not affect a library that runs inside other programs.
    for name in [
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTC_WRAPPER",
        "RUSTFLAGS",
        "CARGO_ENCODED_RUSTFLAGS",
        "CARGO_TARGET_DIR",
    ] {
        cargo.env_remove(name);
    }
    let done = cargo.output().map_err(|e| format!("cannot run cargo: {e}"))?;
    if !done.status.success() {
        let stderr = String::from_utf8_lossy(&done.stderr);
        let last: Vec<&str> = stderr.lines().rev().take(3).collect();
        return Err(format!("cargo ended with {}: {}", done.status, last.join(" | ")));
    }
    let library = folder.join(target).join("release/libroofgap_inject.so");
    fs::read(&library).map_err(|e| format!("cannot read {}: {e}", library.display()))
}
