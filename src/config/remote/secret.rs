//! Secrets for configuration servers, read for each request from where a reference says they are.

use std::collections::BTreeSet;

use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue, Request};
use secrecy::{ExposeSecret, SecretString};

use super::super::credential::CredentialRef;
use super::super::file::run_blocking;
use super::http::Failed;

pub(super) struct Secret {
    carrier: Carrier,
    reference: String,
}

/// Where a request carries the secret.
enum Carrier {
    Bearer,
    Header(String),
    /// The password of this user.
    User(String),
}

impl Secret {
    pub(super) fn bearer(reference: &str) -> Secret {
        Secret { carrier: Carrier::Bearer, reference: reference.to_owned() }
    }

    pub(super) fn header(name: &str, reference: &str) -> Secret {
        Secret { carrier: Carrier::Header(name.to_owned()), reference: reference.to_owned() }
    }

    pub(super) fn user(name: &str, reference: &str) -> Secret {
        Secret { carrier: Carrier::User(name.to_owned()), reference: reference.to_owned() }
    }
}

/// Reads the secret that `env:NAME` or `file:PATH` refers to.
pub(super) async fn read(reference: &str) -> Result<SecretString, Failed> {
    let reference = CredentialRef::parse(reference, &BTreeSet::new()).map_err(Failed::new)?;
    let read = run_blocking(move || reference.read()).await.map_err(|error| Failed::new(error.to_string()))?;
    read.map_err(Failed::new)
}

/// Sets the headers that hold secrets.
pub(super) async fn add_to(request: &mut Request<Vec<u8>>, secrets: &[Secret]) -> Result<(), Failed> {
    for secret in secrets {
        let (name, prefix) = match &secret.carrier {
            Carrier::Bearer => (AUTHORIZATION, "Bearer "),
            Carrier::Header(name) => {
                (HeaderName::try_from(name.as_str()).map_err(|_| Failed::new("a header's name is invalid"))?, "")
            }
            Carrier::User(_) => continue,
        };
        let value = read(&secret.reference).await?;
        let value = HeaderValue::try_from(format!("{prefix}{}", value.expose_secret()));
        let mut value =
            value.map_err(|_| Failed::new(format!("{}: no header can carry this value", secret.reference)))?;
        value.set_sensitive(true);
        request.headers_mut().insert(name, value);
    }
    Ok(())
}

/// The name and the password of the user, if one is stated.
pub(super) async fn user_of(secrets: &[Secret]) -> Result<Option<(&str, String)>, Failed> {
    for secret in secrets {
        if let Carrier::User(name) = &secret.carrier {
            let password = read(&secret.reference).await?;
            return Ok(Some((name, password.expose_secret().to_owned())));
        }
    }
    Ok(None)
}
