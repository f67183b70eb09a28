//! `docs/METRICS.md` and `docs/grafana-dashboard.json` are made from the table of metrics. When the table has changed:
//! `UPDATE=1 cargo test --all-features --test suite metrics pages`.

use std::fmt::Write as _;
use std::path::Path;

use integration_client::metrics::{Kind, METRICS, Metric, Unit};
use serde_json::{Value, json};

use crate::support::tables::rows;

fn page() -> String {
    let mut page = "\
# Metrics

What a client exports with the feature `metrics`, by the facade of the crate [metrics](https://docs.rs/metrics). This page and the
[Grafana dashboard](grafana-dashboard.json) are generated from the table in `src/metrics/table.rs`.

- Install a recorder before the client is built. `cargo run --example prometheus --features metrics` shows how, for Prometheus.
- Counters and gauges are told once a second, histograms at once. A counter has no series before it counts.
- The dashboard wants histograms with buckets: `PrometheusBuilder::set_buckets`.
- `tenant` is one more label of every metric that has `vendor`, with `IntegrationClientBuilder::tenant_labels(max)`: the first `max` tenants by
  name, the others as `other`.

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

fn query(metric: &Metric) -> String {
    let (name, by) = (metric.name, metric.labels.join(", "));
    match (metric.kind, metric.labels) {
        (Kind::Counter, []) => format!("sum(rate({name}[5m]))"),
        (Kind::Counter, _) => format!("sum by ({by}) (rate({name}[5m]))"),
        (Kind::Histogram, _) => format!("histogram_quantile(0.95, sum by (le, vendor) (rate({name}_bucket[5m])))"),
        (_, []) => format!("max({name})"),
        // What is left, and how fast it goes, is the worst that anybody reports; all else adds up.
        (_, _) if metric.unit == Unit::Ratio => format!("min by ({by}) ({name})"),
        (_, _) if metric.unit == Unit::Seconds => format!("max by ({by}) ({name})"),
        _ => format!("sum by ({by}) ({name})"),
    }
}

fn panel(number: usize, metric: &Metric) -> Value {
    let title = metric.name.trim_start_matches("integration_client_").trim_end_matches("_total").replace('_', " ");
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
    json!({
        "id": number + 1,
        "type": "timeseries",
        "title": title,
        "description": metric.about,
        "datasource": { "type": "prometheus", "uid": "${datasource}" },
        "gridPos": { "h": 8, "w": 8, "x": number % 3 * 8, "y": number / 3 * 8 },
        "fieldConfig": { "defaults": { "unit": unit, "min": 0 }, "overrides": [] },
        "targets": [{ "refId": "A", "expr": query(metric), "legendFormat": legend.join(" ") }],
    })
}

fn dashboard() -> String {
    let panels: Vec<Value> = METRICS.iter().enumerate().map(|(number, metric)| panel(number, metric)).collect();
    let dashboard = json!({
        "title": "integration-client",
        "uid": "integration-client",
        "schemaVersion": 39,
        "editable": true,
        "refresh": "30s",
        "time": { "from": "now-1h", "to": "now" },
        "templating": { "list": [{ "name": "datasource", "type": "datasource", "query": "prometheus" }] },
        "panels": panels,
    });
    format!("{}\n", serde_json::to_string_pretty(&dashboard).unwrap())
}

#[test]
fn they_are_what_the_table_says() {
    for (name, text) in [("METRICS.md", page()), ("grafana-dashboard.json", dashboard())] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, text).unwrap();
        } else {
            let there = std::fs::read_to_string(&path).unwrap();
            assert!(
                there == text,
                "docs/{name} is out of date: UPDATE=1 cargo test --all-features --test suite metrics pages"
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
