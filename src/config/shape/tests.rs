use crate::config::{Config, LimitKind, Sources};
use std::time::Duration;

/// The share that the high tier and the other tiers reach of a limit with these fields, in percent.
fn reach(fields: &str, round_trip_ms: u64) -> (u32, u32) {
    let text = format!("[vendors.v]\nbase_url = \"https://v.example\"\n[[vendors.v.limits]]\nname = \"l\"\n{fields}");
    let config = Config::load(&Sources::new().without_catalogue().file("f.toml", text), 1).unwrap();
    let vendor = config.vendor("v", "live").unwrap();
    let LimitKind::Rate(rate) = &vendor.limits[0].kind else { panic!("{fields}") };
    let percent = |high| {
        let reach = rate.reach(vendor.max_transit, Duration::from_millis(round_trip_ms), high);
        (reach * 100.0).round() as u32
    };
    (percent(true), percent(false))
}

#[test]
fn utilization_depends_on_guard_and_round_trip() {
    let second = "limit = 100\nwindow = \"1s\"\n";
    assert_eq!(reach(&format!("{second}algorithm = \"fixed_window\"\n"), 0), (80, 80));
    assert_eq!(reach(&format!("{second}algorithm = \"fixed_window\"\n"), 600), (63, 56), "1 / 1.6 of 100 and of 90");
    assert_eq!(reach(&format!("{second}algorithm = \"fixed_window\"\n"), 50), (80, 80), "90 / 1.05 are more than 80");
    assert_eq!(reach(second, 0), (80, 80), "the counting is unknown");
    let whole = format!("{second}safety = 1.0\n");
    assert_eq!(reach(&whole, 0), (99, 99), "one unit is left alone");
    assert_eq!(reach(&format!("{whole}algorithm = \"token_bucket\"\n"), 600), (100, 100), "a bucket counts no window");
    let released = format!("{second}algorithm = \"fixed_window\"\nrelease_interval = \"20ms\"\n");
    assert_eq!(reach(&released, 0), (50, 50), "1.6 each interval is 1");
    assert_eq!(reach("limit = 1\nwindow = \"1h\"\nsafety = 1.0\n", 100), (100, 100));
}
