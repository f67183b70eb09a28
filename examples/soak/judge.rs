//! Judges after the run what became of every request, by three independent records: the vendors' logs, the programs'
//! lines, and the store's tables.
//!
//! A kill or an outage excuses only the requests that it hit: an outage excuses the exchanges that overlap it, and a
//! kill the jobs that were under way.

use std::collections::{BTreeMap, HashMap, HashSet};

use integration_client::config::Scope;
use integration_client::testing::checker::{self, Event};

use super::world::{Amount, Limit, VendorPlan};

/// A request or a job that waits longer than this without a cause is stuck.
pub(crate) const BOUND_NS: u64 = 10_000_000_000;
/// The shortest and the longest pause of a lane or a host after failures, each twice as long as the one before
/// (docs/RATE_LIMITS.md, "breaker").
const PAUSES_NS: [u64; 2] = [1_000_000_000, 30_000_000_000];
/// How much later than it happened an event may be noticed: a broken connection by the client, a program's line by the
/// director.
const NOTICE_NS: u64 = 500_000_000;

/// One request as a vendor saw it. Times are nanoseconds since the run began.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) at: u64,
    /// When the vendor had finished the request.
    pub(crate) finished: u64,
    pub(crate) key: String,
    pub(crate) account: String,
    pub(crate) endpoint: String,
    pub(crate) path: String,
    pub(crate) idempotency_key: String,
    /// The status of the answer; 0 if there was none.
    pub(crate) status: u16,
    pub(crate) admitted: bool,
    /// Whether the vendor applied its limits to the request, which it does not do during an outage.
    pub(crate) judged: bool,
}

/// A span of time, both ends included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) from: u64,
    pub(crate) until: u64,
}

impl Span {
    fn overlaps(&self, from: u64, until: u64) -> bool {
        self.from <= until && from <= self.until
    }
}

#[derive(Debug)]
pub(crate) struct VendorRecord {
    pub(crate) plan: VendorPlan,
    pub(crate) seen: Vec<Seen>,
    pub(crate) outages: Vec<Span>,
}

/// What a program reported about one request.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) vendor: String,
    pub(crate) tenant: String,
    pub(crate) asked: u64,
    pub(crate) ended: Option<(u64, Outcome)>,
    /// The program was killed before it reported the outcome.
    pub(crate) is_cut_off: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// A job, with its id.
    Accepted(String),
    Answered(u16),
    /// The error's delivery and kind.
    Failed(String, String),
    Dropped,
}

/// Where the store has a job at the end of the run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    Waiting,
    Delivered(u16),
    Dead {
        reason: String,
        /// The whole letter, which a fault shows.
        letter: String,
    },
}

#[derive(Default, Debug)]
pub(crate) struct Record {
    pub(crate) vendors: Vec<VendorRecord>,
    /// By path: each request has a path of its own.
    pub(crate) told: BTreeMap<String, Told>,
    pub(crate) places: HashMap<String, Place>,
    /// When workers were killed.
    pub(crate) kills: Vec<u64>,
    /// When tenants moved to another account, and which.
    pub(crate) moves: Vec<(u64, String)>,
    /// Jobs whose exchange had begun, and had no outcome in the store, when their worker was killed.
    pub(crate) begun: HashSet<String>,
    /// When the store was stalled.
    pub(crate) stalls: Vec<Span>,
}

/// The figures of the last line, and a line for each fault.
#[derive(Default, Debug)]
pub(crate) struct Verdict {
    pub(crate) sent: u64,
    pub(crate) refused: u64,
    pub(crate) over_limit: u64,
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    pub(crate) stuck: u64,
    pub(crate) faults: Vec<String>,
    /// The largest use of each limit beside what it allows, to show whether the load was high enough to test the
    /// limits.
    pub(crate) peaks: Vec<String>,
    /// How often each excuse applied.
    pub(crate) excused: BTreeMap<&'static str, u64>,
}

impl Verdict {
    pub(crate) fn is_clean(&self) -> bool {
        self.refused + self.over_limit + self.lost + self.doubled + self.stuck == 0 && self.sent > 0
    }

    fn excuse(&mut self, why: &'static str) {
        *self.excused.entry(why).or_default() += 1;
    }

    fn lost(&mut self, fault: String) {
        self.lost += 1;
        self.faults.push(format!("lost: {fault}"));
    }

    fn doubled(&mut self, fault: String) {
        self.doubled += 1;
        self.faults.push(format!("doubled: {fault}"));
    }

    fn stuck(&mut self, fault: String) {
        self.stuck += 1;
        self.faults.push(format!("stuck: {fault}"));
    }
}

pub(crate) fn judge(record: &Record) -> Verdict {
    let mut verdict = Verdict::default();
    for vendor in &record.vendors {
        judge_limits(vendor, &mut verdict);
        let mut by_path: BTreeMap<&str, Vec<&Seen>> = BTreeMap::new();
        for seen in &vendor.seen {
            by_path.entry(&seen.path).or_default().push(seen);
        }
        for (path, seen) in &by_path {
            judge_repeats(record, vendor, path, seen, &mut verdict);
        }
        for (path, told) in record.told.iter().filter(|(_, told)| told.vendor == vendor.plan.name) {
            let seen = by_path.get(path.as_str()).map_or(&[][..], Vec::as_slice);
            judge_outcome(record, &Case { vendor, path, told, seen }, &mut verdict);
        }
    }
    verdict
}

/// Counts requests above a limit, by the definition of the limit, and requests that the vendor refused.
fn judge_limits(vendor: &VendorRecord, verdict: &mut Verdict) {
    verdict.sent += vendor.seen.iter().filter(|seen| seen.admitted).count() as u64;
    for seen in vendor.seen.iter().filter(|seen| seen.judged && !seen.admitted) {
        verdict.refused += 1;
        verdict.faults.push(format!("refused: {}", refusal(vendor, seen)));
    }
    for limit in vendor.plan.limits {
        let mut events: BTreeMap<&str, Vec<Event>> = BTreeMap::new();
        for seen in vendor.seen.iter().filter(|seen| seen.judged) {
            if let Some(owner) = owner(limit, seen) {
                events.entry(owner).or_default().push(Event::at(seen.at).until(seen.finished));
            }
        }
        let fullest = events.values().map(|events| checker::check(events, &limit.definition()).peak).max();
        let allowed = match limit.amount {
            Amount::Window(limit, _) | Amount::Concurrency(limit) => limit,
        };
        verdict.peaks.push(format!("{} {} {}/{allowed}", vendor.plan.name, limit.name, fullest.unwrap_or_default()));
        for (owner, events) in events {
            let over = checker::refused(&events, &limit.definition());
            verdict.over_limit += over;
            if over > 0 {
                let name = vendor.plan.name;
                verdict.faults.push(format!("over limit: {name} {} of {owner:?} by {over}", limit.name));
            }
        }
    }
}

/// Describes a refusal, with what the vendor had received from the same account before.
fn refusal(vendor: &VendorRecord, refused: &Seen) -> String {
    let before = refused.at.saturating_sub(2_000_000_000)..refused.at;
    let mut keys: BTreeMap<&str, [u32; 2]> = BTreeMap::new();
    for seen in vendor.seen.iter().filter(|seen| seen.admitted && seen.account == refused.account) {
        let [recent, under_way] = keys.entry(&seen.key).or_default();
        *recent += u32::from(before.contains(&seen.at));
        *under_way += u32::from(seen.at <= refused.at && refused.at < seen.finished);
    }
    keys.retain(|_, counts| *counts != [0, 0]);
    let (name, ms) = (vendor.plan.name, refused.at / 1_000_000);
    format!("{name} {} of {} at {ms} ms; in two seconds before, and under way: {keys:?}", refused.path, refused.key)
}

/// The owner of the limit whose requests count together with this one. `None` if the limit does not apply to the
/// request.
fn owner<'a>(limit: &Limit, seen: &'a Seen) -> Option<&'a str> {
    if limit.endpoint.is_some_and(|endpoint| endpoint != seen.endpoint) {
        return None;
    }
    Some(match limit.scope {
        Scope::Vendor => "",
        Scope::Account => &seen.account,
        Scope::Tenant | Scope::Endpoint => &seen.key,
    })
}

/// Judges one caller's request, which is all arrivals with one path: how often it acted, and whether it had to be sent
/// again.
fn judge_repeats(record: &Record, vendor: &VendorRecord, path: &str, seen: &[&Seen], verdict: &mut Verdict) {
    let name = vendor.plan.name;
    let admitted: Vec<&&Seen> = seen.iter().filter(|seen| seen.admitted).collect();
    let is_get = path.contains("/get-");
    if !is_get {
        let effects = match vendor.plan.takes_keys {
            true => admitted.iter().map(|seen| seen.idempotency_key.as_str()).collect::<HashSet<_>>().len(),
            false => admitted.len(),
        };
        if effects > 1 {
            verdict.doubled(format!("{name} {path} acted {effects} times"));
            return;
        }
    }
    let id = record.told.get(path).and_then(|told| match &told.ended {
        Some((_, Outcome::Accepted(id))) => Some(id),
        _ => None,
    });
    for pair in admitted.windows(2) {
        let [earlier, later] = pair else { continue };
        let was_killed = match id {
            Some(id) => record.begun.contains(id),
            // The job's acknowledgement was cut off, so its id is unknown.
            None => path.contains("/job-") && record.kills.iter().any(|at| (earlier.at..=later.at).contains(at)),
        };
        if is_disturbed(vendor, earlier) {
            verdict.excuse("sent again after an outage");
        } else if was_killed {
            verdict.excuse("sent again with its key after a kill");
        } else {
            let (first, second) = (earlier.at / 1_000_000, later.at / 1_000_000);
            verdict.doubled(format!("{name} {path} was answered at {first} ms and sent again at {second} ms"));
        }
    }
}

/// Whether the client may have missed the answer because of a disturbance of the vendor.
fn is_disturbed(vendor: &VendorRecord, seen: &Seen) -> bool {
    let in_outage = |outage: &Span| outage.overlaps(seen.at, seen.finished.saturating_add(NOTICE_NS));
    !seen.judged || seen.status == 0 || seen.status >= 500 || vendor.outages.iter().any(in_outage)
}

/// One request, with all that is known about it.
struct Case<'a> {
    vendor: &'a VendorRecord,
    path: &'a str,
    told: &'a Told,
    seen: &'a [&'a Seen],
}

impl Case<'_> {
    /// Whether the tenant moved to another account after the vendor may have acted on the job: the vendor had seen it, or
    /// its worker had been killed during its exchange.
    fn has_moved(&self, record: &Record, id: &str) -> bool {
        let kills = record.kills.iter().filter(|at| record.begun.contains(id) && **at >= self.told.asked);
        let first = self.seen.iter().map(|seen| seen.at).chain(kills.copied()).min();
        record.moves.iter().any(|(at, tenant)| *tenant == self.told.tenant && first.is_some_and(|first| first <= *at))
    }

    fn met_outage(&self, from: u64, until: u64) -> bool {
        self.vendor.outages.iter().any(|outage| outage.overlaps(from, until.saturating_add(NOTICE_NS)))
    }

    /// Whether the request may still have waited at this moment because of an outage: during the outage, or in the
    /// pause after it. Pauses double while probes fail, so the last pause is about as long as the failures lasted. If
    /// another outage begins in that pause, the failures go on.
    fn waits_for_outage(&self, at: u64) -> bool {
        let (mut since, mut over) = (0, 0);
        self.vendor.outages.iter().any(|outage| {
            if outage.from > over {
                since = outage.from;
            }
            let [shortest, longest] = PAUSES_NS;
            let pause = outage.until.saturating_sub(since).saturating_add(shortest).min(longest);
            over = outage.until.saturating_add(pause);
            Span { from: outage.from, until: over }.overlaps(at, at.saturating_add(BOUND_NS))
        })
    }

    /// Whether the tenant's other requests used its limit all the time until `ended`. Two programs share a tenant's
    /// limit evenly, the configuration may state half of the limit, and 0.7 of that is used: so a lane that sends an
    /// eighth of the limit has more requests than it may send.
    fn waited_in_line(&self, ended: u64) -> bool {
        let windows = self.vendor.plan.limits.iter().filter_map(|limit| match (limit.scope, limit.amount) {
            (Scope::Tenant, Amount::Window(limit, window)) => Some(f64::from(limit) / window.as_nanos() as f64),
            _ => None,
        });
        let rate = windows.fold(f64::INFINITY, f64::min);
        let is_of_tenant = |seen: &&Seen| {
            seen.admitted && seen.key.split('-').next() == Some(&self.told.tenant) && seen.at > self.told.asked
        };
        let went = self.vendor.seen.iter().filter(is_of_tenant).filter(|seen| seen.at < ended).count();
        went as f64 >= rate / 8.0 * ended.saturating_sub(self.told.asked) as f64
    }

    fn was_answered(&self, status: u16) -> bool {
        self.seen.iter().any(|seen| seen.admitted && seen.status == status)
    }

    fn has_acted(&self) -> bool {
        self.seen.iter().any(|seen| seen.admitted)
    }

    fn fault(&self, what: &str) -> String {
        let asked = self.told.asked / 1_000_000;
        format!("{} {} asked at {asked} ms: {what}", self.vendor.plan.name, self.path)
    }
}

fn judge_outcome(record: &Record, case: &Case<'_>, verdict: &mut Verdict) {
    let asked = case.told.asked;
    match &case.told.ended {
        None if case.told.is_cut_off => verdict.excuse("cut off by a kill before it was acknowledged"),
        None => verdict.stuck(case.fault("never ended")),
        Some((_, Outcome::Dropped)) => verdict.excuse("given up by its caller"),
        Some((_, Outcome::Accepted(id))) => judge_job(record, case, id, verdict),
        Some((_, Outcome::Answered(status))) => {
            if !case.was_answered(*status) {
                verdict.lost(case.fault(&format!("answered {status}, which the vendor never said")));
            }
        }
        Some((ended, Outcome::Failed(delivery, kind))) => {
            let (ended, what) = (*ended, format!("{delivery} {kind}"));
            let is_job = case.path.contains("/job-");
            let waited_in_vain = matches!(kind.as_str(), "deadline" | "retry_later" | "queue_full" | "not_now");
            if delivery == "NotSent" && case.has_acted() {
                verdict.doubled(case.fault(&format!("{what}, though the vendor acted: its caller sends it again")));
            } else if is_job && record.stalls.iter().any(|stall| stall.overlaps(asked, ended)) {
                verdict.excuse("not accepted while the store was held up");
            } else if !is_job
                && (waited_in_vain || kind == "connect")
                && case.waits_for_outage(ended.saturating_sub(BOUND_NS))
            {
                verdict.excuse("waited in vain in an outage");
            } else if !is_job && waited_in_vain && case.waited_in_line(ended) {
                verdict.excuse("waited in line behind its tenant's others");
            } else if !is_job && !waited_in_vain && case.met_outage(asked, ended) {
                verdict.excuse("failed in an outage");
            } else {
                verdict.stuck(case.fault(&what));
            }
        }
    }
}

/// Judges a job that was acknowledged.
fn judge_job(record: &Record, case: &Case<'_>, id: &str, verdict: &mut Verdict) {
    match record.places.get(id) {
        None => verdict.lost(case.fault("accepted, and nowhere")),
        Some(Place::Waiting) => verdict.stuck(case.fault("accepted, and still waiting")),
        Some(Place::Delivered(status)) if case.was_answered(*status) => {}
        Some(Place::Delivered(status)) => {
            verdict.lost(case.fault(&format!("delivered with {status}, which the vendor never said")));
        }
        Some(Place::Dead { reason, letter }) => match cause(record, case, id, reason) {
            Some(cause) => verdict.excuse(cause),
            None => verdict.lost(case.fault(&format!("buried as {reason} without a cause: {letter}"))),
        },
    }
}

/// The cause for which a job may have become a dead letter.
fn cause(record: &Record, case: &Case<'_>, id: &str, reason: &str) -> Option<&'static str> {
    let kills = record.kills.iter().filter(|at| **at >= case.told.asked).count();
    let in_outage = case.met_outage(case.told.asked, u64::MAX - NOTICE_NS);
    match reason {
        // A job with an idempotency key is sent again instead, but not to an account that does not know the key.
        "ambiguous" if case.vendor.plan.takes_keys => {
            case.has_moved(record, id).then_some("ambiguous after its tenant moved to another account")
        }
        "ambiguous" if record.begun.contains(id) => Some("ambiguous after a kill"),
        "ambiguous" if case.seen.iter().any(|seen| is_disturbed(case.vendor, seen)) => Some("ambiguous in an outage"),
        // The exchange was about to begin, and the vendor did not act.
        "ambiguous" if !case.has_acted() && kills > 0 => Some("ambiguous after a kill"),
        "ambiguous" if !case.has_acted() && in_outage => Some("ambiguous in an outage"),
        "exhausted" if in_outage => Some("exhausted in outages"),
        // Five exchanges began and have no outcome.
        "poison" if kills >= 5 => Some("poison after five kills"),
        _ => None,
    }
}
