#!/usr/bin/env bash
# Unpacks a real nsys (2023.4.4) into a folder, for tests on machines without one. It installs no package and needs no GPU.
# This nsys records NVTX and operating-system calls, exports and summarises. Downloads about 190 MB and keeps 650 MB.
#
#   scripts/get-nsys.sh DEST        then: DEST/bin/nsys, or: export ROOFGAP_TEST_NSYS=DEST/bin/nsys
#
# Needs Debian or a derivative: the packages come from the mirror that apt is configured with. Does nothing if nsys is already there.
set -euo pipefail

say() { printf '%s\n' "get-nsys: $*" >&2; }
fail() { say "$*"; exit 1; }

[ $# -eq 1 ] || fail "usage: get-nsys.sh DEST"
case $1 in *[[:space:]]*) fail "nsys cannot start its agent from a path with a space in it: $1" ;; esac
mkdir -p "$1"
dest=$(cd "$1" && pwd)
nsys=$dest/bin/nsys
host=$dest/host-linux-x64

works() { "$nsys" --version >/dev/null 2>&1 && "$host/QdstrmImporter" --version >/dev/null 2>&1; }
if works; then
    say "$nsys is already installed: $("$nsys" --version)"
    exit 0
fi

[ "$(uname -m)" = x86_64 ] || fail "the packages exist for x86_64 only; this is $(uname -m)"
for tool in apt-get curl dpkg ldd; do
    command -v "$tool" >/dev/null || fail "$tool is missing"
done

release=2023.4.4.54~12.4.1-2
pool=pool/non-free/n/nvidia-cuda-toolkit
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# The first apt mirror with the Debian archive.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | sort -u | grep -m1 '/debian/\?$') ||
    fail "apt has no Debian mirror"

for package in nsight-systems nsight-systems-target; do
    say "fetching $package $release"
    curl --silent --show-error --fail --location --retry 3 --remote-name "${mirror%/}/$pool/${package}_${release}_amd64.deb"
    dpkg -x "${package}_${release}_amd64.deb" unpacked
done

# nsys looks for its importer in a folder next to its own; the packages have the two in different places.
rm -rf "$dest/target-linux-x64" "$host"
cp -a unpacked/usr/lib/x86_64-linux-gnu/nsight-systems/target-linux-x64 "$dest/"
cp -a unpacked/usr/lib/nsight-systems/host-linux-x64 "$dest/"
mkdir -p "$dest/bin"
ln -sfn ../target-linux-x64/nsys "$nsys"
# The reports of `nsys stats` need a module that is only in the other folder.
cp -an "$dest/target-linux-x64/python/lib/." "$host/python/lib/" || true

# Libraries that the importer is linked with: the machine may lack them or have newer ones.
fetch_library() { # PACKAGE FILE
    apt-get download -qq "$1" 2>/dev/null || fail "apt cannot fetch $1; try apt-get update"
    dpkg -x "$1"_*.deb libraries
    rm -f "$host/$2"
    cp -L "$(find libraries -name "$2" | head -n 1)" "$host/$2"
}
apt-get update -qq 2>/dev/null || say "apt-get update failed; trying the cached package lists"
fetch_library libssh-4 libssh.so.4
fetch_library libpfm4 libpfm.so.4
ln -sfn libssh.so.4 "$host/libssh.so"
for pair in libdw1:libdw.so.1 libelf1:libelf.so.1 libbz2-1.0:libbz2.so.1.0 liblzma5:liblzma.so.5; do
    library=${pair#*:}
    if LD_LIBRARY_PATH=$host ldd "$host/QdstrmImporter" 2>/dev/null | grep -q "$library => not found"; then
        fetch_library "${pair%%:*}" "$library"
    fi
done

works || fail "unpacked, but it does not start: $("$host/QdstrmImporter" --version 2>&1 | head -n 3)"
say "ready: $("$nsys" --version)"
