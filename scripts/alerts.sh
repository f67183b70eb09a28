#!/usr/bin/env bash
# Checks the alert rules of docs/prometheus-alerts.yaml, and when they fire: fixtures/alerts/prometheus-alerts.test.yaml.
#
# Needs promtool, which comes with Prometheus (Debian's package prometheus).

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

command -v promtool >/dev/null 2>&1 || {
    echo "scripts/alerts.sh: promtool is missing: install Prometheus" >&2
    exit 1
}
promtool check rules docs/prometheus-alerts.yaml
promtool test rules fixtures/alerts/prometheus-alerts.test.yaml
