//! Validates `secret_headers` of a vendor or a tenant: headers that carry secrets beside the credential.

use std::collections::BTreeSet;

use http::HeaderName;
use http::header::AUTHORIZATION;

use super::fields::check_header;
use crate::config::credential::CredentialRef;
use crate::config::idempotency::{Idempotency, KeyCarrier};
use crate::config::report::{Report, Step, at};
use crate::config::secret_headers::{SecretHeader, SecretHeaders};
use crate::config::vendor::AuthScheme;

/// The most headers with secrets of one request. Each is one more secret to read.
const MAX: usize = 8;

const FIELD: &str = "secret_headers";

/// The headers of this client begin with it: callers state options in them, and responses carry them.
const OWN: &str = "integration-";

/// Reports a list that is too long, and returns whether it is.
pub(in crate::config) fn too_many_secret_headers(entry: &SecretHeaders, path: &[Step], report: &mut Report) -> bool {
    let is_long = entry.len() > MAX;
    if is_long {
        report.problem(at(path, FIELD), format!("more than {MAX} headers with secrets"));
    }
    is_long
}

/// The headers that `entry` states; problems go to `report`.
pub(in crate::config) fn secret_headers(
    entry: &SecretHeaders,
    resolvers: &BTreeSet<String>,
    report: &mut Report,
) -> Vec<SecretHeader> {
    let mut out: Vec<SecretHeader> = Vec::new();
    if too_many_secret_headers(entry, &[], report) {
        return out;
    }
    for (written, reference) in entry.iter() {
        let path = at(&at(&[], FIELD), written);
        let parsed = |()| HeaderName::from_bytes(written.as_bytes()).map_err(|error| error.to_string());
        let name = match check_header(written).and_then(parsed) {
            Ok(name) if name == AUTHORIZATION => {
                Err("this header is for the credential; use `auth` in the vendor's entry and `credential`".to_owned())
            }
            Ok(name) if name.as_str().starts_with(OWN) => {
                Err(format!("headers that begin with `{OWN}` are this client's own and carry no secret; remove it"))
            }
            Ok(name) if out.iter().any(|known| known.name == name) => {
                Err("this header is stated twice (names have no case); remove one".to_owned())
            }
            other => other,
        };
        let name = name.map_err(|message| report.problem(path.clone(), message)).ok();
        let secret = CredentialRef::parse(reference, resolvers);
        let secret = secret.map_err(|message| report.problem(path, message)).ok();
        if let (Some(name), Some(secret)) = (name, secret) {
            out.push(SecretHeader { name, secret });
        }
    }
    out
}

/// Reports headers that requests to the vendor need for something else. `plain` are those of the same entry without
/// secrets.
pub(in crate::config) fn taken_headers(
    entry: &SecretHeaders,
    (auth, idempotency, plain): (&AuthScheme, &Idempotency, &[(String, String)]),
    report: &mut Report,
) {
    for (written, _) in entry.iter() {
        let is = |name: &str| name.eq_ignore_ascii_case(written);
        let message = if matches!(auth, AuthScheme::Header { name, .. } if is(name)) {
            "the vendor's `auth` puts the credential into this header; remove it here"
        } else if matches!(&idempotency.carrier, Some(KeyCarrier::Header(name)) if is(name)) {
            "this header carries the idempotency key and cannot carry a secret"
        } else if plain.iter().any(|(name, _)| is(name)) {
            "`headers` states this header too, without a secret; remove it there"
        } else {
            continue;
        };
        report.problem(at(&at(&[], FIELD), written), message);
    }
}

/// Reports a tenant's headers if they are too many together with those that its vendor states for all tenants.
pub(in crate::config) fn too_many_in_all(own: &[SecretHeader], vendors: &[SecretHeader], report: &mut Report) {
    let others = vendors.iter().filter(|header| own.iter().all(|own| own.name != header.name));
    if others.count() + own.len() > MAX {
        report.problem(at(&[], FIELD), format!("with the vendor's, these are more than {MAX} headers with secrets"));
    }
}
