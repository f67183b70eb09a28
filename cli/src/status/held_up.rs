//! What `status` prints of jobs that only a changed configuration lets go: jobs that cost more than a limit holds, and
//! jobs of lanes that are not configured. The processes that work on the store publish both.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::text::count;

/// The lanes that are named; further ones are counted.
const NAMED: usize = 10;
/// The most lanes in a list that a process publishes, and the most jobs that it counts at one limit.
const LANES: usize = 200;
const JOBS: u64 = 1_000;

/// A tenant at a vendor.
pub(super) type Lane<'a> = (&'a str, &'a str);

/// The jobs in the store, by lane.
pub(super) struct LaneJobs<'a> {
    jobs: BTreeMap<Lane<'a>, u64>,
    /// Further lanes may have jobs.
    is_part: bool,
}

impl<'a> LaneJobs<'a> {
    pub(super) fn of(queues: impl Iterator<Item = (Lane<'a>, u64)>, is_part: bool) -> LaneJobs<'a> {
        let mut jobs = BTreeMap::new();
        queues.for_each(|(lane, number)| *jobs.entry(lane).or_default() += number);
        LaneJobs { jobs, is_part }
    }

    /// Whether the lane has jobs, or may have some that are not known.
    fn has(&self, lane: &Lane<'_>) -> bool {
        self.is_part || self.jobs.contains_key(lane)
    }
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or("-")
}

fn lane(value: &Value) -> Lane<'_> {
    (text(value, "tenant"), text(value, "vendor"))
}

fn jobs_in_words(number: u64) -> String {
    count(usize::try_from(number).unwrap_or(usize::MAX), "job")
}

/// The first of the names, and how many follow.
fn listed(names: impl ExactSizeIterator<Item = String>) -> String {
    let more = names.len().saturating_sub(NAMED);
    let names = names.take(NAMED).collect::<Vec<_>>().join(", ");
    if more == 0 { names } else { format!("{names} and {more} more") }
}

/// What to say of jobs that cost more than a limit holds, by the lists of the processes at work. `None` if there are none.
pub(super) fn too_expensive(jobs: &LaneJobs<'_>, workers: &[&[Value]]) -> Option<String> {
    let mut limits = BTreeMap::<(Lane<'_>, &str), [u64; 3]>::new();
    // The jobs of others have ended since.
    for one in workers.iter().copied().flatten().filter(|one| jobs.has(&lane(one))) {
        let [number, cost, holds] = ["jobs", "cost", "holds"].map(|name| one[name].as_u64().unwrap_or(0));
        let known = limits.entry((lane(one), text(one, "limit"))).or_default();
        *known = [known[0].saturating_add(number), known[1].max(cost), holds];
    }
    let names = limits.iter().map(|((lane, limit), [number, cost, holds])| {
        // One process may have counted a job that another one counts now.
        let number = jobs.jobs.get(lane).map_or(*number, |jobs| *jobs.min(number));
        let (at_least, shown) = (if number >= JOBS { "at least " } else { "" }, jobs_in_words(number));
        format!("{} at {} ({at_least}{shown} that cost up to {cost}; limit `{limit}` holds {holds})", lane.0, lane.1)
    });
    (!limits.is_empty()).then(|| {
        format!(
            "{}. These jobs wait until the limit's figure or the tenant's `share` is raised, and become dead letters after \
             four days: raise it, or cancel them",
            listed(names)
        )
    })
}

/// What to say of lanes with jobs that no process at work can send, because its configuration lacks the tenant or the
/// credential, by the lists of these processes. `None` if there are none.
pub(super) fn not_configured(jobs: &LaneJobs<'_>, workers: &[&[Value]]) -> Option<String> {
    let mut lanes = BTreeMap::<Lane<'_>, (usize, &str)>::new();
    for one in workers.iter().copied().flatten() {
        lanes.entry(lane(one)).or_insert((0, text(one, "lacks"))).0 += 1;
    }
    // A process that has the lane sends its jobs.
    lanes.retain(|lane, (processes, _)| *processes >= workers.len() && jobs.has(lane));
    let names = lanes.iter().map(|(lane, (_, lacks))| {
        let jobs = jobs.jobs.get(lane).map(|number| jobs_in_words(*number));
        let credential = (*lacks == "credential").then(|| "no credential".to_owned());
        let known: Vec<String> = jobs.into_iter().chain(credential).collect();
        let known = if known.is_empty() { String::new() } else { format!(" ({})", known.join(", ")) };
        format!("{} at {}{known}", lane.0, lane.1)
    });
    let at_least = if workers.iter().any(|list| list.len() >= LANES) { "at least " } else { "" };
    (!lanes.is_empty()).then(|| {
        format!(
            "{at_least}{} with jobs: {}. Add what is missing to the configuration of the processes at work (`tenants set`, or \
             their files): the jobs may become dead letters within minutes",
            count(lanes.len(), "lane"),
            listed(names)
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn jobs<'a>(lanes: &[(&'a str, u64)], is_part: bool) -> LaneJobs<'a> {
        LaneJobs::of(lanes.iter().map(|(tenant, number)| ((*tenant, "v"), *number)), is_part)
    }

    fn costly(tenant: &str, jobs: u64, cost: u32) -> Value {
        json!({ "tenant": tenant, "vendor": "v", "limit": "points", "holds": 80, "cost": cost, "jobs": jobs })
    }

    #[test]
    fn costly_jobs_of_all_processes_are_named() {
        let lists = [
            vec![costly("acme", 2, 90), costly("gone", 1, 90)],
            vec![costly("acme", 3, 200), costly("umbra", 1_000, 81)],
        ];
        let lists: Vec<&[Value]> = lists.iter().map(Vec::as_slice).collect();
        let said = too_expensive(&jobs(&[("acme", 4), ("umbra", 3_000)], false), &lists).unwrap();
        let named = "acme at v (4 jobs that cost up to 200; limit `points` holds 80), umbra at v (at least 1000 jobs that \
                     cost up to 81; limit `points` holds 80). These jobs wait until ";
        assert!(said.starts_with(named), "{said}");
        assert_eq!(too_expensive(&jobs(&[("other", 4)], false), &lists), None);
        let said = too_expensive(&jobs(&[("other", 4)], true), &lists).unwrap();
        assert!(said.contains("gone at v (1 job that cost"), "the store was read in part: {said}");
    }

    #[test]
    fn lanes_that_no_process_can_send_are_named() {
        let one = |tenant: &str, lacks: &str| json!({ "tenant": tenant, "vendor": "v", "lacks": lacks });
        let new = vec![one("keyless", "credential"), one("umbra", "tenant"), one("idle", "credential")];
        let old = [new.clone(), vec![one("late", "tenant")]].concat();
        let stored = jobs(&[("keyless", 1), ("late", 7), ("umbra", 2)], false);
        let said = not_configured(&stored, &[&new, &old]).unwrap();
        let named = "2 lanes with jobs: keyless at v (1 job, no credential), umbra at v (2 jobs). ";
        assert!(said.starts_with(named), "{said}");
        // The other process has ended.
        let said = not_configured(&stored, &[&old]).unwrap();
        assert!(said.starts_with("3 lanes with jobs: ") && said.contains(", late at v (7 jobs), "), "{said}");
        assert_eq!(not_configured(&stored, &[&old, &[]]), None, "one process has all lanes");
        assert_eq!(not_configured(&stored, &[]), None);
    }

    #[test]
    fn many_lanes_are_counted() {
        let all: Vec<Value> = (0..250).map(|id| json!({ "tenant": format!("t{id:03}"), "vendor": "v" })).collect();
        let said = not_configured(&jobs(&[], true), &[&all[..LANES]]).unwrap();
        assert!(said.starts_with("at least 200 lanes with jobs: t000 at v, t001 at v, "), "{said}");
        assert!(said.contains(", t009 at v and 190 more. "), "{said}");
    }
}
