#!/usr/bin/env bash
# Makes the picture of the console in the README from the running program: it is what the browser's test has seen.
#
#   scripts/console-picture.sh
#
# Needs what the tests of the console need: chromium, chromium-driver, and IC_AXE or npm (see scripts/test.sh).

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cargo test --locked --all-features -p suite --test suite operator_finds_a_lane_among_ten_thousand
mkdir -p docs/images
cp target/tmp/console/lanes-light.png docs/images/console.png
