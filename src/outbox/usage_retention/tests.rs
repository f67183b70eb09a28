use super::*;
use crate::config::{Config, Sources, TenantEntry};

#[test]
fn slots_fit_into_the_windows_of_calendars() {
    assert_eq!(part_of(None, 1_350_000), 1_350_000);
    for (grid_ms, most_ms, slot_ms) in [
        (3_600_000, 1_350_000, 1_200_000),  // a third of an hour
        (86_400_000, 1_350_000, 1_350_000), // 64 of them are a day
        (86_400_000, 41_850_000, 28_800_000),
        (3_600_000, 41_850_000, 3_600_000),
        (60_000, 1_000, 1_000),
    ] {
        assert_eq!(part_of(Some(grid_ms), most_ms), slot_ms, "{grid_ms} {most_ms}");
    }
}

#[test]
fn day_of_25_hours_is_remembered_whole() {
    let text = "[vendors.v]\nbase_url = \"https://v.example\"\nmax_transit = \"11s\"\n[[vendors.v.limits]]\nname = \"day\"\n\
                limit = 100\nresets = \"daily America/Los_Angeles\"\n";
    let sources = Sources::new().without_catalogue().file("f.toml", text).tenant(TenantEntry::new("t", "v"));
    let config = Config::load(&sources, 1).unwrap();
    let tenant = config.tenants().next().unwrap();
    assert_eq!(remembered(tenant), (25 * 3_600 + 11) * 1_000);
    assert_eq!(kept_for(tenant, Duration::from_secs(1)), (1_200_000, (25 * 3_600 + 11) * 1_000 + 1_200_000 + 1_000));
}
