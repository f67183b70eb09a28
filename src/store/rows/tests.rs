//! Tests of `rows`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use super::*;
use crate::config::ProblemKind;

const VENDOR: &str =
    "[vendors.v]\nbase_url = \"https://v.example\"\nauth = { scheme = \"none\" }\nunpublished = true\n";

fn sources_without_rows() -> Sources {
    Sources::new().without_catalogue().file("vendors.toml", VENDOR)
}

fn tenant(id: &str) -> String {
    format!("[[tenants]]\nid = \"{id}\"\nvendor = \"v\"\n")
}

fn rows(rows: &[(&str, &str)]) -> Rows {
    rows.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

#[track_caller]
fn tenants(read: &Read) -> Vec<String> {
    let config = Config::load(&read.sources, 1).unwrap();
    ["a", "b", "c"].iter().filter(|id| config.tenant(id, "v").is_ok()).map(|id| (*id).to_owned()).collect()
}

#[test]
fn invalid_row_does_not_block_the_others() {
    let before = rows(&[("a", &tenant("a"))]);
    let now = rows(&[("a", "[[tenants]\n"), ("b", &tenant("b")), ("c", "[[tenants]]\nid = \"c\"\nvendor = \"w\"\n")]);
    let read = lay(&sources_without_rows(), &now, Some(&before));
    assert_eq!(tenants(&read), ["a", "b"]);
    let why = &read.sources.problem().unwrap().why;
    assert!(why.contains("row `a`") && why.contains("row `c`") && !why.contains("row `b`"), "{why}");
    assert!(read.sources.problem().is_some_and(|problem| problem.kind == ProblemKind::Invalid));
    assert_eq!(read.used.unwrap(), rows(&[("a", &tenant("a")), ("b", &tenant("b"))]));
}

#[test]
fn row_invalidated_by_others_refuses_all() {
    let before = rows(&[("a", &tenant("a"))]);
    let empty = Sources::new().without_catalogue().file("vendors.toml", "# the vendor is gone");
    let read = lay(&empty, &before, Some(&before));
    assert!(read.used.is_none() && Config::load(&read.sources, 1).is_err());
}

#[test]
fn invalid_row_at_start_is_left_out() {
    let read = lay(&sources_without_rows(), &rows(&[("a", "[[tenants]\n"), ("b", &tenant("b"))]), None);
    assert_eq!(tenants(&read), ["b"]);
    let read = lay(&sources_without_rows(), &rows(&[("a", "[vendors.v\n"), ("b", &tenant("b"))]), None);
    assert!(read.used.is_none());
    let error = Config::load(&read.sources, 1).unwrap_err();
    assert!(error.to_string().contains("row `a` of ic_config"), "{error}");
}
#[test]
fn row_that_may_lift_limits_refuses_start() {
    let below = sources_without_rows().file("tenants.toml", tenant("acme"));
    let other = tenant("b");
    for (row, expected) in [
        // These may state a vendor, or how limits are shared.
        ("[vendor.v]\nsafety = 0.5\n", None),
        ("[sharing]\nthrough = \"store\"\nlease = \"ten\"\n", None),
        ("[sharing\nthrough = \"store\"\n", None),
        // The tenant of the file has looser limits.
        ("[[tenants]]\nid = \"acme\"\nvendor = \"v\"\nshare = 7.0\n", None),
        ("[[tenants]]\nid = \"acme\"\nvendor = \"w\"\nshare = 0.5\n", None),
        ("[[tenants]\nid = \"acme\"\n", None),
        ("[[tenants]]\nvendor = \"v\"\nshare = 0.5\n", None),
        // The text is that of the other row, and it is not known which of the two is right.
        (other.as_str(), None),
        // No limit depends on these.
        ("[[tenants]]\nid = \"c\"\nvendor = \"v\"\nshare = 7.0\n", Some(["z"])),
        ("[[tenants]\nid = \"c\"\n", Some(["z"])),
        ("[[callers]]\nname = \"x\"\ntenants = []\n", Some(["z"])),
    ] {
        let read = lay(&below, &rows(&[("a", row), ("z", &other)]), None);
        let names = read.used.as_ref().map(|used| used.keys().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(names.as_deref(), expected.as_ref().map(|names| &names[..]), "{row}");
        let error = Config::load(&read.sources, 1).err().map(|error| error.to_string());
        assert_eq!(error.is_some_and(|error| error.contains(" of ic_config")), expected.is_none(), "{row}");
    }
}

#[test]
fn row_that_invalidates_another_is_left_out() {
    // The error stands at `b`, the second row with this tenant, which did not change.
    let before = rows(&[("b", &tenant("b"))]);
    let now = rows(&[("a", &tenant("b")), ("b", &tenant("b")), ("c", &tenant("c"))]);
    let read = lay(&sources_without_rows(), &now, Some(&before));
    assert_eq!(tenants(&read), ["b", "c"]);
    assert_eq!(read.used.as_ref().unwrap(), &rows(&[("b", &tenant("b")), ("c", &tenant("c"))]));
    let why = &read.sources.problem().unwrap().why;
    assert!(why.contains("row `a` of ic_config: with it the others are invalid"), "{why}");
}

#[test]
fn changed_row_that_others_need_counts_as_before() {
    let vendor = VENDOR.replace("vendors.v", "vendors.w");
    let of_w = "[[tenants]]\nid = \"b\"\nvendor = \"w\"\n";
    let before = rows(&[("b", of_w), ("w", &vendor)]);
    let now = rows(&[("b", of_w), ("w", "# gone"), ("c", &tenant("c"))]);
    let read = lay(&sources_without_rows(), &now, Some(&before));
    assert_eq!(read.used.unwrap(), rows(&[("b", of_w), ("w", &vendor), ("c", &tenant("c"))]));
}

#[test]
fn deleted_row_that_others_need_stays() {
    let vendor = VENDOR.replace("vendors.v", "vendors.w");
    let of_w = "[[tenants]]\nid = \"b\"\nvendor = \"w\"\n";
    let before = rows(&[("a", &tenant("a")), ("b", of_w), ("w", &vendor)]);
    let now = rows(&[("b", of_w), ("c", &tenant("c"))]);
    let read = lay(&sources_without_rows(), &now, Some(&before));
    let used = read.used.unwrap();
    assert_eq!(used, rows(&[("b", of_w), ("c", &tenant("c")), ("w", &vendor)]));
    let why = &read.sources.problem().unwrap().why;
    assert!(why.contains("row `w` of ic_config was deleted, but others need it"), "{why}");
    assert!(!why.contains("row `a`") && !why.contains("row `c`"), "{why}");
    // The next reading knows the row from the one before, until nothing needs it any more.
    assert_eq!(lay(&sources_without_rows(), &now, Some(&used)).used.unwrap(), used);
    let read = lay(&sources_without_rows(), &rows(&[("c", &tenant("c"))]), Some(&used));
    assert!(read.wrong.is_none(), "{:?}", read.wrong);
    assert_eq!(read.used.unwrap(), rows(&[("c", &tenant("c"))]));
}

#[test]
fn culprit_among_many_new_rows_is_found() {
    let before = rows(&[("b", &tenant("b"))]);
    let mut now = before.clone();
    now.extend((0..200).map(|number| (format!("a{number:03}"), tenant(&format!("t{number}")))));
    // A tenant's row precedes that of its vendor.
    now.insert("a050".to_owned(), "[[tenants]]\nid = \"t50\"\nvendor = \"w\"\n".to_owned());
    now.insert("z".to_owned(), VENDOR.replace("vendors.v", "vendors.w"));
    now.insert("a120".to_owned(), tenant("b"));
    let read = lay(&sources_without_rows(), &now, Some(&before));
    now.remove("a120");
    assert!(read.used.unwrap() == now, "{:?}", read.wrong);
}

#[test]
fn rows_override_texts_of_servers() {
    let looser = sources_without_rows().over("server", format!("{}weight = 9\n", tenant("a")));
    let read = lay(&looser, &rows(&[("a", &tenant("a"))]), None);
    assert_eq!(Config::load(&read.sources, 1).unwrap().tenant("a", "v").unwrap().weight, 1);
}

/// An effort that grew with the square of their number would take minutes.
#[test]
fn many_invalid_rows_are_left_out_quickly() {
    let before = rows(&[("z", &tenant("a"))]);
    let mut now = before.clone();
    now.extend((0..10_000).map(|number| (format!("a{number}"), "[[tenants]\n".to_owned())));
    now.extend((0..10_000).map(|number| (format!("b{number}"), tenant(&format!("t{number}")) + "weight = \"x\"\n")));
    now.insert("c".to_owned(), tenant("c") + "weight = 0\n");
    for before in [Some(&before), None] {
        let read = lay(&sources_without_rows(), &now, before);
        assert_eq!(tenants(&read), ["a"]);
        assert_eq!(read.used.unwrap().len(), 1);
        let why = &read.sources.problem().unwrap().why;
        assert!(why.ends_with("; and 19991 more rows"), "{why}");
    }
}
