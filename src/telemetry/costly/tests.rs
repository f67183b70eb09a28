use super::*;
use crate::config::{Config, Sources, TenantEntry};

const SECOND: Duration = Duration::from_secs(1);

fn tenant(id: &str) -> Arc<Tenant> {
    let text = "[vendors.v]\nbase_url = \"https://v.example\"\nunpublished = true\n";
    let sources = Sources::new().without_catalogue().file("f.toml", text).tenant(TenantEntry::new(id, "v"));
    Config::load(&sources, 1).unwrap().tenant(id, "v").unwrap()
}

fn seen(tenant: &str, cost: u32, jobs: usize) -> Value {
    json!({ "tenant": tenant, "vendor": "v", "limit": "points", "holds": 8, "cost": cost, "jobs": jobs })
}

#[test]
fn costly_jobs_are_counted_until_claimed_or_forgotten() {
    let (jobs, acme, umbra) = (CostlyJobs::default(), tenant("acme"), tenant("umbra"));
    let (points, at): (Arc<str>, Time) = ("points".into(), Time::ZERO + SECOND);
    let later = at + 900 * SECOND;
    for (id, of, cost, until) in
        [("1", &acme, 50, at), ("2", &acme, 70, later), ("3", &umbra, 90, at), ("2", &acme, 60, at)]
    {
        jobs.waits(id, of, &points, [cost, 8], until);
    }
    assert_eq!(jobs.status(at), [seen("acme", 70, 2), seen("umbra", 90, 1)]);
    // It waits again, at a figure that was raised.
    jobs.claimed("3");
    jobs.waits("3", &umbra, &points, [90, 80], later);
    jobs.claimed("1");
    assert_eq!(jobs.status(at)[0], seen("acme", 70, 1));
    let left = jobs.status(at + FORGET);
    assert_eq!((left.len(), &left[0]["holds"]), (1, &80.into()), "nobody has claimed the other: {left:?}");
}

#[test]
fn remembered_costly_jobs_are_bounded() {
    let (jobs, acme, until) = (CostlyJobs::default(), tenant("acme"), Time::ZERO + SECOND);
    for number in 0..LIMITS + 10 {
        let limit: Arc<str> = number.to_string().into();
        let count = if number == 7 { JOBS + 10 } else { 1 };
        for id in 0..count {
            jobs.waits(&format!("{number}-{id}"), &acme, &limit, [50, 8], until);
        }
    }
    let counts: Vec<usize> = jobs.0.lock().values().map(|known| known.jobs.len()).collect();
    assert_eq!((counts.len(), counts.iter().max()), (LIMITS, Some(&JOBS)));
}
