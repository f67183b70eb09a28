//! `docs/METRICS.md` and `docs/grafana-dashboard.json` are made from the table of metrics. After a change of the table,
//! make them with `UPDATE=1 cargo test --all-features -p suite metrics::pages`.

use std::fmt::Write as _;

use integration_client::metrics::{Kind, METRICS, Metric, Unit};
use serde_json::{Value, json};

use crate::support::repository;
use crate::support::tables::rows;

fn page() -> String {
    let mut page = "\
# Metrics

A client with the feature `metrics` exports these metrics through the facade of the crate [metrics](https://docs.rs/metrics). This
page and the [Grafana dashboard](grafana-dashboard.json) are generated from the table in `src/telemetry/metrics/table.rs`.

- Install a recorder before the client is built. `cargo run --example prometheus --features metrics` shows how, for Prometheus.
- Counters and gauges are exported once a second, histograms at once. The series of a vendor begin with its first request, so a
  scrape may see a counter for the first time with a value above zero.
- [prometheus-alerts.yaml](prometheus-alerts.yaml) holds alert rules, and [RUNBOOK.md](RUNBOOK.md) what to do about each.
- The dashboard needs histograms with buckets: `PrometheusBuilder::set_buckets`.
- With `IntegrationClientBuilder::tenant_labels(max)` every metric that has the label `vendor` also has `tenant`: the names of the
  first `max` tenants, and `other` for all others.

| metric | kind | unit | labels | what it says |
|---|---|---|---|---|
"
    .to_owned();
    for Metric { name, kind, unit, labels, about, .. } in METRICS {
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        let (kind, unit, labels) = (kind.as_str(), unit.as_str(), labels.join(", "));
        writeln!(page, "| `{name}` | {kind} | {unit} | {labels} | {about} |").unwrap();
    }
    page
}

/// The rows of the dashboard, each with prefixes of its metrics' names, without `integration_client_`.
const ROWS: &[(&str, &[&str])] = &[
    (
        "Requests",
        &["requests_total", "attempts", "http_client", "refusals", "dead_letters", "requests_per", "response"],
    ),
    ("Limits", &["headroom", "throttle", "pauses", "paused", "wait_", "queue_depth", "in_flight", "permits"]),
    ("Backlog", &["outbox", "intake"]),
    ("Store and sharing", &["store", "sharing"]),
    ("Gateway", &["gateway"]),
    ("Hosts and configuration", &["hosts", "breaker", "config", "events", "cleanups", "tenants"]),
];

fn short(metric: &Metric) -> &str {
    metric.name.trim_start_matches("integration_client_")
}

fn query(metric: &Metric) -> String {
    let by = metric.labels.join(", ");
    let filter = if metric.labels.contains(&"vendor") { "{vendor=~\"$vendor\",tenant=~\"$tenant\"}" } else { "" };
    let name = format!("{}{filter}", metric.name);
    match (metric.kind, metric.labels) {
        (Kind::Counter, []) => format!("sum(rate({name}[5m]))"),
        (Kind::Counter, _) => format!("sum by ({by}) (rate({name}[5m]))"),
        (Kind::Histogram, _) => {
            let bucket = format!("{}_bucket{filter}", metric.name);
            format!("histogram_quantile(0.95, sum by (le, vendor) (rate({bucket}[5m])))")
        }
        // All processes count in the same store, so their values are not added up, and the worst counts for
        // writability.
        (_, []) if metric.name.ends_with("_writable") => format!("min({name})"),
        (_, []) => format!("max({name})"),
        (_, _) if short(metric) == "outbox_waiting" => format!("max by ({by}) ({name})"),
        // For ratios and times the worst value of all processes counts; all other values are added up.
        (_, _) if metric.unit == Unit::Ratio => format!("min by ({by}) ({name})"),
        (_, _) if metric.unit == Unit::Seconds => format!("max by ({by}) ({name})"),
        _ => format!("sum by ({by}) ({name})"),
    }
}

/// The values from which on a panel is amber or red, which are those of the alert rules.
fn thresholds(metric: &Metric) -> Value {
    let steps = |steps: &[(Option<f64>, &str)]| {
        let steps: Vec<Value> = steps.iter().map(|(value, color)| json!({ "value": value, "color": color })).collect();
        json!({ "mode": "absolute", "steps": steps })
    };
    match short(metric) {
        "headroom_ratio" | "headroom_average_ratio" => {
            steps(&[(None, "red"), (Some(0.1), "orange"), (Some(0.2), "green")])
        }
        "refusals_total"
        | "dead_letters_total"
        | "config_problem"
        | "events_missed_total"
        | "outbox_letters_dropped_total"
        | "store_failures_total"
        | "sharing_failures_total"
        | "sharing_degraded" => steps(&[(None, "green"), (Some(0.000_001), "red")]),
        "store_writable" => steps(&[(None, "red"), (Some(1.0), "green")]),
        "outbox_oldest_seconds" | "outbox_oldest_reply_seconds" => {
            steps(&[(None, "green"), (Some(300.0), "orange"), (Some(900.0), "red")])
        }
        _ => steps(&[(None, "green")]),
    }
}

fn panel(id: usize, place: usize, top: usize, metric: &Metric) -> Value {
    let title = short(metric).trim_end_matches("_total").replace('_', " ");
    let unit = match (metric.kind, metric.unit) {
        (Kind::Counter, _) | (_, Unit::PerSecond) => "reqps",
        (_, Unit::Seconds) => "s",
        (_, Unit::Ratio) => "percentunit",
        _ => "short",
    };
    let legend: Vec<String> = match metric.kind {
        Kind::Histogram => vec!["{{vendor}} p95".to_owned()],
        _ => metric.labels.iter().map(|label| format!("{{{{{label}}}}}")).collect(),
    };
    let defaults = json!({
        "unit": unit,
        "min": 0,
        "thresholds": thresholds(metric),
        "custom": { "thresholdsStyle": { "mode": "line" } },
    });
    json!({
        "id": id,
        "type": "timeseries",
        "title": title,
        "description": metric.about,
        "datasource": { "type": "prometheus", "uid": "${datasource}" },
        "gridPos": { "h": 8, "w": 8, "x": place % 3 * 8, "y": top + place / 3 * 8 },
        "fieldConfig": { "defaults": defaults, "overrides": [] },
        "targets": [{ "refId": "A", "expr": query(metric), "legendFormat": legend.join(" ") }],
    })
}

fn variable(name: &str) -> Value {
    let query = format!("label_values(integration_client_refusals_total, {name})");
    json!({
        "name": name,
        "type": "query",
        "datasource": { "type": "prometheus", "uid": "${datasource}" },
        "query": { "query": query, "refId": name },
        "refresh": 2,
        "multi": true,
        "includeAll": true,
        // Matches series without the label too.
        "allValue": ".*",
        "current": { "text": "All", "value": "$__all" },
    })
}

fn dashboard() -> String {
    let (mut panels, mut top) = (Vec::new(), 0);
    for (title, begins) in ROWS {
        panels.push(json!({
            "id": panels.len() + 1,
            "type": "row",
            "title": title,
            "collapsed": false,
            "gridPos": { "h": 1, "w": 24, "x": 0, "y": top },
            "panels": [],
        }));
        let own = METRICS.iter().filter(|metric| begins.iter().any(|begin| short(metric).starts_with(begin)));
        let before = panels.len();
        panels.extend(own.enumerate().map(|(place, metric)| panel(before + place + 1, place, top + 1, metric)));
        top += 1 + (panels.len() - before).div_ceil(3) * 8;
    }
    assert_eq!(panels.len(), METRICS.len() + ROWS.len(), "each metric belongs to one row");
    let dashboard = json!({
        "title": "integration-client",
        "uid": "integration-client",
        "schemaVersion": 39,
        "editable": true,
        "refresh": "30s",
        "time": { "from": "now-1h", "to": "now" },
        "templating": { "list": [
            { "name": "datasource", "type": "datasource", "query": "prometheus" },
            variable("vendor"),
            variable("tenant"),
        ] },
        "panels": panels,
    });
    format!("{}\n", serde_json::to_string_pretty(&dashboard).unwrap())
}

/// The names of all metrics in a text.
fn named(text: &str) -> Vec<&str> {
    let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
    let is_metric = |word: &&str| word.starts_with("integration_client_") || word.starts_with("http_client_");
    words.filter(is_metric).map(|word| word.trim_end_matches("_bucket")).collect()
}

#[test]
fn alert_rules_name_existing_metrics() {
    let rules = include_str!("../../../docs/prometheus-alerts.yaml");
    let runbook = include_str!("../../../docs/RUNBOOK.md");
    let alerts: Vec<&str> = rules.split("- alert: ").skip(1).collect();
    assert!(alerts.len() >= 8, "{}", alerts.len());
    for alert in alerts {
        let name = alert.lines().next().unwrap().trim();
        for part in ["expr:", "severity:", "summary:", "runbook:"] {
            assert!(alert.contains(part), "{name} has no {part}");
        }
        assert!(!named(alert).is_empty(), "{name} asks for no metric");
        for metric in named(alert) {
            assert!(METRICS.iter().any(|known| known.name == metric), "{name} asks for {metric}");
        }
        let anchor = format!("RUNBOOK.md#{}", name.to_lowercase());
        assert!(alert.contains(&anchor), "{name} leads to no paragraph: {anchor}");
        let paragraph =
            runbook.split(&format!("\n## {name}\n")).nth(1).unwrap_or_else(|| panic!("{name} is not in RUNBOOK.md"));
        let paragraph = paragraph.split("\n## ").next().unwrap();
        assert!(paragraph.split_whitespace().count() > 40, "{name} has no more than a word in RUNBOOK.md");
    }
    for metric in named(runbook) {
        assert!(METRICS.iter().any(|known| known.name == metric), "RUNBOOK.md names {metric}");
    }
}

#[test]
fn metrics_page_matches_the_table() {
    for (name, text) in [("METRICS.md", page()), ("grafana-dashboard.json", dashboard())] {
        let path = repository().join("docs").join(name);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, text).unwrap();
        } else {
            let there = std::fs::read_to_string(&path).unwrap();
            assert!(
                there == text,
                "docs/{name} is out of date: UPDATE=1 cargo test --all-features -p suite metrics::pages"
            );
        }
    }
}

#[test]
fn names_follow_the_customs_of_prometheus() {
    for Metric { name, kind, unit, labels, .. } in METRICS {
        assert_eq!(name.ends_with("_total"), *kind == Kind::Counter, "{name}");
        assert_eq!(name.ends_with("_ratio"), *unit == Unit::Ratio, "{name}");
        assert_eq!(name.ends_with("_seconds"), *unit == Unit::Seconds, "{name}");
        let words = [name].into_iter().chain(*labels);
        assert!(words.flat_map(|word| word.chars()).all(|char| char.is_ascii_lowercase() || char == '_'), "{name}");
    }
}

#[test]
fn rate_limits_page_names_existing_metrics() {
    for row in rows(include_str!("../../../docs/RATE_LIMITS.md"), "metric | kind | labels") {
        let metric = METRICS.iter().find(|metric| metric.name == row[0]).unwrap_or_else(|| panic!("{row:?}"));
        assert_eq!((metric.kind.as_str(), &*metric.labels.join(", ")), (&*row[1], &*row[2]), "{row:?}");
    }
}
