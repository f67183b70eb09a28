//! Tests of laying one entry over another.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use crate::config::{Config, LimitEntry, LimitKind, Sources, TenantEntry};

const DAILY: &str = "[vendors.v]\nbase_url = \"https://v.example\"\n\
                     [[vendors.v.limits]]\nname = \"day\"\nlimit = 10\nresets = \"daily UTC\"\nshared = false\n";

fn load(over: &str, tenant: LimitEntry) -> Result<Config, crate::Error> {
    let over = format!("[[vendors.v.limits]]\nname = \"day\"\n{over}");
    let tenant = TenantEntry::new("a", "v").override_limit("day", tenant);
    let sources = Sources::new().without_catalogue().file("f.toml", DAILY).over("over.toml", over).tenant(tenant);
    Config::load(&sources, 1)
}

#[test]
fn window_above_a_calendar_is_refused() {
    let day = Duration::from_secs(86_400);
    let nothing = LimitEntry::default;
    for (error, place) in [
        (load("window = \"24h\"\n", nothing()), "over.toml:3:10: vendors.v.limits.day.window: "),
        (load("", nothing().window(day)), "day.window: "),
    ] {
        let error = error.unwrap_err().to_string();
        assert!(error.contains(place) && error.contains("`resets = \"daily UTC\"` of the entry below"), "{error}");
        assert!(error.contains("write `resets = \"rolling\"` beside it"), "{error}");
    }
    // Who states both knows of the calendar.
    for (over, tenant, is_rolling) in [
        ("window = \"24h\"\nresets = \"rolling\"\n", nothing(), true),
        ("window = \"24h\"\nresets = \"daily UTC\"\n", nothing(), false),
        ("window = \"1h\"\nresets = \"rolling\"\n", nothing().window(day), true),
        ("", nothing().window(day).resets("rolling"), true),
    ] {
        let vendor = load(over, tenant).unwrap().tenant("a", "v").unwrap().vendor.clone();
        let LimitKind::Rate(rate) = &vendor.limits[0].kind else { panic!("{over}") };
        assert_eq!((rate.window, rate.resets.is_none()), (day, is_rolling), "{over}");
    }
}

#[test]
fn concurrency_over_a_rate_keeps_shared() {
    let config = load("concurrency = 5\n", LimitEntry::default()).unwrap();
    let limit = config.vendor("v", "live").unwrap().limits[0].clone();
    assert!(matches!(limit.kind, LimitKind::Concurrency { limit: 5 }));
    assert!(!limit.shared);
    let config = load("concurrency = 5\nshared = true\n", LimitEntry::default()).unwrap();
    assert!(config.vendor("v", "live").unwrap().limits[0].shared);
}
