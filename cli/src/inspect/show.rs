//! Prints what was read in one response, as text for people.

use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use http::StatusCode;
use integration_client::config::Vendor;

use super::context::Context;
use super::pasted;
use super::reading::{self, Window};
use crate::output::{ERROR, GOOD, Screen, TITLE, table};
use crate::text;

/// A status with its standard text, if it has one: `StatusCode` shows the codes of single vendors as unknown.
fn code(status: StatusCode) -> String {
    match status.canonical_reason() {
        Some(reason) => format!("HTTP {} {reason}", status.as_u16()),
        None => format!("HTTP {}", status.as_u16()),
    }
}

pub(super) fn show(
    response: &pasted::Response,
    vendor: Option<&Vendor>,
    context: &Context,
    out: &mut dyn Write,
) -> io::Result<()> {
    let stated = context.status.or(response.status).and_then(|status| StatusCode::from_u16(status).ok());
    let now = context.now();
    let prefix = response.body.get(..reading::BODY_PREFIX).unwrap_or(&response.body);
    let status = stated.unwrap_or(StatusCode::OK);
    let reading = reading::read(vendor, status, &response.headers, prefix, now);

    let by = vendor.map_or_else(|| "read by shape".to_owned(), |vendor| format!("read as {}", vendor.name));
    let code = stated.map_or_else(|| "status not stated, taken for 200".to_owned(), code);
    let headers = text::count(response.headers.len(), "header");
    writeln!(out, "{TITLE}{code}{TITLE:#}, {headers}, {by}\n")?;

    let rule = reading.rule.map_or_else(String::new, |rule| format!("\n{:25}because {rule}", ""));
    let (style, refused) = match (reading.throttled, reading.refused_in_part) {
        (true, _) => (ERROR, "yes"),
        (false, true) => (ERROR, "in part; the vendor may have acted on the rest"),
        (false, false) => (GOOD, "no"),
    };
    writeln!(out, "refused for its limits   {style}{refused}{style:#}{rule}")?;
    let wait = match (reading.retry_after.or(reading.default_wait), reading.wait_from) {
        (Some(wait), from) => {
            let from = from.map_or_else(String::new, |from| format!("\n{:25}from {from}", ""));
            format!("{}{}{from}", text::span(wait), until(now, wait))
        }
        (None, _) if reading.throttled => "not stated: the client backs off by its own rule".to_owned(),
        (None, _) => "none".to_owned(),
    };
    writeln!(out, "wait                     {wait}")?;
    if let Some(scope) = reading.scope {
        writeln!(out, "whose limit              {scope}")?;
    }
    if let Some(cost) = reading.cost {
        writeln!(out, "cost of the request      {cost}")?;
    }
    for (kind, units) in reading.costs.iter().filter(|(kind, _)| kind != "points") {
        writeln!(out, "cost of the request      {units} {kind}")?;
    }

    if reading.windows.is_empty() {
        writeln!(out, "\nThe response states nothing about limits.")?;
        return Ok(());
    }
    let header = ["window", "limit", "used", "left", "", "resets in", "length"];
    let rows = reading.windows.iter().map(row).collect();
    // The table is narrow, so it ignores the width of the terminal.
    write!(out, "\n{}", table(Screen { width: 100 }, &header, rows, &[1, 2, 3, 4]))?;
    Ok(())
}

/// The end of a wait, as in `, until 2026-01-15T10:15:00Z`; empty if no timestamp can hold it.
fn until(now: SystemTime, wait: Duration) -> String {
    let at = || jiff::Timestamp::try_from(now).ok()?.checked_add(jiff::SignedDuration::try_from(wait).ok()?).ok();
    at().map_or_else(String::new, |at| format!(", until {at:.0}"))
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
