//! The idempotency key of a request.

use http::HeaderValue;

use crate::config::Vendor;
use crate::request::{Method, Notes, Request};

/// Makes an idempotency key: 128 bits of a cryptographic generator, in hexadecimal. It cannot be guessed from other keys;
/// otherwise a party that sees some keys (a vendor, a log) could send a request under another tenant's key. `None` if the
/// system has no source of randomness.
fn new_key() -> Option<Box<str>> {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes).ok()?;
    Some(format!("{:032x}", u128::from_be_bytes(bytes)).into())
}

/// Adds the idempotency key, if the vendor accepts one: the caller's, or for POST and PATCH a new one. Returns whether the
/// request now has a key; without one it is not sent again after an ambiguous outcome.
pub(super) fn add_key(request: &mut Request, notes: &mut Option<Box<Notes>>, vendor: &Vendor) -> bool {
    let Some(header) = &vendor.retry.idempotency_header else { return false };
    let Ok(header) = http::HeaderName::from_bytes(header.as_bytes()) else { return false };
    let own = notes.as_ref().and_then(|notes| notes.idempotency_key.clone());
    // A caller may also have set the header itself.
    let own = own.or_else(|| request.parts.headers.get(&header)?.to_str().ok().map(Into::into));
    let key = match own {
        Some(key) => key,
        None if matches!(request.parts.method, Method::POST | Method::PATCH) => {
            let Some(key) = new_key() else { return false };
            notes.get_or_insert_default().idempotency_key = Some(key.clone());
            key
        }
        None => return false,
    };
    match HeaderValue::from_str(&key) {
        Ok(value) => {
            request.parts.headers.insert(header, value);
            notes.get_or_insert_default().idempotency_key = Some(key);
            true
        }
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_keys_are_32_hex_digits() {
        let keys: std::collections::BTreeSet<Box<str>> = (0..10_000).map(|_| new_key().unwrap()).collect();
        assert_eq!(keys.len(), 10_000);
        assert!(keys.iter().all(|key| key.len() == 32 && key.bytes().all(|b| b.is_ascii_hexdigit())));
        // Each of the 128 bits is set in about half of them: five standard deviations are 250.
        for bit in 0..128 {
            let set = keys.iter().filter(|key| u128::from_str_radix(key, 16).unwrap() >> bit & 1 == 1).count();
            assert!((4_750..=5_250).contains(&set), "bit {bit} is set in {set} of 10,000 keys");
        }
    }
}
