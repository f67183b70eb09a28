//! Writes the vendor's entry for `vendors.toml`.

use std::fmt::Write;
use std::time::Duration;

use crate::config::Scope;
use crate::testing::VendorLimit;
use crate::testing::limit::{Refill, Rule};

/// The entry of vendor `name` at `base_url`, with the true limits.
pub(super) fn entry(name: &str, base_url: &str, limits: &[VendorLimit], endpoints: &[(String, String)]) -> String {
    let mut out = String::new();
    let vendor = format!("vendors.{}", key(name));
    let _ = writeln!(out, "[{vendor}]\nbase_url = {}\nauth = {{ scheme = \"bearer\" }}", quoted(base_url));
    for (place, limit) in limits.iter().enumerate().filter(|(_, limit)| limit.endpoint.is_none()) {
        write_limit(&mut out, &format!("{vendor}.limits"), place, limit);
    }
    for (endpoint, prefix) in endpoints {
        let table = format!("{vendor}.endpoints.{}", key(endpoint));
        let prefix = prefix.trim_end_matches('/');
        let root = if prefix.is_empty() { "/" } else { prefix };
        let below = format!("{prefix}/**");
        let _ = writeln!(out, "\n[{table}]\npaths = [{}, {}]", quoted(root), quoted(&below));
        let own = limits.iter().enumerate().filter(|(_, limit)| limit.endpoint.as_deref() == Some(endpoint));
        for (place, limit) in own {
            write_limit(&mut out, &format!("{table}.limits"), place, limit);
        }
    }
    out
}

fn write_limit(out: &mut String, table: &str, place: usize, limit: &VendorLimit) {
    let name = limit.name.as_deref().map_or_else(|| format!("limit-{place}"), str::to_owned);
    let scope = match limit.scope {
        Scope::Endpoint => "endpoint",
        Scope::Tenant => "tenant",
        Scope::Account => "account",
        Scope::Vendor => "vendor",
    };
    let _ = writeln!(out, "\n[[{table}]]\nname = {}\nscope = \"{scope}\"", quoted(&name));
    let mut rate = |algorithm: &str, limit: u32, window_ns: u64| {
        let _ = writeln!(out, "algorithm = \"{algorithm}\"\nlimit = {limit}\nwindow = \"{}\"", duration(window_ns));
    };
    match limit.rule {
        Rule::FixedWindow { limit, window_ns, .. } => rate("fixed_window", limit, window_ns),
        Rule::SlidingWindow { limit, window_ns, .. } => rate("sliding_window", limit, window_ns),
        Rule::SlidingCounter { limit, window_ns, .. } => rate("sliding_counter", limit, window_ns),
        // A bucket is configured by its size and the time that it takes to fill. Where that is no whole number of
        // intervals the time is rounded up, so that the configured bucket is never faster than the true one.
        Rule::TokenBucket { capacity, rate: units, per_ns, refill } => match refill {
            Refill::Steady => rate("token_bucket", capacity, fill_time(capacity, units, per_ns)),
            Refill::Lumps { interval_ns, .. } => {
                let interval_ns = interval_ns.max(1);
                let intervals = fill_time(capacity, units, per_ns).div_ceil(interval_ns);
                rate("token_bucket", capacity, intervals.saturating_mul(interval_ns));
                let _ = writeln!(out, "refill_interval = \"{}\"", duration(interval_ns));
            }
        },
        Rule::LeakyBucket { capacity, rate: units, per_ns } => {
            rate("leaky_bucket", capacity, fill_time(capacity, units, per_ns));
        }
        Rule::Concurrency { limit } => {
            let _ = writeln!(out, "concurrency = {limit}");
        }
    }
    if limit.units_each.is_none() && !matches!(limit.rule, Rule::Concurrency { .. }) {
        let _ = writeln!(out, "unit = \"points\"");
    }
}

fn fill_time(capacity: u32, rate: u32, per_ns: u64) -> u64 {
    let nanos = (u128::from(capacity) * u128::from(per_ns)).div_ceil(u128::from(rate.max(1)));
    u64::try_from(nanos).unwrap_or(u64::MAX)
}

fn duration(nanos: u64) -> String {
    let whole = Duration::from_nanos(nanos);
    match (whole.subsec_nanos(), whole.subsec_nanos() % 1_000_000) {
        (0, _) => format!("{}s", whole.as_secs()),
        (_, 0) => format!("{}ms", whole.as_millis()),
        _ => format!("{nanos}ns"),
    }
}

/// A TOML key: bare if that is valid, else quoted.
fn key(text: &str) -> String {
    let bare = !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if bare { text.to_owned() } else { quoted(text) }
}

/// A TOML basic string.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
