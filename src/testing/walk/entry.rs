//! Changes a vendor's entry so that its walk in virtual time does not take too many requests.

use std::time::Duration;

use crate::config::{Algorithm, parse_duration};

/// The smallest figure that a limit is scaled to, so that the cost of a request still fits.
pub(super) const LEAST: u64 = 40;
/// The cost of a request in a kind of points in which it costs more by the catalogue.
pub(super) const SMALL_COST: u32 = 2;

/// How much larger a quota is that would hide another limit while that one is walked.
const OUT_OF_THE_WAY: i64 = 50;
/// A quota hides a limit whose window is shorter than its own by at least this factor: it is used up before the walk ends.
const HIDES: u32 = 20;

/// Replaces the calendar of every limit except `walked` by a window of fixed length, and raises its figure: a daily quota
/// that is used up at the start of the day would hide a limit of minutes, and the client does not know when a window
/// without its calendar begins. Replaces a monthly calendar always, because all windows of the simulated vendor have the
/// same length.
pub(super) fn without_calendars(entry: &mut toml::Value, walked: Option<&str>) {
    match entry {
        toml::Value::Table(table) => {
            let is_walked = walked.is_some() && table.get("name").and_then(toml::Value::as_str) == walked;
            let resets = table.get("resets").and_then(toml::Value::as_str).map(str::to_owned);
            if let Some(resets) = resets
                && (!is_walked || resets.starts_with("monthly"))
            {
                let window = match resets.split(' ').next() {
                    Some("hourly") => "1h",
                    Some("weekly") => "7d",
                    Some("monthly") => "31d",
                    _ => "24h",
                };
                table.remove("resets");
                table.insert("window".to_owned(), window.into());
                table.insert("algorithm".to_owned(), Algorithm::FixedWindow.name().into());
                if let Some(toml::Value::Integer(figure)) = table.get_mut("limit").filter(|_| !is_walked) {
                    *figure = figure.saturating_mul(OUT_OF_THE_WAY);
                }
            }
            table.iter_mut().for_each(|(_, value)| without_calendars(value, walked));
        }
        toml::Value::Array(values) => values.iter_mut().for_each(|value| without_calendars(value, walked)),
        _ => {}
    }
}

/// Raises the figures of quotas whose windows are so much longer than that of the walked limit that they would be used up
/// before the walk ends, and hide the walked limit for the rest of it.
pub(super) fn without_long_quotas(entry: &mut toml::Value, walked: &str, window: Duration) {
    match entry {
        toml::Value::Table(table) => {
            let is_walked = table.get("name").and_then(toml::Value::as_str) == Some(walked);
            let own = table.get("window").and_then(toml::Value::as_str).and_then(|text| parse_duration(text).ok());
            if let Some(toml::Value::Integer(figure)) = table.get_mut("limit")
                && !is_walked
                && own.is_some_and(|own| own >= window * HIDES)
            {
                *figure = figure.saturating_mul(OUT_OF_THE_WAY);
            }
            let others = table.iter_mut().filter(|(key, _)| *key != "dialect");
            others.for_each(|(_, value)| without_long_quotas(value, walked, window));
        }
        toml::Value::Array(values) => values.iter_mut().for_each(|value| without_long_quotas(value, walked, window)),
        _ => {}
    }
}

/// Scales every `limit` in the entry that `is_meant` selects.
pub(super) fn scale(entry: &mut toml::Value, to: u64, of: u64, is_meant: &dyn Fn(&toml::Table) -> bool) {
    match entry {
        toml::Value::Table(table) => {
            let scales = is_meant(table);
            for (key, value) in table.iter_mut() {
                match value {
                    // The `limit` of a dialect is not a limit of the vendor.
                    _ if key == "dialect" => {}
                    toml::Value::Integer(figure) if scales && (key == "limit" || key == "concurrency") => {
                        let whole = u64::try_from(*figure).unwrap_or(1);
                        let scaled = whole.saturating_mul(to).div_ceil(of).max(whole.min(if key == "limit" {
                            LEAST
                        } else {
                            1
                        }));
                        *figure = i64::try_from(scaled).unwrap_or(i64::MAX);
                    }
                    value => scale(value, to, of, is_meant),
                }
            }
        }
        toml::Value::Array(values) => values.iter_mut().for_each(|value| scale(value, to, of, is_meant)),
        _ => {}
    }
}

pub(super) fn small_figure(figure: u64, cost: u32) -> u64 {
    (figure.saturating_mul(SMALL_COST.into()) / u64::from(cost)).max(1)
}

/// Lowers the cost of requests in one kind of points, and in proportion all limits that count this kind. As many
/// requests fit as before, and the walk needs fewer of them to come near a limit of millions.
pub(super) fn with_small_cost(entry: &mut toml::Value, kind: &str, cost: u32) {
    match entry {
        toml::Value::Table(table) => {
            if table.get("unit").and_then(toml::Value::as_str) == Some(kind) {
                table.remove("largest_request");
                for key in ["limit", "burst"] {
                    if let Some(toml::Value::Integer(figure)) = table.get_mut(key) {
                        let whole = u64::try_from(*figure).unwrap_or(1);
                        *figure = small_figure(whole, cost).try_into().unwrap_or(i64::MAX);
                    }
                }
            }
            if let Some(toml::Value::Integer(own)) = table.get_mut("costs").and_then(|costs| costs.get_mut(kind)) {
                *own = SMALL_COST.into();
            }
            let others = table.iter_mut().filter(|(key, _)| *key != "dialect");
            others.for_each(|(_, value)| with_small_cost(value, kind, cost));
        }
        toml::Value::Array(values) => values.iter_mut().for_each(|value| with_small_cost(value, kind, cost)),
        _ => {}
    }
}
