//! One response for people.

use std::io::{self, Write};

use super::reading::{self, Window};
use super::{Context, pasted};
use crate::output::{ERROR, FAINT, GOOD, Screen, TITLE, table};
use crate::text;

pub(super) fn show(response: &pasted::Response, context: &Context, out: &mut dyn Write) -> io::Result<()> {
    let status = context.status.or(response.status);
    let now = context.now();
    let vendor = context.vendor(context.vendor.as_deref());
    let prefix = response.body.get(..reading::BODY_PREFIX).unwrap_or(&response.body);
    let reading = reading::read(vendor.as_deref(), status.unwrap_or(200), &response.headers, prefix, now);

    let by = vendor.as_ref().map_or_else(|| "read by shape".to_owned(), |vendor| format!("read as {}", vendor.name));
    let code = status.map_or_else(|| "status not stated, taken for 200".to_owned(), |status| format!("HTTP {status}"));
    let headers = text::count(response.headers.len(), "header");
    writeln!(out, "{TITLE}{code}{TITLE:#}, {headers}, {by}\n")?;

    let (style, refused) = if reading.throttled { (ERROR, "yes") } else { (GOOD, "no") };
    writeln!(out, "refused for its limits   {style}{refused}{style:#}")?;
    let until = |wait| {
        jiff::Timestamp::try_from(now)
            .ok()
            .and_then(|now| now.checked_add(jiff::SignedDuration::try_from(wait).ok()?).ok())
    };
    let wait = match reading.retry_after {
        Some(wait) => {
            let until = until(wait).map_or_else(String::new, |at| format!(", until {at:.0}"));
            format!("{}{until}", text::span(wait))
        }
        None if reading.throttled => "not said: the client backs off by its own rule".to_owned(),
        None => "none".to_owned(),
    };
    writeln!(out, "wait                     {wait}")?;
    if let Some(cost) = reading.cost {
        writeln!(out, "cost of the request      {cost}")?;
    }
    writeln!(out, "decided by               {}", if reading.rule.is_empty() { "-" } else { &reading.rule })?;

    if reading.windows.is_empty() {
        writeln!(out, "\nNothing is said about what is left.")?;
        return Ok(());
    }
    let header = ["window", "limit", "used", "left", "", "resets in", "length"];
    let rows = reading.windows.iter().map(row).collect();
    // Narrow by nature: as wide as it needs to be.
    write!(out, "\n{}", table(Screen { width: 100 }, &header, rows, &[1, 2, 3, 4]))?;
    if reading.windows.iter().any(|window| window.name.is_none()) {
        writeln!(out, "\n{FAINT}A window without a name is one whose headers do not name it.{FAINT:#}")?;
    }
    Ok(())
}

fn row(window: &Window) -> Vec<String> {
    let figure = |figure: Option<u64>| figure.map_or_else(|| "-".to_owned(), |figure| figure.to_string());
    let percent = match (window.remaining, window.limit) {
        (Some(remaining), Some(limit)) if limit > 0 => {
            format!("{} %", u128::from(remaining.min(limit)) * 100 / u128::from(limit))
        }
        _ => String::new(),
    };
    vec![
        window.name.clone().unwrap_or_else(|| "-".to_owned()),
        figure(window.limit),
        figure(window.used),
        figure(window.remaining),
        percent,
        window.reset_in.map_or_else(|| "-".to_owned(), text::span),
        window.window.map_or_else(|| "-".to_owned(), text::window),
    ]
}
