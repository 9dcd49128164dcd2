#!/usr/bin/env bash
# Builds the files of a release: the wheel, the binary in it, shell completions, the manual page, a bill of materials and checksums.
#
#   scripts/release.sh [DEST]       default: target/dist
#
# Needs cargo, python3 with venv, readelf, sha256sum and a network: maturin and zig, which links against an old glibc, go into
# a virtual environment. DEST/SHA256SUMS verifies the files: (cd DEST && sha256sum --check SHA256SUMS)
set -euo pipefail
cd "$(dirname "$0")/.."

glibc=2.28
target=$(rustc -vV | sed -n 's/^host: //p')
output=$(cargo metadata --format-version 1 --no-deps | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
dest=$(realpath -m "${1:-$output/dist}")
rm -rf "$dest"
mkdir -p "$dest/completions"

tools=$output/release-tools
python3 -m venv "$tools"
"$tools/bin/pip" install --quiet 'maturin>=1.9,<2' 'ziglang>=0.13'
PATH=$tools/bin:$PATH "$tools/bin/maturin" build --release --locked --zig --target "$target" --compatibility "manylinux_${glibc/./_}" --out "$dest"
wheel=$(ls "$dest"/*.whl)
python3 scripts/glibc.py --newest "$glibc" "$wheel"

# In an environment of its own, as a user installs it.
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
python3 -m venv "$fresh"
"$fresh/bin/pip" install --quiet --no-index "$wheel"
ROOFGAP_TEST_WHEEL=$fresh/bin/python python3 -B -m unittest discover --start-directory python/tests

binary=$fresh/bin/roofgap
install -m 755 "$binary" "$dest/roofgap"
for shell in bash elvish fish powershell zsh; do
    "$binary" completions "$shell" >"$dest/completions/roofgap.$shell"
done
"$binary" man >"$dest/roofgap.1"
cp LICENSE-APACHE LICENSE-MIT CHANGELOG.md "$dest/"
cargo metadata --format-version 1 --locked --filter-platform "$target" | python3 scripts/sbom.py >"$dest/sbom.cdx.json"

# Last, over all other files.
(
    cd "$dest"
    sums=$(find . -type f ! -name SHA256SUMS -print0 | LC_ALL=C sort -z | xargs -0 sha256sum)
    printf '%s\n' "$sums" >SHA256SUMS
    sha256sum --check --quiet SHA256SUMS
)
echo "$dest: $("$binary" --version), $(wc -l <"$dest/SHA256SUMS") files"
