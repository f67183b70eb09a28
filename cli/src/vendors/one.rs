//! Prints one vendor in full, as text for people.

use std::io::{self, Write};

use integration_client::config::{Endpoint, Limit, Vendor};
use integration_client::signals::Dialect;

use super::entry::Entry;
use crate::output::{FAINT, Screen, TITLE, list, marked, table};
use crate::text;

pub(super) fn show(entry: &Entry, screen: Screen, out: &mut dyn Write) -> io::Result<()> {
    let live = &entry.live;
    writeln!(out, "{TITLE}{}{TITLE:#}\n", live.name)?;
    let mut facts = vec![fact("base URL", live.base_url.clone()), fact("credential", text::auth(&live.auth))];
    if !live.also.is_empty() {
        facts.push(fact("also", live.also.join(", ")));
    }
    if let Some(costs) = text::usual_costs(&live.costs) {
        facts.push(fact("costs", format!("{costs} unless a request states its own")));
    }
    for (name, value) in &live.headers {
        facts.push(fact("header", format!("{name}: {value}")));
    }
    for header in &live.secret_headers {
        facts.push(fact("header", format!("{}: the secret of {}", header.name, header.secret)));
    }
    if *live.dialect != Dialect::default() {
        facts.push(fact("answers", "read by shape, and by a dialect of its own".to_owned()));
    }
    write!(out, "{}", table(screen, &[], facts, &[]))?;

    let mut sources: Vec<String> = Vec::new();
    limits("Limits", Vec::new(), named(live), &mut sources, screen, out)?;
    for other in &entry.others {
        let differing: Vec<(String, &Limit)> = entry.differing(other).collect();
        let title = format!("Environment {}", other.environment);
        let mut facts = Vec::new();
        if other.base_url != live.base_url {
            facts.push(fact("base URL", other.base_url.clone()));
        }
        if other.auth != live.auth {
            facts.push(fact("credential", text::auth(&other.auth)));
        }
        limits(&title, facts, differing, &mut sources, screen, out)?;
    }
    let has_own = |endpoint: &Endpoint| !endpoint.limits.is_empty() || own_costs(live, endpoint).next().is_some();
    if live.endpoints.iter().any(has_own) {
        let rows = live.endpoints.iter().map(|endpoint| {
            let paths =
                if endpoint.paths.is_empty() { "(by its name alone)".to_owned() } else { endpoint.paths.join("  ") };
            let cost: Vec<String> =
                own_costs(live, endpoint).map(|(kind, units)| format!("{} {kind}", text::thousands(units))).collect();
            let cost = if cost.is_empty() { String::new() } else { format!("costs {}", cost.join(", ")) };
            vec![endpoint.name.to_string(), endpoint.methods.join(" "), paths, cost]
        });
        write!(out, "\n{TITLE}Endpoints{TITLE:#}\n{}", table(screen, &[], rows.collect(), &[]))?;
    }
    if !live.quirks.is_empty() {
        write!(out, "\n{TITLE}What to know{TITLE:#}\n{}", list(screen, live.quirks.iter().cloned()))?;
    }
    if !sources.is_empty() {
        writeln!(out, "\n{TITLE}Sources{TITLE:#}")?;
        for (number, source) in sources.iter().enumerate() {
            let mark = format!("[{}]", number + 1);
            writeln!(out, "{FAINT}{}{FAINT:#}", marked(screen, &mark, source))?;
        }
    }
    Ok(())
}

/// The costs of an endpoint's requests that differ from the vendor's usual costs.
fn own_costs<'a>(vendor: &'a Vendor, endpoint: &'a Endpoint) -> impl Iterator<Item = (&'a str, u32)> {
    endpoint.costs.iter().filter(|(kind, units)| vendor.costs.get(kind) != Some(*units))
}

fn fact(name: &str, value: String) -> Vec<String> {
    vec![name.to_owned(), value]
}

fn named(vendor: &Vendor) -> Vec<(String, &Limit)> {
    text::limits(vendor).map(|(endpoint, limit)| (text::name(endpoint, limit), limit)).collect()
}

fn limits(
    title: &str,
    facts: Vec<Vec<String>>,
    limits: Vec<(String, &Limit)>,
    sources: &mut Vec<String>,
    screen: Screen,
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(out, "\n{TITLE}{title}{TITLE:#}")?;
    if !facts.is_empty() {
        write!(out, "{}", table(screen, &[], facts, &[]))?;
    }
    if limits.is_empty() {
        let none = if title == "Limits" { "No figure is known." } else { "The same limits." };
        return writeln!(out, "{none}");
    }
    let rows = limits.into_iter().map(|(name, limit)| {
        let sure = limit.source.as_ref().map_or_else(String::new, |source| {
            let text = match &*source.as_of {
                "" => source.reference.clone(),
                as_of => format!("{}, {as_of}", source.reference),
            };
            let known = sources.iter().position(|known| *known == text);
            let number = known.unwrap_or_else(|| {
                sources.push(text);
                sources.len() - 1
            });
            format!("{} [{}]", source.confidence, number + 1)
        });
        vec![name, text::allows(limit), text::algorithm(limit).to_owned(), limit.scope.name().to_owned(), sure]
    });
    write!(out, "{}", table(screen, &["limit", "allows", "counted by", "per", "sure?"], rows.collect(), &[]))
}
