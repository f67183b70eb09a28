use std::sync::Arc;

use super::*;
use crate::config::{Config, Sources};

fn route(idempotency: &str) -> Arc<Route> {
    let text = format!(
        "[vendors.v]\nbase_url = \"https://v.example/base\"\nauth = {{ scheme = \"none\" }}\nunpublished = true\n\
         [vendors.v.idempotency]\n{idempotency}\n[[tenants]]\nid = \"a\"\nvendor = \"v\"\n"
    );
    let config = Config::load(&Sources::new().without_catalogue().file("vendors.toml", text), 1).unwrap();
    Route::alone(Arc::unwrap_or_clone(config.tenant("a", "v").unwrap()))
}

/// What [`is_stated`] says of a request is what [`add_key`] does with it.
#[test]
fn stated_key_counts_if_it_is_sent() {
    let header = "header = \"idempotency-key\"";
    let keyed = "header = \"idempotency-key\"\npaths = [\"/keyed/**\"]";
    let posts = "header = \"idempotency-key\"\nmethods = [\"POST\"]\non_unsendable = \"warn\"";
    let short = "header = \"idempotency-key\"\nmax_length = 32\non_unsendable = \"warn\"";
    let (query, member) = ("query = \"requestid\"", "body = \"key\"\non_unsendable = \"warn\"");
    let nowhere = "on_unsendable = \"warn\"";
    let post = |path: &str| Request::post("v", path).body("{}");
    let with_header = |request: Request| request.header("Idempotency-Key", "key-7");
    let stated = |request: Request| request.idempotency_key("key-7");
    for (number, (entry, request, is_sent)) in [
        (header, with_header(post("/x")), true),
        (header, stated(post("/x")), true),
        (header, stated(with_header(post("/x"))), true),
        (header, with_header(post("/x")).idempotency_key("key-8"), false),
        (header, post("/x"), false),
        (header, post("/x").header("Idempotency-Key", ""), false),
        (header, with_header(Request::put("v", "/x")), false),
        (keyed, with_header(post("/keyed/1?a=b")), true),
        (keyed, with_header(post("/x")), false),
        (keyed, stated(post("/x")), false),
        (posts, with_header(Request::patch("v", "/x")), false),
        (posts, stated(Request::patch("v", "/x")), false),
        (short, stated(post("/x")), true),
        (short, post("/x").idempotency_key("key-7".repeat(7)), false),
        (query, post("/x?requestid=key-7"), true),
        (query, stated(post("/x?a=b")), true),
        (member, post("/x").body("{\"key\":\"key-7\"}"), true),
        (member, stated(post("/x")), true),
        (member, stated(post("/x").body("a=b")), false),
        (nowhere, with_header(post("/x")), false),
        (nowhere, stated(post("/x")), false),
    ]
    .into_iter()
    .enumerate()
    {
        let (mut request, route) = (request, route(entry));
        assert_eq!(is_stated(&request, &route), is_sent, "{number}");
        let mut notes = request.parts.notes.take();
        let has_key = add_key(&mut request, &mut notes, &route, &route.base().unwrap()).unwrap_or(false);
        let key = notes.and_then(|notes| notes.idempotency_key).filter(|_| has_key);
        assert_eq!(key.as_deref() == Some("key-7"), is_sent, "{number}: {key:?}");
    }
}

#[test]
fn new_keys_are_32_hex_digits() {
    let keys: std::collections::BTreeSet<Box<str>> = (0..10_000).map(|_| new_key().unwrap()).collect();
    assert_eq!(keys.len(), 10_000);
    assert!(keys.iter().all(|key| key.len() == 32 && key.bytes().all(|b| b.is_ascii_hexdigit())));
    // Each of the 128 bits is set in about half of the keys: five standard deviations are 250.
    for bit in 0..128 {
        let set = keys.iter().filter(|key| u128::from_str_radix(key, 16).unwrap() >> bit & 1 == 1).count();
        assert!((4_750..=5_250).contains(&set), "bit {bit} is set in {set} of 10,000 keys");
    }
}
