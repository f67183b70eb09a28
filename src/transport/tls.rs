//! The transport's part in TLS: certificates from files, and failures that will recur.

use std::error::Error as _;

use url::Url;

use super::TransportError;
use super::cause::unusable;

/// Whether the URL can be called: with this feature every URL can.
#[allow(clippy::unnecessary_wraps, reason = "without the feature it fails")]
pub(super) fn check(_: &Url) -> Result<(), TransportError> {
    Ok(())
}

/// Adds the certificate authorities and the client certificate that these PEM files hold.
pub(super) fn with_certificates(
    mut builder: reqwest::ClientBuilder,
    extra_ca: Option<&str>,
    certificate: Option<&str>,
) -> Result<reqwest::ClientBuilder, TransportError> {
    if let Some(path) = extra_ca {
        let authorities = reqwest::Certificate::from_pem_bundle(&read(path)?)
            .map_err(|_| unusable(format!("{path} holds no PEM certificates")))?;
        builder = builder.tls_certs_merge(authorities);
    }
    if let Some(path) = certificate {
        let identity = reqwest::Identity::from_pem(&read(path)?)
            .map_err(|_| unusable(format!("{path} does not hold a PEM certificate and its key")))?;
        builder = builder.identity(identity);
    }
    Ok(builder)
}

fn read(path: &str) -> Result<Vec<u8>, TransportError> {
    std::fs::read(path).map_err(|error| unusable(format!("{path} cannot be read: {error}")))
}

/// Describes a TLS failure that will recur, such as an invalid certificate. A handshake that broke off is not one. With
/// TLS 1.3 a vendor refuses a client certificate after the handshake, so that the request may have been sent: that is no
/// failure to connect, and not recognised here.
pub(super) fn lasting_failure(error: &reqwest::Error) -> Option<&'static str> {
    use rustls::{AlertDescription, Error::*};
    let mut source = error.source();
    while let Some(cause) = source {
        match cause.downcast_ref() {
            Some(InvalidCertificate(_) | NoCertificatesPresented) => {
                return Some("the vendor's certificate is not valid");
            }
            Some(AlertReceived(
                AlertDescription::BadCertificate
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateUnknown
                | AlertDescription::UnknownCA
                | AlertDescription::AccessDenied
                | AlertDescription::CertificateRequired
                | AlertDescription::DecryptError,
            )) => return Some("the vendor refused the TLS handshake; it may want another client certificate"),
            Some(
                PeerIncompatible(_)
                | AlertReceived(AlertDescription::ProtocolVersion | AlertDescription::HandshakeFailure),
            ) => return Some("the vendor speaks no TLS that is safe"),
            _ => {}
        }
        // `io::Error::source` skips the error it wraps and returns that one's source, so look at the wrapped error.
        let held = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        source = held.map_or_else(|| cause.source(), |held| Some(held));
    }
    None
}
