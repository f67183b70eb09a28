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
mod tests;
