//! Replaces the module when the feature `tls` is off: only plain HTTP is spoken, for gateways that do TLS themselves.

use url::Url;

use super::TransportError;
use super::cause::unusable;

pub(super) fn check(url: &Url) -> Result<(), TransportError> {
    match url.scheme() {
        "https" => {
            Err(unusable("TLS is not compiled in, so no https:// URL can be called; switch the feature `tls` on"))
        }
        _ => Ok(()),
    }
}

pub(super) fn with_certificates(
    builder: reqwest::ClientBuilder,
    extra_ca: Option<&str>,
    certificate: Option<&str>,
) -> Result<reqwest::ClientBuilder, TransportError> {
    match extra_ca.or(certificate) {
        Some(path) => {
            Err(unusable(format!("{path} is for TLS, which is not compiled in; switch the feature `tls` on")))
        }
        None => Ok(builder),
    }
}

pub(super) fn lasting_failure(_: &reqwest::Error) -> Option<&'static str> {
    None
}
