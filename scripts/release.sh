#!/usr/bin/env bash
# Builds the files of a release: for each target a wheel, an archive of the program with completions and the manual page, and a bill of
# materials; and checksums of all.
#
#   scripts/release.sh [DEST [TARGET...]]      default: target/dist, for x86_64 and aarch64 Linux
#
# Needs cargo, python3 with venv, readelf, sha256sum and a network: maturin and zig, which links against an old glibc, go into
# a virtual environment. A target other than that of this machine needs its standard library (`rustup target add TARGET`); without
# it the target is left out, unless it is named. DEST/SHA256SUMS verifies the files: (cd DEST && sha256sum --check SHA256SUMS)
set -euo pipefail
cd "$(dirname "$0")/.."

glibc=2.17
features=mcp,parquet,serve,stacks
host=$(rustc -vV | sed -n 's/^host: //p')
metadata=$(cargo metadata --format-version 1 --no-deps)
read -r version output < <(python3 -c '
import json, sys
data = json.load(sys.stdin)
print(next(p["version"] for p in data["packages"] if p["name"] == "roofgap"), data["target_directory"])' <<<"$metadata")
dest=$(realpath -m "${1:-$output/dist}")
named=("${@:2}")
wanted=(x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu)
if [ ${#named[@]} -gt 0 ]; then wanted=("${named[@]}"); fi

# The target of this machine is first: its program writes the completions and the manual page of all.
targets=("$host")
for target in "${wanted[@]}"; do
    if [ "$target" = "$host" ]; then
        continue
    elif [ -d "$(rustc --print sysroot)/lib/rustlib/$target/lib" ]; then
        targets+=("$target")
    elif [ ${#named[@]} -gt 0 ]; then
        echo "no standard library for $target; rustup target add $target" >&2
        exit 1
    else
        echo "LEFT OUT: $target: no standard library for it; rustup target add $target" >&2
    fi
done

# Only what an earlier run made is replaced: the files that its checksums name.
earlier='^[0-9a-f]{64} [ *]roofgap-[^/]+$'
if [ -e "$dest" ]; then
    others=$(
        cd "$dest"
        shopt -s nullglob dotglob
        if [ -f SHA256SUMS ] && ! grep -qvE "$earlier" SHA256SUMS; then sums=$(cut -c 67- SHA256SUMS && echo SHA256SUMS); else sums=; fi
        for file in *; do grep -qxF -- "$file" <<<"$sums" || echo "$file"; done
    )
    if [ -n "$others" ]; then
        echo "$dest: has files that are not of a release: $(head -n 3 <<<"$others" | paste -sd ' ')" >&2
        exit 1
    fi
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
made=$scratch/dist
mkdir -p "$made" "$scratch/common/completions"

tools=$output/release-tools
python3 -m venv "$tools"
"$tools/bin/pip" install --quiet 'maturin>=1.9,<2' 'ziglang>=0.13'

for target in "${targets[@]}"; do
    echo "==> $target"
    # maturin passes the linker on, so the native collector inside the program is linked for the same glibc.
    PATH=$tools/bin:$PATH "$tools/bin/maturin" build --profile dist --locked --features "$features" --zig --target "$target" \
        --compatibility "manylinux_${glibc/./_}" --out "$scratch/$target"
    wheel=$(ls "$scratch/$target"/*.whl)
    python3 scripts/glibc.py --newest "$glibc" --parts 2 "$wheel"

    folder=roofgap-$version-$target
    mkdir "$scratch/$folder"
    python3 -c '
import sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
name = next(name for name in wheel.namelist() if name.endswith(".data/scripts/roofgap"))
open(sys.argv[2], "wb").write(wheel.read(name))' "$wheel" "$scratch/$folder/roofgap"
    chmod 755 "$scratch/$folder/roofgap"

    if [ "$target" = "$host" ]; then
        # In an environment of its own, as a user installs it.
        python3 -m venv "$scratch/fresh"
        "$scratch/fresh/bin/pip" install --quiet --no-index "$wheel"
        ROOFGAP_TEST_WHEEL=$scratch/fresh/bin/python python3 -B -m unittest discover --start-directory python/tests
        program=$scratch/fresh/bin/roofgap
        "$program" demo --no-browser --out "$scratch/demo" >"$scratch/demo.txt"
        "$program" serve --help >/dev/null
        "$program" mcp --help >/dev/null
        # The commands that write them are a feature of their own, which no program of a release has.
        cargo build --quiet --locked -p roofgap --features "$features,manual"
        manual=$output/debug/roofgap
        for shell in bash elvish fish powershell zsh; do
            "$manual" completions "$shell" >"$scratch/common/completions/roofgap.$shell"
        done
        "$manual" man >"$scratch/common/roofgap.1"
        cp LICENSE-APACHE LICENSE-MIT CHANGELOG.md "$scratch/common/"
    else
        echo "NOT RUN: $(basename "$wheel"): not the architecture of this machine"
    fi

    cp -r "$scratch/common/." "$scratch/$folder/"
    # The same sources give the same archive.
    tar --create --directory "$scratch" --format=gnu --sort=name --owner=0 --group=0 --numeric-owner --mode='u+rwX,go+rX,go-w' \
        --mtime="@${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}" "$folder" | gzip --no-name >"$made/$folder.tar.gz"
    cargo metadata --format-version 1 --locked --manifest-path crates/roofgap/Cargo.toml --features "$features" \
        --filter-platform "$target" | python3 scripts/sbom.py >"$made/$folder.cdx.json"
    mv "$wheel" "$made/"
done

# Last, over all other files.
(
    cd "$made"
    sums=$(find . -type f ! -name SHA256SUMS -printf '%P\0' | LC_ALL=C sort -z | xargs -0 sha256sum)
    printf '%s\n' "$sums" >SHA256SUMS
)
mkdir -p "$dest"
if [ -f "$dest/SHA256SUMS" ]; then (cd "$dest" && cut -c 67- SHA256SUMS | xargs -d '\n' rm -f --); fi
# The checksums come first: if this is interrupted, the next run knows the files.
mv -f "$made/SHA256SUMS" "$dest/"
mv "$made"/* "$dest/"
(cd "$dest" && sha256sum --check --quiet SHA256SUMS)
echo "$dest: $("$program" --version), $(wc -l <"$dest/SHA256SUMS") files"
