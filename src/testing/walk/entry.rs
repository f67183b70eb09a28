//! Changes to a vendor's entry that make it one that virtual time can afford.

use crate::config::Algorithm;

/// The smallest scaled figure, so that the cost of a request still fits.
pub(super) const LEAST: u64 = 40;
/// What a request costs of a kind of points that it costs more of by the catalogue.
pub(super) const SMALL_COST: u32 = 2;

/// Calendars of other limits than the walked one are walked as windows that roll: a day's quota that is used up at its beginning would
/// leave nothing to see of a limit of minutes. So are months, because the simulated vendor's windows are all of one length.
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
            }
            table.iter_mut().for_each(|(_, value)| without_calendars(value, walked));
        }
        toml::Value::Array(values) => values.iter_mut().for_each(|value| without_calendars(value, walked)),
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

/// Lowers what requests cost of one kind of points, and all limits that count it with it: as many requests fit, and the
/// walk needs fewer of them to come near a limit of millions.
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
