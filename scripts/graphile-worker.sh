#!/usr/bin/env bash
# Jobs a second of graphile-worker, for the bench `store`, which calls this.
#
#   scripts/graphile-worker.sh DATABASE_URL COUNT [PORT]
#
# Needs node (20 or later), npm and a connection to its registry, from which graphile-worker comes; it is kept in target/graphile.
# Prints the rate as the last line. The database must be empty.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly VERSION=0.18.0
folder=${CARGO_TARGET_DIR:-target}/graphile
mkdir -p "$folder"
if [[ ! -d $folder/node_modules/graphile-worker ]]; then
    (cd "$folder" && npm install --silent --no-audit --no-fund --no-save "graphile-worker@$VERSION") >&2
fi
cp benches/store/graphile.js "$folder/graphile.js"
export NO_LOG_SUCCESS=1
exec node "$folder/graphile.js" "$@"
