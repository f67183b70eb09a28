use super::*;
use crate::config::Sources;

#[test]
fn shared_cold_starts_are_found() {
    let text = "[vendors.v]\nbase_url = \"https://v.test\"\nauth = { scheme = \"bearer\" }\n\
        [[vendors.v.limits]]\nname = \"cold\"\nlimit = 100\nwindow = \"1h\"\ncold_start = \"spent\"\n\
        [[vendors.v.limits]]\nname = \"alone\"\nlimit = 9\nwindow = \"1m\"\ncold_start = \"spent\"\n\
        shared = false\n\
        [[vendors.v.limits]]\nname = \"full\"\nlimit = 10\nwindow = \"2m\"\n";
    let config = Config::load(&Sources::new().without_catalogue().file("v", text), 1).unwrap();
    let found = spent_limits(&config);
    let found: Vec<(&str, &str)> = found.iter().map(|(vendor, limit)| (&**vendor, &**limit)).collect();
    assert_eq!(found, [("v", "cold")]);
}
