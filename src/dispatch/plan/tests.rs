use super::*;
use crate::config::{Config, Sources};
use crate::engine::{Bound, Engine};

const HOURLY: &str = r#"
[vendors.v]
base_url = "https://v.example"
auth = { scheme = "none" }
[[vendors.v.limits]]
name = "hour"
limit = 10
resets = "hourly UTC"
"#;

/// Two tenants of an account state different figures, because one of them is configured with a share.
#[test]
fn smaller_quota_of_an_account_is_in_force() {
    let of = |limit: &str| {
        let file = HOURLY.replace("limit = 10", &format!("limit = {limit}\nscope = \"account\""));
        let config = Config::load(&Sources::new().without_catalogue().file("v", &file), 1).unwrap();
        Arc::new(compile(&config.vendor("v", "live").unwrap(), 1, &Policy::USUAL))
    };
    for figures in [["10", "4"], ["4", "10"]] {
        let mut engine = Engine::new(Bound::new(100), Default::default());
        let now = Time::from_nanos(1);
        let lanes: Vec<_> =
            figures.iter().map(|figure| engine.upsert(now, figure, "account", &of(figure), None)).collect();
        let limit = |lane| engine.view(now, lane).unwrap().limits[0].limit;
        assert_eq!(lanes.into_iter().map(limit).collect::<Vec<_>>(), [4, 4], "{figures:?}");
    }
}

/// The client begins at 10:40. Its clock begins at that moment or earlier, and never at a full hour.
#[test]
fn hourly_quota_begins_anew_at_the_full_hour() {
    let config = Config::load(&Sources::new().without_catalogue().file("v", HOURLY), 1).unwrap();
    let vendor = config.vendor("v", "live").unwrap();
    let began = SystemTime::UNIX_EPOCH + Duration::from_secs(20_000 * 86_400 + 10 * 3_600 + 40 * 60);
    for minutes in [0, 30, 60, 367 * 24 * 60] {
        let before = Duration::from_secs(60 * minutes);
        let policy = Policy { epoch: began - before, ..Policy::USUAL };
        let plan = Arc::new(compile(&vendor, 1, &policy));
        let mut engine = Engine::new(Bound::new(10), Default::default());
        let now = Time::from_nanos(nanos(before));
        let lane = engine.upsert(now, "a", "a", &plan, None);
        let hour = &engine.view(now, lane).unwrap().limits[0];
        let resets_in = hour.resets_at.unwrap().since(now);
        assert_eq!(resets_in, Duration::from_secs(20 * 60), "a clock that began {minutes} minutes before");
    }
}
