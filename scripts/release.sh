#!/usr/bin/env bash
# Builds the files of a release: the binary, shell completions, the manual page, a bill of materials and checksums.
#
#   scripts/release.sh [DEST]       default: target/dist
#
# Needs cargo, python3 and sha256sum. DEST/SHA256SUMS verifies the files: (cd DEST && sha256sum --check SHA256SUMS)
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(rustc -vV | sed -n 's/^host: //p')
output=$(cargo metadata --format-version 1 --no-deps | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
dest=${1:-$output/dist}
mkdir -p "$dest/completions"

cargo build --release --locked -p roofgap
binary=$output/release/roofgap
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
