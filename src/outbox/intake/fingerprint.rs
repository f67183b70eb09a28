//! The fingerprint that shows whether a redelivered message holds the same request.

use crate::request::{Request, Target};
use crate::store::Id;

/// A hash of 122 bits over the request as the source stated it. It is computed before the client adds its own
/// idempotency key, which would differ for another delivery of the message.
pub(in crate::outbox) fn fingerprint(request: &Request) -> String {
    let parts = &*request.parts;
    let mut text = Vec::new();
    let mut add = |part: &[u8]| {
        text.extend_from_slice(&(part.len() as u64).to_le_bytes());
        text.extend_from_slice(part);
    };
    add(parts.method.as_str().as_bytes());
    match &parts.target {
        Target::Path { vendor, path } => [vendor.as_bytes(), path.as_bytes()].map(&mut add),
        Target::Url(url) => [&b""[..], url.as_str().as_bytes()].map(&mut add),
    };
    add(parts.query.as_bytes());
    add(&(parts.headers.len() as u64).to_le_bytes());
    for (name, value) in &parts.headers {
        add(name.as_str().as_bytes());
        add(value.as_bytes());
    }
    add(parts.body.as_bytes().unwrap_or_default());
    add(parts.endpoint.as_deref().unwrap_or_default().as_bytes());
    for (kind, units) in &parts.costs {
        add(kind.as_bytes());
        add(&units.to_le_bytes());
    }
    let key = parts.notes.as_ref().and_then(|notes| notes.idempotency_key.as_deref());
    add(key.unwrap_or_default().as_bytes());
    Id::new_v5(&Id::NAMESPACE_OID, &text).simple().to_string()
}

#[cfg(test)]
mod tests;
