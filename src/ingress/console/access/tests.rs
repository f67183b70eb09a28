use super::*;
use crate::config::{Config, Sources};

#[test]
fn rights_need_access_to_all_tenants() {
    for (tenants, may, expected) in [
        ("\"*\"", "\"view\"", Some(Access::View)),
        ("\"*\"", "\"operate\"", Some(Access::Operate)),
        ("\"*\"", "\"send\", \"view\", \"operate\"", Some(Access::Operate)),
        ("\"*\"", "\"send\", \"async\"", None),
        ("\"acme\"", "\"send\"", None),
    ] {
        let text = format!("[[callers]]\nname = \"c\"\ntoken = \"env:T\"\ntenants = [{tenants}]\nmay = [{may}]\n");
        let config = Config::load(&Sources::new().without_catalogue().file("f.toml", text), 1).unwrap();
        assert_eq!(Access::of_caller(&config.callers()[0]), expected, "{tenants} {may}");
    }
    assert_eq!(Access::Operate.capped(true), Access::View);
    assert_eq!(Access::Operate.capped(false), Access::Operate);
    assert!(Access::Operate > Access::View);
}
