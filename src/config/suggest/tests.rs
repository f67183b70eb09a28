use super::*;

#[test]
fn suggestion_recognises_typos_only() {
    let names = ["github", "gitlab", "stripe"];
    assert_eq!(nearest("gihtub", names), Some("github"));
    assert_eq!(nearest("Stripe", names), Some("stripe"));
    assert_eq!(nearest("salesforce", names), None);
    assert_eq!(nearest("", names), None);
    assert_eq!(nearest(&"g".repeat(10_000), names), None);
}

#[test]
fn suggestion_includes_keys_with_a_common_word() {
    let keys = ["connect_timeout", "attempt_timeout", "retry", "safety"];
    assert_eq!(related("timeout", keys), ["connect_timeout", "attempt_timeout"]);
    assert_eq!(related("retries", keys), ["retry"]);
    assert_eq!(related("colour", keys), [""; 0]);
}

#[test]
fn hint_lists_names_when_nothing_is_near() {
    assert_eq!(hint("zzz", "vendors", ["a", "b"]), "vendors: a, b");
    assert_eq!(hint("zzz", "vendors", []), "there are no vendors");
}
