//! Reports problems with vendors and tenants while jobs are sent, and pauses lanes whose credentials are refused.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use integration_client::clock::Time;
use integration_client::events::{Event, EventKind};
use integration_client::status::{TenantStatus, TokenState};
use integration_client::{ErrorKind, IntegrationClient};

use super::keys::{KeyFault, Lane, PausedLane, PausedLanes, credential, redrive};
use super::results::Results;

/// After this many 401 responses in a row, the first of which had the credential read again, the lane is paused: the
/// vendor does not accept the key. More requests could look like an attack to the vendor, and would make dead letters of
/// valid jobs.
const REFUSED_KEYS: u32 = 10;

/// Lanes that the last message names.
const NAMED: usize = 10;

/// A run ends that has waited for this long for nothing but hosts to which no connection can be made, and token URLs that
/// give no token: a URL may be wrong, and the next run goes on.
const UNREACHABLE: Duration = Duration::from_secs(15 * 60);
/// The interval at which the hosts of the jobs that are left are looked at, of which there may be many.
const HOSTS: Duration = Duration::from_secs(5);

/// Since when nothing but obstacles is left, and at least one of them is a host.
#[derive(Default)]
struct Unreachable {
    since: Option<Time>,
    looked: Option<Time>,
}

impl Unreachable {
    /// Whether a look is due.
    fn is_due(&self, now: Time) -> bool {
        self.looked.is_none_or(|looked| now.since(looked) >= HOSTS)
    }

    /// Notes the result of [`hosts_in_the_way`]. Returns whether hosts have been in the way for [`UNREACHABLE`].
    fn note(&mut self, hosts: Option<&BTreeSet<String>>, now: Time) -> bool {
        self.looked = Some(now);
        let waits = hosts.is_some_and(|hosts| !hosts.is_empty());
        self.since = if waits { self.since.or(Some(now)) } else { None };
        self.since.is_some_and(|since| now.since(since) >= UNREACHABLE)
    }
}

/// Why no job of a lane can be sent.
#[derive(Clone)]
enum Obstacle {
    /// Its key is refused or missing, and the run has paused it.
    Key,
    /// No connection can be made to this host, or this token URL gives no token.
    Host(String),
}

impl Obstacle {
    /// The obstacle of a lane with this status.
    fn of(tenant: &str, vendor: &str, status: TenantStatus) -> Option<Obstacle> {
        let is_failing = status.token.is_some_and(|token| token.state == TokenState::Failing);
        let url = || is_failing.then(|| format!("the token URL of {tenant} at {vendor}"));
        status.unreachable.map(|host| host.to_string()).or_else(url).map(Obstacle::Host)
    }
}

/// The hosts and token URLs that are in the way, if each of the lanes has an obstacle: none where all lanes are paused.
/// `None` if a lane has no obstacle, or there is no lane.
fn hosts_in_the_way(lanes: impl IntoIterator<Item = Option<Obstacle>>) -> Option<BTreeSet<String>> {
    let obstacles: Vec<Obstacle> = lanes.into_iter().collect::<Option<_>>()?;
    let host = |obstacle: &Obstacle| match obstacle {
        Obstacle::Key => None,
        Obstacle::Host(host) => Some(host.clone()),
    };
    (!obstacles.is_empty()).then(|| obstacles.iter().filter_map(host).collect())
}

/// The credentials that vendors refuse or that are missing, and the hosts to which no connection can be made.
pub(super) struct Troubles {
    /// The number of 401 responses in a row.
    in_a_row: HashMap<Lane, u32>,
    keys: PausedLanes,
    unreachable: Unreachable,
}

impl Troubles {
    pub(super) fn new(keys: PausedLanes) -> Troubles {
        Troubles { in_a_row: HashMap::new(), keys, unreachable: Unreachable::default() }
    }

    /// The lanes that the run has paused.
    pub(super) fn keys(&self) -> &PausedLanes {
        &self.keys
    }

    /// Handles an event. Returns a message if the event is a problem that the user should know of.
    pub(super) fn hear(&mut self, event: &Event, client: &IntegrationClient) -> Option<String> {
        if let EventKind::Breaker { host, open: true, .. } = &event.kind {
            return Some(format!(
                "run: {host}: no connection can be made; is the base URL right? Its jobs wait, and are tried again"
            ));
        }
        let (tenant, vendor) = (event.tenant.as_deref()?, event.vendor.as_deref()?);
        let what = match &event.kind {
            EventKind::Completed { status, .. } if status.as_u16() == 401 => return self.key(tenant, vendor, client),
            // The fast path: of a million jobs, most end here.
            EventKind::Completed { .. } if self.in_a_row.is_empty() => return None,
            EventKind::Completed { .. } => {
                self.in_a_row.remove(&(tenant.to_owned(), vendor.to_owned()));
                return None;
            }
            EventKind::Failed { kind, .. } => match kind {
                ErrorKind::Connect => "no connection can be made; is its base URL right?".to_owned(),
                ErrorKind::Tls => "its certificate is not good.".to_owned(),
                ErrorKind::Credential if self.keys.pause_if_missing(tenant, vendor, client) => return None,
                ErrorKind::Credential => format!("{} cannot be read.", credential(client, tenant, vendor)),
                ErrorKind::Timeout => "it does not answer in time.".to_owned(),
                ErrorKind::Protocol => "it breaks connections, or speaks no HTTP.".to_owned(),
                _ => return None,
            },
            _ => return None,
        };
        Some(format!("run: {tenant} at {vendor}: {what} Its jobs wait, and are tried again"))
    }

    /// Counts a 401 response. Pauses the lane after [`REFUSED_KEYS`] of them in a row, and returns the message for the
    /// user.
    fn key(&mut self, tenant: &str, vendor: &str, client: &IntegrationClient) -> Option<String> {
        let lane = (tenant.to_owned(), vendor.to_owned());
        let times = self.in_a_row.entry(lane.clone()).or_default();
        *times += 1;
        if *times < REFUSED_KEYS || !self.keys.pause(lane, KeyFault::Refused, client) {
            return None;
        }
        let credential = credential(client, tenant, vendor);
        Some(format!(
            "run: {tenant} at {vendor}: the key is refused with 401, {REFUSED_KEYS} times in a row; is {credential} right? \
             This run sends no more of its jobs"
        ))
    }

    /// Why the run cannot go on, if only jobs are left whose lanes are paused, or to whose hosts no connection could be
    /// made for long.
    pub(super) fn in_the_way(
        &mut self,
        results: &Results,
        client: &IntegrationClient,
        options: &str,
        now: Time,
    ) -> Option<String> {
        let looks = self.unreachable.is_due(now);
        if !self.keys.has_own() && !looks {
            return None;
        }
        let keys = &self.keys;
        let obstacle = |tenant: &String, vendor: &String| {
            if keys.fault(&(tenant.clone(), vendor.clone())).is_some() {
                return Some(Obstacle::Key);
            }
            let status = if looks { client.status(tenant, vendor).ok() } else { None };
            Obstacle::of(tenant, vendor, status?)
        };
        let left = results.left_by_lane();
        let hosts = hosts_in_the_way(left.iter().map(|((tenant, vendor, _), _)| obstacle(tenant, vendor)));
        let is_over = looks && self.unreachable.note(hosts.as_ref(), now);
        let hosts = hosts?;
        let ends = if hosts.is_empty() { client.in_flight() == 0 && !self.keys.may_be_replaced() } else { is_over };
        ends.then(|| why_it_ends(&hosts, &self.keys.own(), true, options))
    }

    /// Why the run has not succeeded although no job is left: it has paused lanes of its own jobs. `None` if it has not.
    pub(super) fn of_keys(&self, options: &str) -> Option<String> {
        self.keys.has_own().then(|| why_it_ends(&BTreeSet::new(), &self.keys.own(), false, options))
    }
}

/// Why a run ends that has nothing left but jobs of these hosts and keys, if any `wait`, and how to go on. `options`
/// select the run's dead letters in commands.
fn why_it_ends(hosts: &BTreeSet<String>, keys: &[PausedLane], wait: bool, options: &str) -> String {
    let mut why = Vec::new();
    if !hosts.is_empty() {
        let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
        why.push(format!(
            "nothing was reached at {} for a quarter of an hour (is the URL right?)",
            hosts.join(" and ")
        ));
    }
    let mut first = Vec::new();
    for (fault, what) in [(KeyFault::Refused, "the key is refused of"), (KeyFault::Missing, "the key is missing of")] {
        let of: Vec<&PausedLane> = keys.iter().filter(|paused| paused.fault == fault).collect();
        if of.is_empty() {
            continue;
        }
        let named = of.iter().take(NAMED);
        let mut names: Vec<String> =
            named.clone().map(|PausedLane { lane, key, .. }| format!("{} at {} ({key})", lane.0, lane.1)).collect();
        if of.len() > NAMED {
            names.push(format!("{} more", of.len() - NAMED));
        }
        why.push(format!("{what} {}", names.join(" and ")));
        if fault == KeyFault::Refused {
            first
                .extend(named.map(|paused| format!("\n  {}", redrive("rejected", Some((401, &paused.lane)), options))));
        }
    }
    let first = match first.is_empty() {
        true => String::new(),
        false => format!(". What was refused are dead letters; make jobs of them before:{}", first.concat()),
    };
    let sends = if wait { ": it sends what waits" } else { "" };
    format!("{}, and no other jobs are left. Correct it and run the same command again{sends}{first}", why.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_ends_after_a_quarter_of_an_hour_without_a_host() {
        let minute = |minute: u64| Time::ZERO + Duration::from_secs(60 * minute);
        let (key, host) = (Some(Obstacle::Key), Some(Obstacle::Host("v.example".to_owned())));
        let well = hosts_in_the_way([key.clone(), host.clone(), None]);
        assert!(well.is_none() && hosts_in_the_way([]).is_none());
        for lanes in [vec![host.clone()], vec![key.clone(), host.clone()]] {
            let hosts = hosts_in_the_way(lanes);
            assert_eq!(hosts, Some(BTreeSet::from(["v.example".to_owned()])));
            let (hosts, mut unreachable) = (hosts.as_ref(), Unreachable::default());
            assert!(unreachable.is_due(minute(0)));
            assert!(!unreachable.note(hosts, minute(0)) && !unreachable.note(hosts, minute(14)));
            assert!(!unreachable.is_due(minute(14)) && unreachable.is_due(minute(15)));
            // One host was back for a while.
            assert!(!unreachable.note(well.as_ref(), minute(15)));
            assert!(!unreachable.note(hosts, minute(16)) && !unreachable.note(hosts, minute(30)));
            assert!(unreachable.note(hosts, minute(31)));
        }
    }

    #[test]
    fn refused_keys_alone_end_a_run_without_hosts() {
        let (hosts, mut unreachable) = (hosts_in_the_way([Some(Obstacle::Key)]), Unreachable::default());
        assert_eq!(hosts, Some(BTreeSet::new()), "it ends at once");
        let hour = Time::ZERO + Duration::from_secs(3_600);
        assert!(!unreachable.note(hosts.as_ref(), Time::ZERO) && !unreachable.note(hosts.as_ref(), hour));
    }

    #[test]
    fn end_of_a_run_names_hosts_and_keys() {
        let paused = |tenant: &str, fault| PausedLane {
            lane: (tenant.to_owned(), "w".to_owned()),
            fault,
            key: format!("env:{tenant}"),
        };
        let (hosts, keys) = (BTreeSet::from(["v.example".to_owned()]), [paused("acme", KeyFault::Refused)]);
        let both = why_it_ends(&hosts, &keys, true, " --run 0198 --store s.sqlite");
        // No letter of another reason is sent again: the vendor may have acted on it.
        let command = "\n  integration-client dead-letters redrive --all --reason rejected --status 401 --tenant acme \
                       --vendor w --run 0198 --store s.sqlite";
        for part in ["v.example", "acme at w (env:acme)", command] {
            assert!(both.contains(part), "{both}");
        }
        let missing = why_it_ends(&BTreeSet::new(), &[paused("umbra", KeyFault::Missing)], true, " --store s.sqlite");
        assert!(missing.starts_with("the key is missing of umbra at w (env:umbra), and no other jobs"), "{missing}");
        assert!(!missing.contains("redrive"), "{missing}");
        let one = why_it_ends(&hosts, &[], true, " --store s.sqlite");
        assert!(one.contains("v.example") && !one.contains("key") && !one.contains("redrive"), "{one}");
        let other = why_it_ends(&BTreeSet::new(), &keys, false, " --store s.sqlite");
        assert!(other.starts_with("the key is refused of acme at w (env:acme), and no other jobs are left"), "{other}");
        assert!(both.contains("it sends what waits") && !other.contains("it sends what waits"), "{other}");
    }
}
