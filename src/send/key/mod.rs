//! The idempotency key of a request: stated by the caller or generated, and put where the vendor's entry says.

mod carried;

use std::borrow::Cow;

use url::Url;

use crate::config::{KeyCarrier, OnUnsendable};
use crate::error::{Error, ErrorKind};
use crate::request::{Notes, Request};
use crate::route::Route;
use carried::{Carried, Fit};

/// Makes an idempotency key: 128 bits of a cryptographic generator, in hexadecimal. It cannot be guessed from other
/// keys; otherwise a party that sees some keys (a vendor, a log) could send a request under another tenant's key.
/// `None` if the system has no source of randomness.
fn new_key() -> Option<Box<str>> {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes).ok()?;
    Some(format!("{:032x}", u128::from_be_bytes(bytes)).into())
}

/// What becomes of the idempotency key of a request.
enum Decision<'r> {
    /// The request is sent without a key, and its caller stated none that counts here.
    NoKey,
    /// The caller put this key where the vendor reads it.
    InPlace(Box<str>),
    /// This key, which the caller stated, is put where the vendor reads it.
    Put(Fit<'r>, &'r str),
    /// The caller stated no key, and the request gets a new one.
    Make(&'r KeyCarrier),
    /// The key that the caller stated cannot be sent, for this reason.
    Unsendable(Cow<'static, str>),
}

/// Decides what becomes of the key of a request. `stated` is the key that the caller stated beside the request.
///
/// # Errors
/// The request has another key already, or is for another host.
fn decide<'r>(request: &Request, stated: Option<&'r str>, route: &'r Route, base: &Url) -> Result<Decision<'r>, Error> {
    let how = &route.vendor.idempotency;
    let Some(carrier) = &how.carrier else {
        let unsendable = || Decision::Unsendable(no_carrier(&route.vendor.name).into());
        return Ok(stated.map_or(Decision::NoKey, |_| unsendable()));
    };
    if !how.covers(&request.parts.method, request.path_below(base)?) {
        let unsendable = || Decision::Unsendable(not_covered(route, request).into());
        return Ok(stated.map_or(Decision::NoKey, |_| unsendable()));
    }
    Ok(match (stated, carried::find(request, carrier)) {
        (Some(key), Carried::Key(there)) if *key == *there => Decision::InPlace(there),
        (Some(_), Carried::Key(_) | Carried::Other) => {
            let why =
                format_args!("the request has another key in {} already; state one of them", carried::place(carrier));
            return Err(route.not_sent(ErrorKind::InvalidRequest, why));
        }
        (None, Carried::Key(there)) => Decision::InPlace(there),
        (None, Carried::Other) => Decision::NoKey,
        (Some(key), Carried::Nothing) if key.len() > how.max_length => {
            let why = format!("it has {} characters, and this vendor takes at most {}", key.len(), how.max_length);
            Decision::Unsendable(why.into())
        }
        (Some(key), Carried::Nothing) => match carried::fit(request, carrier, key) {
            Ok(fit) => Decision::Put(fit, key),
            Err(why) => Decision::Unsendable(why.into()),
        },
        (None, Carried::Nothing) => Decision::Make(carrier),
    })
}

/// Whether the vendor takes an idempotency key with a request of this method and path. A request that names another
/// host is never sent.
#[cfg_attr(not(any(feature = "gateway", feature = "tower")), allow(dead_code, reason = "gateway and tower ask"))]
pub(crate) fn is_covered(request: &Request, route: &Route) -> bool {
    let Ok(base) = route.base() else { return false };
    request.path_below(&base).is_ok_and(|path| route.vendor.idempotency.covers(&request.parts.method, path))
}

/// Whether the vendor keeps the keys of both routes together. It keeps them by account, and separately in each of its
/// environments and at each of its hosts.
pub(super) fn are_kept_together(before: &Route, now: &Route) -> bool {
    let has_same_host = || match (before.base(), now.base()) {
        (Ok(old), Ok(new)) => old.origin() == new.origin(),
        _ => false,
    };
    before.account == now.account && before.vendor.environment == now.vendor.environment && has_same_host()
}

/// Whether the request will be sent with an idempotency key that its caller stated and the vendor reads. A repetition
/// by the caller then has the same key. A key that the client makes is another one in each repetition.
#[cfg_attr(not(feature = "gateway"), allow(dead_code, reason = "the gateway asks"))]
pub(crate) fn is_stated(request: &Request, route: &Route) -> bool {
    let stated = request.parts.notes.as_ref().and_then(|notes| notes.idempotency_key.as_deref());
    let Ok(base) = route.base() else { return false };
    matches!(decide(request, stated, route, &base), Ok(Decision::InPlace(_) | Decision::Put(..)))
}

/// Puts the idempotency key of a request where the vendor's entry says. The key is the caller's, or else a new one if
/// the entry covers the request; a request that was accepted without a key gets none. Returns whether the request
/// carries a key now. A request without a key is not sent again if the vendor may have acted.
///
/// # Errors
/// The caller stated a key that cannot be sent, and the entry does not allow such a request to be sent without it.
pub(super) fn add_key(
    request: &mut Request,
    notes: &mut Option<Box<Notes>>,
    route: &Route,
    base: &Url,
) -> Result<bool, Error> {
    let stated = notes.as_ref().and_then(|notes| notes.idempotency_key.clone());
    let key = match decide(request, stated.as_deref(), route, base)? {
        Decision::NoKey => return Ok(false),
        Decision::InPlace(key) => key,
        Decision::Put(fit, key) => {
            fit.put(request, key);
            key.into()
        }
        Decision::Make(_) if notes.as_ref().is_some_and(|notes| notes.accepted_without_key) => return Ok(false),
        Decision::Make(carrier) => {
            let Some(key) = new_key() else { return Ok(false) };
            let Ok(fit) = carried::fit(request, carrier, &key) else { return Ok(false) };
            fit.put(request, &key);
            key
        }
        Decision::Unsendable(why) => return unsendable(notes, route, &why),
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
}
