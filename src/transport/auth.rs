//! Authentication: places the secret in a request, and signs the whole request.
//!
//! It is applied last in each attempt, when nothing else changes the request any more: a retry gets the credential
//! that is valid then, and no earlier step holds a secret.

use std::fmt;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use super::target;
use crate::BoxError;
use crate::clock::Time;
use crate::config::AuthScheme;
use crate::route::{Authorization, Secrets};

/// Signs requests to a vendor that needs more than a secret in a header: HMAC over the body, AWS SigV4, and so on.
///
/// Called once per attempt, after everything else is set. Add headers or query parameters; the scheme, host and port
/// must stay as they are.
///
/// Closures are signers:
///
/// ```
/// use integration_client::IntegrationClient;
/// use integration_client::transport::{ExposeSecret, SecretString, SigningParts};
/// use std::time::SystemTime;
///
/// let stamp = |parts: &mut SigningParts<'_>, secret: Option<&SecretString>, now: SystemTime| {
///     let key = secret.ok_or("no key configured")?.expose_secret();
///     let seconds = now.duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
///     let digest = key.len() + parts.body.map_or(0, |body| body.len()); // stands for a real HMAC
///     parts.headers.insert("x-signature", format!("{seconds}.{digest}").parse()?);
///     Ok(())
/// };
/// let builder = IntegrationClient::builder().signer("acme-api", stamp);
/// # drop(builder);
/// ```
pub trait Signer: Send + Sync + 'static {
    /// Changes `parts` so that the vendor accepts the request. It is called between the grant of the limits and the
    /// exchange, on a thread of the runtime, and must not block. If it takes longer than the vendor's `max_transit`
    /// less its `connect_timeout`, it is called again with a new grant, until the request's deadline. `secret` is the
    /// tenant's credential, if it has one; `now` is the wall clock.
    ///
    /// # Errors
    ///
    /// The attempt is not made; the error becomes the source of an
    /// [`ErrorKind::Credential`](crate::ErrorKind::Credential), so it must hold no secret. A panic counts as an error.
    fn sign(
        &self,
        parts: &mut SigningParts<'_>,
        secret: Option<&SecretString>,
        now: SystemTime,
    ) -> Result<(), BoxError>;
}

impl<F> Signer for F
where
    F: Fn(&mut SigningParts<'_>, Option<&SecretString>, SystemTime) -> Result<(), BoxError> + Send + Sync + 'static,
{
    fn sign(
        &self,
        parts: &mut SigningParts<'_>,
        secret: Option<&SecretString>,
        now: SystemTime,
    ) -> Result<(), BoxError> {
        self(parts, secret, now)
    }
}

/// The request as it will be sent.
#[non_exhaustive]
pub struct SigningParts<'a> {
    /// The method.
    pub method: &'a Method,
    /// The whole URL.
    pub url: &'a mut Url,
    /// All headers but those that the connection adds (`Host`, `Content-Length`, `Accept`, `Accept-Encoding`).
    pub headers: &'a mut HeaderMap,
    /// The body; `None` when it is a stream.
    pub body: Option<&'a Bytes>,
}

impl fmt::Debug for SigningParts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningParts").field("method", self.method).finish_non_exhaustive()
    }
}

impl<'a> SigningParts<'a> {
    pub(crate) fn new(
        method: &'a Method,
        url: &'a mut Url,
        headers: &'a mut HeaderMap,
        body: Option<&'a Bytes>,
    ) -> SigningParts<'a> {
        SigningParts { method, url, headers, body }
    }
}

/// The header in which `scheme` puts the secret, if it uses one.
pub(crate) fn header_of(scheme: &AuthScheme) -> Result<Option<HeaderName>, &'static str> {
    match scheme {
        AuthScheme::None | AuthScheme::Query { .. } => Ok(None),
        AuthScheme::Bearer | AuthScheme::Basic => Ok(Some(AUTHORIZATION)),
        AuthScheme::Header { name, .. } => match HeaderName::from_bytes(name.as_bytes()) {
            Ok(name) => Ok(Some(name)),
            Err(_) => Err("the vendor's auth names a header that is no header name"),
        },
    }
}

impl Authorization {
    pub(crate) fn new(scheme: &AuthScheme, secrets: impl Into<Secrets>, until: Time) -> Authorization {
        let secrets = secrets.into();
        let headers = headers(scheme, &secrets);
        Authorization { secrets, headers, until }
    }

    /// Adds the credential to the request as `scheme` prescribes, and the headers with further secrets. They replace
    /// headers of the same names.
    pub(crate) fn apply(
        &self,
        scheme: &AuthScheme,
        url: &mut Url,
        headers: &mut HeaderMap,
    ) -> Result<(), &'static str> {
        match &self.headers {
            Ok(carrying) => carrying.iter().for_each(|(name, value)| drop(headers.insert(name, value.clone()))),
            Err(why) => return Err(why),
        }
        if let (AuthScheme::Query { name }, Some(secret)) = (scheme, &self.secrets.credential) {
            let mut query = url.query().map_or_else(String::new, |query| format!("{query}&"));
            query.push_str(&format!("{}={}", target::encode(name), target::encode(secret.expose_secret())));
            url.set_query(Some(&query));
        }
        Ok(())
    }
}

/// Builds the headers that carry the secrets.
fn headers(scheme: &AuthScheme, secrets: &Secrets) -> Result<Vec<(HeaderName, HeaderValue)>, &'static str> {
    let mut carrying = Vec::with_capacity(1 + secrets.headers.len());
    if let Some(secret) = &secrets.credential {
        carrying.extend(header(scheme, secret.expose_secret())?);
    }
    for (name, secret) in &secrets.headers {
        let value = sensitive(&[secret.expose_secret()]);
        let value = value.map_err(|_| "a secret of `secret_headers` holds a byte that no header can carry")?;
        carrying.push((name.clone(), value));
    }
    Ok(carrying)
}

/// Builds the header that carries `secret`, if `scheme` uses one.
fn header(scheme: &AuthScheme, secret: &str) -> Result<Option<(HeaderName, HeaderValue)>, &'static str> {
    let value = match scheme {
        AuthScheme::None | AuthScheme::Query { .. } => return Ok(None),
        AuthScheme::Bearer => sensitive(&["Bearer ", secret])?,
        AuthScheme::Header { prefix, .. } => sensitive(&[prefix, secret])?,
        AuthScheme::Basic => {
            if !secret.contains(':') {
                return Err("the credential for basic authentication must be USER:PASSWORD");
            }
            sensitive(&["Basic ", &STANDARD.encode(secret)])?
        }
    };
    Ok(header_of(scheme)?.map(|name| (name, value)))
}

fn sensitive(parts: &[&str]) -> Result<HeaderValue, &'static str> {
    let text = Zeroed(SecretString::from(parts.concat()));
    let mut value = HeaderValue::from_maybe_shared(Bytes::from_owner(text))
        .map_err(|_| "the credential holds a byte that no header can carry, such as a line end")?;
    value.set_sensitive(true);
    Ok(value)
}

/// The text of a header value, zeroed when the last reference to it is dropped.
struct Zeroed(SecretString);

impl AsRef<[u8]> for Zeroed {
    fn as_ref(&self) -> &[u8] {
        self.0.expose_secret().as_bytes()
    }
}
