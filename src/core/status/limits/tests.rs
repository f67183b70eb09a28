use super::*;
use crate::config::{Config, Sources};

#[test]
fn resting_tenant_shows_its_entrys_limits() {
    let text = "[vendors.v]\nbase_url = \"https://v.example\"\n[[vendors.v.limits]]\nname = \"hour\"\nlimit = 5000\n\
                window = \"1h\"\nalgorithm = \"fixed_window\"\nceiling = 0.9\n[[vendors.v.limits]]\nname = \"parallel\"\n\
                concurrency = 10\n[vendors.v.endpoints.search]\npaths = [\"/search\"]\n[[vendors.v.endpoints.search.limits]]\n\
                name = \"search\"\nlimit = 30\nwindow = \"1m\"\nalgorithm = \"fixed_window\"\n";
    let config = Config::load(&Sources::new().without_catalogue().file("f.toml", text), 1).unwrap();
    let shown = resting(&config.vendor("v", "live").unwrap());
    let shown: Vec<_> =
        shown.iter().map(|limit| (&*limit.name, limit.endpoint.as_deref(), limit.limit, limit.guard)).collect();
    assert_eq!(shown, [("hour", None, 5_000, 4_500), ("parallel", None, 10, 10), ("search", Some("search"), 30, 30)]);
}
