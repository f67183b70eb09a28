//! Shows what is enforced for each limit: its bucket, its guard, and how much of the vendor's limit can be used.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use integration_client::config::{Config, Endpoint, Limit, LimitKind, Rate, Tenant, Vendor};

use crate::output::{FAINT, Screen, TITLE, table, wrapped};
use crate::text::{self, thousands};

const HEADER: [&str; 5] = ["limit", "allows", "bucket", "guard", "reach"];

/// The most tenants with figures of their own that the table lists. There may be a million.
const MOST_TENANTS: usize = 20;

/// Tenants that the heading of a table names.
const NAMED: usize = 5;

/// The tenants of each environment that has some, by vendor.
type Users<'a> = BTreeMap<&'a str, BTreeMap<&'a str, Vec<&'a str>>>;

/// With `all`, shows environments too that no tenant uses.
pub(super) fn show(
    config: &Config,
    vendors: &BTreeSet<String>,
    (round_trip, all): (Duration, bool),
    screen: Screen,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut users = Users::new();
    for tenant in config.tenants() {
        let of_vendor = users.entry(&tenant.vendor.name).or_default();
        of_vendor.entry(&tenant.vendor.environment).or_default().push(&tenant.id);
    }
    let (mut rates, mut unused) = (false, 0);
    for vendor in config.vendors().iter().filter(|vendor| vendors.contains(&*vendor.name)) {
        let of_vendor = users.get(&*vendor.name);
        let tenants = of_vendor.and_then(|of| of.get(&*vendor.environment));
        // Of a vendor without tenants, every environment is of interest.
        if !all && of_vendor.is_some() && tenants.is_none() {
            unused += 1;
            continue;
        }
        let of = tenants.map_or_else(String::new, |tenants| format!(" for {}", named(tenants)));
        writeln!(out, "{TITLE}{}{TITLE:#} {}{of}", title(vendor), vendor.base_url)?;
        rates |= limits(vendor, round_trip, screen, out)?;
    }
    if unused > 0 {
        writeln!(out, "{} that no tenant uses: --all shows them.\n", text::count(unused, "more environment"))?;
    }
    let stated = |tenant: &&Arc<Tenant>| {
        let shared = config.vendor(&tenant.vendor.name, &tenant.vendor.environment);
        shared.is_ok_and(|shared| !Arc::ptr_eq(&shared, &tenant.vendor))
    };
    let own: Vec<&Arc<Tenant>> = config.tenants().filter(stated).collect();
    for tenant in own.iter().take(MOST_TENANTS) {
        writeln!(
            out,
            "{TITLE}{}{TITLE:#} with the figures of tenant {TITLE}{}{TITLE:#}",
            title(&tenant.vendor),
            tenant.id
        )?;
        rates |= limits(&tenant.vendor, round_trip, screen, out)?;
    }
    if let Some(more) = own.len().checked_sub(MOST_TENANTS).filter(|more| *more > 0) {
        writeln!(out, "{more} more tenants have figures of their own.\n")?;
    }
    if rates {
        let legend = format!(
            "reach: how much of the limit is in use while there is always work and answers take {}; where normal and low \
             requests reach less, below it. The second line of a guard is what it lets pass of those.",
            text::span(round_trip)
        );
        writeln!(out, "{FAINT}{}{FAINT:#}\n", wrapped(screen, &legend))?;
    }
    Ok(())
}

/// The first tenants, and the number of the others.
pub(super) fn named(tenants: &[&str]) -> String {
    let shown = tenants.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    match tenants.len().checked_sub(NAMED) {
        Some(more) if more > 0 => format!("{shown} and {more} more"),
        _ => shown,
    }
}

fn title(vendor: &Vendor) -> String {
    match &*vendor.environment {
        "live" => vendor.name.to_string(),
        environment => format!("{} ({environment})", vendor.name),
    }
}

/// Shows the limits of a vendor. Returns whether there are rates among them, which the legend explains.
fn limits(vendor: &Vendor, round_trip: Duration, screen: Screen, out: &mut dyn Write) -> io::Result<bool> {
    let rows: Vec<Vec<String>> =
        text::limits(vendor).map(|(endpoint, limit)| row(vendor, endpoint, limit, round_trip)).collect();
    if rows.is_empty() {
        writeln!(out, "no limit: requests are slowed down only by what the vendor answers\n")?;
        return Ok(false);
    }
    writeln!(out, "{}", table(screen, &HEADER, rows, &[]))?;
    if let Some(costs) = text::usual_costs(&vendor.costs) {
        let after = match vendor.dialect.states_costs() {
            true => "; what its answer says it cost counts in the end",
            false => "; the vendor's entry does not tell where answers say what they cost",
        };
        let line = format!("A request that states no cost counts as {costs}{after}.");
        writeln!(out, "{FAINT}{}{FAINT:#}\n", wrapped(screen, &line))?;
    }
    Ok(text::limits(vendor).any(|(_, limit)| matches!(limit.kind, LimitKind::Rate(_))))
}

/// The table row of a limit. The second line of a cell holds details of the first.
fn row(vendor: &Vendor, endpoint: Option<&Endpoint>, limit: &Limit, round_trip: Duration) -> Vec<String> {
    let name = format!("{}\n  per {}", text::name(endpoint, limit), limit.scope.name());
    let LimitKind::Rate(rate) = &limit.kind else {
        return vec![name, text::allows(limit), "-".into(), "-".into(), "-".into()];
    };
    let allows = format!("{}\n{}", text::allows(limit), text::algorithm(limit));
    let shape = rate.shape();
    // A quota that resets by the calendar is not paced, so it has no bucket.
    let bucket = match &rate.resets {
        None => format!("{}\n{}", thousands(shape.capacity), refill(rate, &shape)),
        Some(_) => "-".into(),
    };
    let lower = shape.guard_limit - shape.guard_reserve;
    let span = match &rate.resets {
        _ if shape.guard_is_bucket => "in its bucket".into(),
        None => format!("in {}", text::window(rate.window)),
        Some(resets) => resets.period.name().into(),
    };
    let guard = format!(
        "{} {span}{}",
        thousands(shape.guard_limit),
        if lower < shape.guard_limit { format!("\n{} for lower", thousands(lower)) } else { String::new() }
    );
    let reach = |high| format!("{:.0} %", 100.0 * rate.reach(vendor.max_transit, round_trip, high));
    let (high, low) = (reach(true), reach(false));
    let reach = if high == low { high } else { format!("{high}\n{low}") };
    vec![name, allows, bucket, guard, reach]
}

/// The refill rate of a bucket, in the smallest unit of time in which it is at least 1.
fn refill(rate: &Rate, shape: &integration_client::config::Shape) -> String {
    if let Some(interval) = shape.release_interval {
        return format!("+{} each {}", thousands(shape.capacity), text::window(interval));
    }
    let a_second = shape.refill / rate.window.as_secs_f64().max(1e-9);
    let units = [(1.0, "s"), (60.0, "min"), (3600.0, "h"), (86_400.0, "day")];
    let (seconds, unit) = units.into_iter().find(|(seconds, _)| a_second * seconds >= 1.0).unwrap_or((86_400.0, "day"));
    let number = format!("{:.1}", a_second * seconds);
    format!("+{}/{unit}", number.strip_suffix(".0").unwrap_or(&number))
}
