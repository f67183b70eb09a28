//! The idempotency key of a request: stated by the caller or generated, and put where the vendor's entry says.

mod carried;

use url::Url;

use crate::config::OnUnsendable;
use crate::error::{Error, ErrorKind};
use crate::request::{Notes, Request};
use crate::route::Route;
use carried::Carried;

/// Makes an idempotency key: 128 bits of a cryptographic generator, in hexadecimal. It cannot be guessed from other
/// keys; otherwise a party that sees some keys (a vendor, a log) could send a request under another tenant's key.
/// `None` if the system has no source of randomness.
fn new_key() -> Option<Box<str>> {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes).ok()?;
    Some(format!("{:032x}", u128::from_be_bytes(bytes)).into())
}

/// Whether the caller has stated an idempotency key, by which the vendor recognises a repeated request.
#[cfg_attr(not(feature = "gateway"), allow(dead_code, reason = "the gateway asks"))]
pub(crate) fn is_stated(request: &Request, route: &Route) -> bool {
    let has_note = request.parts.notes.as_ref().is_some_and(|notes| notes.idempotency_key.is_some());
    let carrier = route.vendor.idempotency.carrier.as_ref();
    has_note || carrier.is_some_and(|carrier| matches!(carried::find(request, carrier), Carried::Key(_)))
}

/// Puts the idempotency key of a request where the vendor's entry says. The key is the caller's, or else a new one if
/// the entry covers the request. Returns whether the request carries a key now. A request without a key is not sent
/// again if the vendor may have acted.
///
/// # Errors
/// The caller stated a key that cannot be sent, and the entry does not allow such a request to be sent without it.
pub(super) fn add_key(
    request: &mut Request,
    notes: &mut Option<Box<Notes>>,
    route: &Route,
    base: &Url,
) -> Result<bool, Error> {
    let how = &route.vendor.idempotency;
    let stated = notes.as_ref().and_then(|notes| notes.idempotency_key.clone());
    let Some(carrier) = &how.carrier else {
        if stated.is_none() {
            return Ok(false);
        }
        return unsendable(notes, route, &no_carrier(&route.vendor.name));
    };
    if !how.covers(&request.parts.method, request.path_below(base)?) {
        if stated.is_none() {
            return Ok(false);
        }
        return unsendable(notes, route, &not_covered(route, request));
    }
    let key = match (stated, carried::find(request, carrier)) {
        (Some(key), Carried::Key(there)) if key == there => key,
        (Some(_), Carried::Key(_) | Carried::Other) => {
            let why =
                format_args!("the request has another key in {} already; state one of them", carried::place(carrier));
            return Err(route.not_sent(ErrorKind::InvalidRequest, why));
        }
        (None, Carried::Key(there)) => there,
        (None, Carried::Other) => return Ok(false),
        (Some(key), Carried::Nothing) if key.len() > how.max_length => {
            let why = format!("it has {} characters, and this vendor takes at most {}", key.len(), how.max_length);
            return unsendable(notes, route, &why);
        }
        (Some(key), Carried::Nothing) => match carried::put(request, carrier, &key) {
            Ok(()) => key,
            Err(why) => return unsendable(notes, route, why),
        },
        (None, Carried::Nothing) => {
            let Some(key) = new_key() else { return Ok(false) };
            if carried::put(request, carrier, &key).is_err() {
                return Ok(false);
            }
            key
        }
    };
    notes.get_or_insert_default().idempotency_key = Some(key);
    Ok(true)
}

fn no_carrier(vendor: &str) -> String {
    format!(
        "the vendor's entry does not say how it takes keys; if it does, add to the entry: [vendors.{vendor}.idempotency] \
         header = \"idempotency-key\" (or query = \"NAME\", or body = \"NAME\" for a member of a JSON body)"
    )
}

fn not_covered(route: &Route, request: &Request) -> String {
    let (how, method) = (&route.vendor.idempotency, &request.parts.method);
    let vendor = &route.vendor.name;
    if how.takes_method(method) {
        return format!(
            "the vendor's entry names paths that take keys (`paths` in [vendors.{vendor}.idempotency]), and this is none \
             of them"
        );
    }
    format!(
        "the vendor's entry says that {} carry keys, and this is a {method}; if it takes them with {method} too, add it to \
         `methods` in [vendors.{vendor}.idempotency]",
        how.methods.join(", ")
    )
}

/// Decides what happens to a request whose stated key cannot be sent, because of `why`: an error, or a warning and no
/// key.
fn unsendable(notes: &mut Option<Box<Notes>>, route: &Route, why: &str) -> Result<bool, Error> {
    // An accepted request carries its key where the entry put it at acceptance, which is what its caller was promised.
    if notes.as_ref().is_some_and(|notes| notes.key_was_accepted) {
        return Ok(false);
    }
    if route.vendor.idempotency.on_unsendable == OnUnsendable::Warn {
        if route.is_first_unsent_key() {
            let (tenant, vendor) = (&*route.id, &*route.vendor.name);
            tracing::warn!(tenant, vendor, why, "a request is sent without the idempotency key that its caller stated");
        }
        // No attempt carries the key, so a dead letter of the request must not state it.
        if let Some(notes) = notes {
            notes.idempotency_key = None;
        }
        return Ok(false);
    }
    let why = format_args!(
        "the idempotency key cannot be sent: {why}; leave the key out, or write on_unsendable = \"warn\" there to send the \
         request without it"
    );
    Err(route.not_sent(ErrorKind::InvalidRequest, why))
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
