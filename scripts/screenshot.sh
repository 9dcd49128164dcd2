#!/usr/bin/env bash
# Takes the picture of the page in the README: docs/report.png, the page of `roofgap demo`. Needs chromium.
#
#   scripts/screenshot.sh [ROOFGAP]     default: roofgap on the PATH
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${1:-roofgap}" demo --quiet --no-browser --out "$folder" >/dev/null
for name in "${CHROMIUM:-}" chromium chromium-browser google-chrome; do
    if [ -n "$name" ] && browser=$(command -v "$name"); then break; fi
done
[ -n "${browser:-}" ] || { echo "chromium is not installed" >&2; exit 1; }
"$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --force-device-scale-factor=1 --window-size=1200,1040 \
    --virtual-time-budget=4000 --screenshot="$folder/report.png" "file://$folder/report.html" >/dev/null 2>&1
size=$(stat --format %s "$folder/report.png")
[ "$size" -lt 204800 ] || { echo "the picture has $size bytes; 200 KiB is the most" >&2; exit 1; }
mv "$folder/report.png" docs/report.png
echo "docs/report.png: $size bytes"
