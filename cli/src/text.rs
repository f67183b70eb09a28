//! Formats limits, durations and numbers, the same in every command.

use std::time::Duration;

use integration_client::config::{AuthScheme, Costs, Endpoint, Limit, LimitKind, Unit, Vendor};

/// A window as the configuration would write it: `10s`, `1m`, `24h`, `30d`.
pub(crate) fn window(duration: Duration) -> String {
    const DAY: u64 = 86_400;
    if duration.subsec_nanos() != 0 {
        let nanos = duration.as_nanos();
        return match nanos {
            _ if nanos.is_multiple_of(1_000_000) => format!("{}ms", nanos / 1_000_000),
            _ if nanos.is_multiple_of(1_000) => format!("{}us", nanos / 1_000),
            _ => format!("{nanos}ns"),
        };
    }
    match duration.as_secs() {
        seconds if seconds > DAY && seconds.is_multiple_of(DAY) => format!("{}d", seconds / DAY),
        seconds if seconds > 0 && seconds.is_multiple_of(3600) => format!("{}h", seconds / 3600),
        seconds if seconds > 0 && seconds.is_multiple_of(60) => format!("{}m", seconds / 60),
        seconds => format!("{seconds}s"),
    }
}

/// A time until something: `350ms`, `12.5s`, `51m 40s`, `3d 2h`.
pub(crate) fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 if duration.is_zero() => "0s".to_owned(),
        0 if duration.subsec_nanos().is_multiple_of(1_000_000) => format!("{}ms", duration.subsec_millis()),
        0..60 => format!("{}s", decimal(duration)),
        60..3600 => two((seconds / 60, 'm'), (seconds % 60, 's')),
        3600..86_400 => two((seconds / 3600, 'h'), (seconds % 3600 / 60, 'm')),
        _ => two((seconds / 86_400, 'd'), (seconds % 86_400 / 3600, 'h')),
    }
}

fn two(large: (u64, char), small: (u64, char)) -> String {
    match small.0 {
        0 => format!("{}{}", large.0, large.1),
        _ => format!("{}{} {}{}", large.0, large.1, small.0, small.1),
    }
}

/// Seconds as an exact decimal number: `1`, `58.37`.
pub(crate) fn decimal(duration: Duration) -> String {
    let text = format!("{}.{:09}", duration.as_secs(), duration.subsec_nanos());
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// What a limit allows: `5,000 in 1h`, `100 points in 20s`, `10,000 daily America/Los_Angeles`, `10 at once`.
pub(crate) fn allows(limit: &Limit) -> String {
    match &limit.kind {
        LimitKind::Rate(rate) => {
            let units = match &rate.unit {
                Unit::Cost(kind) => format!(" {kind}"),
                Unit::RequestBytes => " bytes sent".to_owned(),
                Unit::ResponseBytes => " bytes received".to_owned(),
                Unit::Bytes => " bytes".to_owned(),
                _ => String::new(),
            };
            let window = match &rate.resets {
                None => format!("in {}", window(rate.window)),
                Some(resets) => resets.to_string(),
            };
            format!("{}{units} {window}", thousands(rate.limit))
        }
        LimitKind::Concurrency { limit } => format!("{} at once", thousands(*limit)),
        _ => "-".to_owned(),
    }
}

/// The cost of a request that states none: `1,000 input_tokens, 500 output_tokens`. `None` if it is one point.
pub(crate) fn usual_costs(costs: &Costs) -> Option<String> {
    let known = costs.iter().filter(|(kind, units)| *kind != "points" || *units > 1);
    let known: Vec<String> = known.map(|(kind, units)| format!("{} {kind}", thousands(units))).collect();
    (!known.is_empty()).then(|| known.join(", "))
}

/// The algorithm by which the vendor counts a limit.
pub(crate) fn algorithm(limit: &Limit) -> &'static str {
    match &limit.kind {
        LimitKind::Rate(rate) => rate.algorithm.name(),
        LimitKind::Concurrency { .. } => "concurrency",
        _ => "-",
    }
}

/// A number with separators: `1,234,567`.
pub(crate) fn thousands(number: u32) -> String {
    thousands64(number.into())
}

/// A 64-bit number with separators: `1,234,567`.
pub(crate) fn thousands64(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// The place of the credential in requests: `bearer`, `header NAME`, `query NAME=…`.
pub(crate) fn auth(scheme: &AuthScheme) -> String {
    match scheme {
        AuthScheme::None => "none".to_owned(),
        AuthScheme::Bearer => "bearer".to_owned(),
        AuthScheme::Basic => "basic".to_owned(),
        AuthScheme::Header { name, prefix } if prefix.is_empty() => format!("header {name}"),
        AuthScheme::Header { name, prefix } => format!("header {name}: {prefix}…"),
        AuthScheme::Query { name } => format!("query {name}=…"),
        _ => "-".to_owned(),
    }
}

/// Every limit of a vendor, with its endpoint if it is the limit of one.
pub(crate) fn limits(vendor: &Vendor) -> impl Iterator<Item = (Option<&Endpoint>, &Limit)> {
    let own = vendor.limits.iter().map(|limit| (None, limit));
    own.chain(
        vendor.endpoints.iter().flat_map(|endpoint| endpoint.limits.iter().map(move |limit| (Some(endpoint), limit))),
    )
}

/// The name of a limit: `minute`, or `search / daily` for a limit of an endpoint. If both names are the same, only one
/// is shown.
pub(crate) fn name(endpoint: Option<&Endpoint>, limit: &Limit) -> String {
    match endpoint {
        Some(endpoint) if endpoint.name != limit.name => format!("{} / {}", endpoint.name, limit.name),
        _ => limit.name.to_string(),
    }
}

/// Parses a duration that a user typed, like `100ms` or `2s`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let span: Option<jiff::SignedDuration> = text.parse().ok();
    span.and_then(|span| Duration::try_from(span).ok()).ok_or_else(|| "write for example 100ms or 2s".to_owned())
}

/// A number with its noun: `no vendors`, `1 vendor`, `3 vendors`.
pub(crate) fn count(number: usize, what: &str) -> String {
    match number {
        0 => format!("no {what}s"),
        1 => format!("1 {what}"),
        _ => format!("{number} {what}s"),
    }
}

/// A text as one word of a shell's command.
pub(crate) fn quoted(text: &str) -> String {
    let is_plain =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | ':' | '@' | '+' | ',' | '%');
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_text_is_one_word_of_a_shell() {
        for (text, expected) in [
            ("jobs.jsonl.sqlite", "jobs.jsonl.sqlite"),
            ("postgres://ic@db:5432/jobs", "postgres://ic@db:5432/jobs"),
            ("my jobs.sqlite", "'my jobs.sqlite'"),
            ("it's; rm", r"'it'\''s; rm'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(text), expected);
        }
    }

    #[test]
    fn durations_read_as_people_write_them() {
        let ms = Duration::from_millis;
        for (millis, expected) in [
            (0, "0s"),
            (350, "350ms"),
            (1_250, "1.25s"),
            (60_000, "1m"),
            (3_100_000, "51m 40s"),
            (7_200_000, "2h"),
            (266_400_000, "3d 2h"),
        ] {
            assert_eq!(span(ms(millis)), expected);
        }
        assert_eq!(span(Duration::from_nanos(100)), "0.0000001s");
        for (millis, expected) in [(500, "500ms"), (90_000, "90s"), (86_400_000, "24h"), (172_800_000, "2d")] {
            assert_eq!(window(ms(millis)), expected);
        }
        assert_eq!([thousands(7), thousands(5_000), thousands(1_234_567)], ["7", "5,000", "1,234,567"]);
    }
}
