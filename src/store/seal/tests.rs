#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

fn sealer(keys: &[u8]) -> Sealer {
    let keys: Vec<SecretString> = keys.iter().map(|key| BASE64.encode([*key; KEY]).into()).collect();
    Sealer::new(&keys).unwrap()
}

#[test]
fn sealed_text_opens_for_its_job_only() {
    let (id, other) = (Id::from_u128(1), Id::from_u128(2));
    let text = b"{\"body\":\"word\"}".to_vec();
    let sealed = sealer(&[1]).seal(&id, text.clone()).unwrap();
    assert!(!sealed.windows(4).any(|window| window == b"word"));
    assert_eq!(sealer(&[1]).open(&id, &sealed), Some(text.clone()));
    assert_eq!(sealer(&[2, 1]).open(&id, &sealed), Some(text.clone()), "an old key still opens");
    assert_eq!(sealer(&[1]).open(&other, &sealed), None);
    assert_eq!(sealer(&[2]).open(&id, &sealed), None);
    for place in 0..sealed.len() {
        let mut changed = sealed.clone();
        changed[place] ^= 4;
        assert_ne!(sealer(&[1]).open(&id, &changed), Some(text.clone()), "{place}");
        assert_ne!(sealer(&[1]).open(&id, &sealed[..place]), Some(text.clone()), "{place}");
    }
    assert_ne!(sealer(&[1]).seal(&id, text.clone()), Some(sealed), "each has a nonce of its own");
    assert_eq!(sealer(&[]).open(&id, &text), Some(text.clone()), "what is not sealed is as it was");
    assert_eq!(sealer(&[]).seal(&id, text), None);
}

#[test]
fn mark_depends_on_parts_and_oldest_key() {
    let mark = |keys: &[u8], parts: &[&str]| sealer(keys).mark(parts);
    assert_eq!(mark(&[1], &["acme", "order-17"]), mark(&[1], &["acme", "order-17"]));
    assert_eq!(mark(&[2, 1], &["acme", "order-17"]), mark(&[1], &["acme", "order-17"]), "a new key in front");
    assert_ne!(mark(&[1], &["acme", "order-17"]), mark(&[2], &["acme", "order-17"]));
    assert_ne!(mark(&[1], &["acme", "order-17"]), mark(&[1], &["acm", "eorder-17"]));
    assert_eq!(mark(&[], &["acme"]), None);
}

#[test]
fn invalid_seal_key_is_refused_unshown() {
    for text in ["", "secret", "c2VjcmV0"] {
        let error = Sealer::new(&[text.into()]).err().unwrap().to_string();
        assert!(error.contains("32 bytes") && !error.contains("c2VjcmV0"), "{error}");
    }
}
