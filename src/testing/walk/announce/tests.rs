use super::*;
use crate::config::{Config, Sources};

/// Vendors of which no recorded answer and no documentation says how they announce: they announce as `default` does.
const UNDOCUMENTED: [&str; 18] = [
    "aircall",
    "asana",
    "atlassian-assets",
    "brevo",
    "bunq",
    "codat",
    "coinbase",
    "dropbox",
    "gocardless",
    "intercom",
    "mailgun",
    "npm",
    "openrouter",
    "pipedrive",
    "rapidapi",
    "sentry",
    "servicenow",
    "xentral",
];

#[test]
fn vendors_without_announcements_are_named() {
    let table: BTreeMap<String, Announced> = toml::from_str(TABLE).unwrap();
    let config = Config::load(&Sources::new(), 1).unwrap();
    let mut without: Vec<&str> = config.vendors().names().filter(|name| !table.contains_key(*name)).collect();
    without.sort_unstable();
    assert_eq!(without, UNDOCUMENTED);
    let is_vendor = |name: &str| config.vendors().names().any(|vendor| vendor == name);
    let unknown: Vec<&String> = table.keys().filter(|name| *name != "default" && !is_vendor(name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}
