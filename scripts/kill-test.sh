#!/usr/bin/env bash
# Kills a session under the stand-ins at N moments (default 200): each time its bundle must be readable and no process left.
# usage: scripts/kill-test.sh [N]
set -eu
cd "$(dirname "$0")/.."
ROOFGAP_TEST_KILLS=${1:-200} cargo test -p roofgap --test cli -- --nocapture trust::a_kill_at_any_moment
