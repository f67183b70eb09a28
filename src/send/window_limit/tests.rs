use super::*;
use crate::config::{Config, Sources};

const MINUTE: Option<Duration> = Some(Duration::from_secs(60));

/// Each rate of the catalogue against each window that the dialect of its entry names.
#[test]
fn window_of_the_catalogue_names_one_limit() {
    let config = Config::load(&Sources::new(), 1).unwrap();
    let (mut named, none): (usize, &[Limit]) = (0, &[]);
    for vendor in config.vendors().iter() {
        let of_endpoints = vendor.endpoints.iter().map(|endpoint| &endpoint.limits[..]);
        for own in of_endpoints.chain([none]) {
            let limits = || vendor.limits.iter().chain(own);
            for name in vendor.dialect.windows.iter().filter_map(|rule| rule.name.as_deref()) {
                let is_part = |limit: &Limit| plain(name).contains(&plain(&limit.name));
                if limits().any(|limit| matches!(limit.kind, LimitKind::Rate(_)) && is_part(limit)) {
                    assert!(configured(name, None, limits()).is_some(), "{}: {name}", vendor.name);
                    named += 1;
                }
            }
        }
    }
    assert!(named >= 5, "{named}");
}

#[test]
fn equal_name_goes_before_a_part_of_it() {
    let config = Config::load(&Sources::new(), 1).unwrap();
    let xero = config.vendor("xero", "live").unwrap();
    for (name, length, expected) in [
        ("app-minute", MINUTE, Some(10_000)),
        ("App_Minute", None, Some(10_000)),
        ("minute", MINUTE, Some(60)),
        ("per-day", None, Some(5_000)),
        ("the-app-minute", MINUTE, None),
        ("tokens", MINUTE, None),
        ("", Some(Duration::from_secs(86_400)), Some(5_000)),
        ("", MINUTE, None),
    ] {
        assert_eq!(configured(name, length, xero.limits.iter()), expected, "{name}");
    }
}
