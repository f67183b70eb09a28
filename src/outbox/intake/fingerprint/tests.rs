use super::*;

#[test]
fn fingerprints_tell_requests_apart() {
    let post = || Request::post("v", "/orders").header("a", "b").body("one").cost("points", 2);
    let same = fingerprint(&post());
    assert_eq!(fingerprint(&post()), same);
    let others = [
        post().body("two"),
        post().header("a", "c"),
        post().query("q", 1),
        post().cost("points", 3),
        post().idempotency_key("k"),
        post().endpoint("orders"),
        Request::put("v", "/orders").header("a", "b").body("one").cost("points", 2),
        Request::post("v", "/orders/").header("a", "b").body("one").cost("points", 2),
        Request::post("w", "/orders").header("a", "b").body("one").cost("points", 2),
    ];
    for other in others {
        assert_ne!(fingerprint(&other), same, "{other:?}");
    }
}
