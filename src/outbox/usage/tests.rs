use super::*;
use crate::config::{Config, Sources, TenantEntry};
use crate::engine::plan::NO_ENDPOINT;

#[test]
fn recorded_units_return_in_their_slot() {
    const SECOND: Duration = Duration::from_secs(1);
    let text = "[vendors.v]\nbase_url = \"https://v.example\"\n[[vendors.v.limits]]\nname = \"hour\"\nlimit = 100\n\
                window = \"1h\"\n";
    let sources = Sources::new().without_catalogue().file("f.toml", text).tenant(TenantEntry::new("t", "v"));
    let config = Config::load(&sources, 1).unwrap();
    let route = Route::alone(Arc::unwrap_or_clone(config.tenant("t", "v").unwrap()));
    let (usage, recorded) = (NewUsage::default(), Used::in_the_record(3));
    let at = Time::ZERO + 3_600 * SECOND;
    usage.take_out(&route, (NO_ENDPOINT, false), &recorded, at, 2 * SECOND);
    usage.add(&route, NO_ENDPOINT, false, &recorded);
    // The exchange took a minute not to leave, which is more than a slot of an hour's 64th.
    let now = at + 60 * SECOND;
    let rows: Vec<Taken> = usage.take(now).iter().map(|one| one.row(now)).collect();
    let rows: Vec<_> = rows.iter().map(|row| (row.requests, row.points, row.age_ms)).collect();
    assert_eq!(rows, [(-1, -3, 60_000), (1, 3, 0)]);
}
