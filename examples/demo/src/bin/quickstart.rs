//! Three tenants, three priorities and a vendor with a limit, in one process: `cargo run -p demo`.
//!
//! The vendor allows each tenant 100 requests per second. `noisy` wants 10,000; `ada` and `bob` stay below the limit.
//! Watch the column `refused`: it is the vendor's own count of 429s.
//!
//! A second vendor refuses every request to one of its endpoints, so a request of `ada` to it ends as a dead letter.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a program for the command line; a poisoned lock ends it")]
#![expect(clippy::disallowed_methods, reason = "an application measures and spawns; the library does neither")]

use std::error::Error;
use std::io::IsTerminal;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use integration_client::config::TenantEntry;
use integration_client::dead_letter::MemorySink;
use integration_client::testing::checker::{Definition, refused};
use integration_client::testing::{Delay, FakeVendor, HeaderStyle, VendorLimit, literal};
use integration_client::{IntegrationClient, Priority, Request};
use tokio::time::MissedTickBehavior;

const TENANTS: [&str; 3] = ["ada", "bob", "noisy"];
const TIERS: [Priority; 3] = [Priority::High, Priority::Normal, Priority::Low];
const LIMIT: u32 = 100;
const SECOND: Duration = Duration::from_secs(1);
const RUN: Duration = Duration::from_secs(14);

/// The results so far.
#[derive(Default)]
struct Seen {
    sent: [u64; 3],
    /// Sends of `noisy` by priority, while requests of all three priorities waited.
    shares: [u64; 3],
    /// The waits of `ada` and `bob`, in microseconds.
    waits: Vec<u128>,
    /// Whether the table is on the terminal already.
    is_shown: bool,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let began = Instant::now();
    let (latency, jitter) = (Duration::from_millis(2), Duration::from_millis(3));
    let limit = VendorLimit::fixed_window(LIMIT, SECOND);
    let delay = Delay::fixed(latency).jitter(jitter);
    // The vendor sends no rate-limit headers: low remaining figures would slow the client down, and this run is to use
    // the whole limit.
    let vendor = FakeVendor::builder().limit(limit).headers(HeaderStyle::Silent).arrival_delay(delay).start().await?;
    // Three retries that fit into this run. The default is five, of which the first comes after 5 to 10 s.
    let broken = FakeVendor::builder().endpoint("charges", "/charges").poisoned("/charges", 429).start().await?;
    let retry = "[vendors.broken.retry]\nmax_retries = 3\nfirst_wait = \"200ms\"\n";

    // The entry is of the kind that `vendors.toml` has for GitHub, Stripe and the others. The tenants are yours.
    let mut builder = IntegrationClient::builder().vendors_toml(vendor.vendors_toml("demo")).max_waiting_per_tier(200);
    for tenant in TENANTS {
        builder = builder.tenant(TenantEntry::new(tenant, "demo").credential(format!("keys:{tenant}")));
    }
    let letters = Arc::new(MemorySink::new(100));
    builder = builder.vendors_toml(broken.vendors_toml("broken") + retry).dead_letter_sink(letters.clone());
    builder = builder.tenant(TenantEntry::new("ada", "broken").credential("keys:ada"));
    let client = builder.credential_resolver("keys", literal).build().await?;

    let seen = Arc::new(Mutex::new(Seen::default()));
    let mut load = tokio::task::JoinSet::new();
    for (tenant, per_second) in [(0, 30), (1, 30), (2, 100 * LIMIT)] {
        load.spawn(offer(client.clone(), seen.clone(), tenant, per_second));
    }
    let charge = client.clone();
    load.spawn(async move {
        let _ = charge.send("ada", Priority::High, Request::post("broken", "/charges").body("one coffee")).await;
    });
    // The share is the default of `safety` in an entry.
    println!("The client paces itself at 80 % of the vendor's limit; the rest is a reserve.");
    let terminal = std::io::stdout().is_terminal();
    let mut tick = tokio::time::interval(if terminal { SECOND / 5 } else { SECOND });
    while began.elapsed() < RUN {
        tick.tick().await;
        show((&client, &vendor, &seen), began, terminal)?;
    }
    load.shutdown().await;
    client.shutdown(SECOND).await;

    // Checked afterwards, from the vendor's log of arrivals and by the definition of the limit.
    let definition = Definition::FixedWindow { limit: LIMIT.into(), window_ns: 1_000_000_000, phase_ns: 0 };
    let log = vendor.arrivals();
    let of = |tenant: &&str| refused(log.iter().filter(|arrival| &*arrival.key == *tenant), &definition);
    let refused: u64 = TENANTS.iter().map(of).sum();
    let [high, normal, low] = percent(seen.lock().unwrap().shares);
    let (sent, seconds) = (log.len(), began.elapsed().as_secs_f64());
    for letter in letters.letters() {
        let (endpoint, attempts) = (letter.endpoint.unwrap_or_default(), letter.attempts.len());
        println!(
            "dead letter: tenant={} vendor={} endpoint={endpoint} attempts={attempts} reason={}",
            letter.tenant, letter.vendor, letter.reason
        );
    }
    let dead = client.dead_letter_counts().written;
    println!(
        "quickstart: sent={sent} refused={refused} shares={high}/{normal}/{low} seconds={seconds:.1} dead_lettered={dead}"
    );
    if refused > 0 { Err("the vendor refused requests".into()) } else { Ok(()) }
}

/// One tenant sends `per_second` requests per second, in all three priorities. Requests that its full queue refuses are
/// dropped.
async fn offer(client: IntegrationClient, seen: Arc<Mutex<Seen>>, tenant: usize, per_second: u32) {
    let mut tick = tokio::time::interval(SECOND / 100);
    // Skips missed ticks, so that a process short of CPU time does not fall ever further behind.
    tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut sends = tokio::task::JoinSet::new();
    let (mut due, mut number) = (0, 0);
    loop {
        tick.tick().await;
        due += per_second;
        for _ in 0..due / 100 {
            number += 1;
            sends.spawn(one(client.clone(), seen.clone(), tenant, TIERS[number % 3]));
        }
        due %= 100;
        while sends.try_join_next().is_some() {}
    }
}

/// The call that an application makes, with the bookkeeping of this demo.
async fn one(client: IntegrationClient, seen: Arc<Mutex<Seen>>, tenant: usize, priority: Priority) {
    let Ok(response) = client.send(TENANTS[tenant], priority, Request::get("demo", "/orders")).await else { return };
    let all_wait =
        client.lane(TENANTS[tenant], "demo").is_ok_and(|lane| <[u32; 3]>::from(lane.waiting()).iter().all(|&n| n > 0));
    let mut seen = seen.lock().unwrap();
    seen.sent[tenant] += 1;
    match TENANTS[tenant] {
        // The first burst was granted at once, in order of arrival, before the tiers had to share.
        "noisy" => seen.shares[priority as usize] += u64::from(all_wait && !response.waited().is_zero()),
        _ => seen.waits.push(response.waited().as_micros()),
    }
}

type Shown<'a> = (&'a IntegrationClient, &'a FakeVendor, &'a Mutex<Seen>);

fn show((client, vendor, seen): Shown<'_>, began: Instant, terminal: bool) -> Result<(), Box<dyn Error>> {
    let mut seen = seen.lock().unwrap();
    seen.waits.sort_unstable();
    let p99 = seen.waits.get(seen.waits.len() * 99 / 100).copied().unwrap_or_default() as f64 / 1000.0;
    let refused = vendor.refused();
    let mut lines = vec![format!("{:<8}{:>10}{:>8}{:>20}", "tenant", "headroom", "sent", "waiting H/N/L")];
    let mut line = format!("{:>2} s", began.elapsed().as_secs());
    for (tenant, sent) in TENANTS.iter().zip(seen.sent) {
        let lane = client.lane(tenant, "demo")?;
        let headroom = lane.headroom().map_or(100, |headroom| headroom.percent());
        let waiting = <[u32; 3]>::from(lane.waiting()).map(|n| n.to_string()).join("/");
        lines.push(format!("{tenant:<8}{headroom:>9}%{sent:>8}{waiting:>20}"));
        line += &format!("  {tenant} {headroom}% {sent} sent {waiting} wait");
    }
    lines.push(format!("refused by the vendor: {refused}"));
    lines.push(format!("p99 of the polite tenants' added wait: {p99:.1} ms"));
    if !terminal {
        println!("{line}  refused by the vendor: {refused}  p99 of the polite tenants' added wait: {p99:.1} ms");
        return Ok(());
    }
    // Moves the cursor up to the first line of the last table, and clears everything below it.
    let up = if seen.is_shown { format!("\x1b[{}A\x1b[J", lines.len()) } else { String::new() };
    seen.is_shown = true;
    // Wrapping is off meanwhile: a narrow terminal cuts a line, and so the number of lines is known.
    println!("{up}\x1b[?7l{}\x1b[?7h", lines.join("\n"));
    Ok(())
}

fn percent(counts: [u64; 3]) -> [u64; 3] {
    let all = counts.iter().sum::<u64>().max(1);
    counts.map(|count| (count * 100 + all / 2) / all)
}
