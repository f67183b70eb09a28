#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

#[test]
fn outline_survives_invalid_values() {
    let text = "[[tenants]]\nid = \"a\"\nvendor = 5\nweigth = 0\n[[tenants]]\nvendor = \"v\"\n[vendor.v]\nx = 1\n";
    let outline = Outline::of(text).unwrap();
    assert_eq!(outline.keys, ["tenants", "vendor"]);
    let names: Vec<_> = outline.tenants.iter().map(|tenant| (tenant.id.as_deref(), tenant.vendor.as_deref())).collect();
    assert_eq!(names, [(Some("a"), None), (None, Some("v"))]);
    let single = Outline::of("[tenants]\nid = \"a\"\n").unwrap();
    assert_eq!(single.tenants.first().and_then(|tenant| tenant.id.as_deref()), Some("a"));
    assert!(Outline::of("[[tenants]\n").is_none());
}

#[test]
fn tenant_ids_come_from_all_texts() {
    let table = |id: &str| format!("[[tenants]]\nid = \"{id}\"\nvendor = \"v\"\n");
    let sources = Sources::new().file("f", table("a")).over("o", table("b")).row("r", table("c"));
    let sources = sources.tenant(crate::config::TenantEntry::new("d", "v"));
    assert_eq!(sources.tenant_ids().into_iter().collect::<Vec<_>>(), ["a", "b", "c", "d"]);
}
