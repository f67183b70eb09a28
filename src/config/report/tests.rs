//! Tests of lists of findings.

use super::*;

#[test]
fn lines_and_columns_count_from_one() {
    assert_eq!(line_column("", 0), (1, 1));
    assert_eq!(line_column("ab\nçd", 5), (2, 2));
    assert_eq!(line_column("ab\nçd", 4), (2, 1), "inside a character: its start");
    assert_eq!(line_column("ab", 99), (1, 3));
}

#[test]
fn missing_value_points_at_the_nearest_table() {
    let text = "[vendors.a]\n[[vendors.a.limits]]\nname = \"x\"\nlimit = 3\n";
    let file = Text { name: "f.toml", text };
    let base = vec!["vendors".into(), "a".into()];
    let layers = [Layer { file: Some(file), base }];
    let mut messages = Messages::default();
    let problem = |path: Path| Problem { path, message: "m".into() };
    let named = |rest: &str| vec!["limits".into(), Step::Named("x".into()), rest.into()];
    assert_eq!(
        messages.place(&layers, &problem(named("limit"))).to_string(),
        "f.toml:4:9: vendors.a.limits.x.limit: m"
    );
    assert_eq!(
        messages.place(&layers, &problem(named("window"))).to_string(),
        "f.toml:2:1: vendors.a.limits.x.window: m"
    );
    assert_eq!(messages.place(&layers, &problem(vec!["auth".into()])).to_string(), "f.toml:1:10: vendors.a.auth: m");
}

#[test]
fn findings_beyond_the_room_are_counted() {
    let finding = |number: usize| Finding {
        file: Some(format!("row {}", number / 2)),
        line: 2 - number % 2,
        column: 1,
        ..Finding::plain("m".into())
    };
    let filled = |mut messages: Messages<'static>| {
        (0..20_000).for_each(|number| messages.push(finding(number)));
        messages
    };
    let error = filled(Messages::default()).into_error().to_string();
    assert_eq!(error.lines().count(), LISTED + 1);
    assert!(error.starts_with("row 0:1:1: m\nrow 0:2:1: m\nrow 1:1:1: m\n"), "{error}");
    assert!(error.ends_with("\nand 19980 more"), "{error}");
    // Those who leave out the rows that cannot be parsed learn of each of them.
    let findings = filled(Messages::of_check()).into_findings();
    let files: HashSet<&str> = findings.iter().filter_map(|finding| finding.file.as_deref()).collect();
    assert_eq!((files.len(), findings.len()), (10_000, LISTED_BY_CHECK + 10_000 - LISTED_BY_CHECK / 2 + 1));
    assert_eq!(findings.last().unwrap().message, "and 9500 more");
    // A finding that is known already is none.
    let mut messages = Messages::default();
    (0..100).for_each(|_| messages.push(finding(0)));
    assert_eq!(messages.into_findings().len(), 1);
}
