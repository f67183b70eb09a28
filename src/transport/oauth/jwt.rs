//! JWTs that a client signs to ask for an access token (RFC 7523).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jsonwebtoken::{Algorithm, EncodingKey, Header};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;

use super::issued::Trouble;
use crate::config::{JwtAlgorithm, OAuth, OAuthGrant};

/// Validity of a JWT: Salesforce accepts no more than five minutes, GitHub no more than ten.
const LIFE: Duration = Duration::from_secs(180);
/// How far a JWT's issue time is set back, because the vendor's clock may be behind ours.
const AGO: Duration = Duration::from_secs(60);

#[derive(Serialize)]
struct Claims<'a> {
    iss: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    aud: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sub: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<String>,
    iat: u64,
    exp: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    jti: Option<String>,
}

/// Builds the JWT of a client with the id `issuer`, signed with `key`.
pub(super) fn signed(oauth: &OAuth, issuer: &str, key: &SecretString, wall: SystemTime) -> Result<String, Trouble> {
    // This fails if the application has already chosen a crypto provider for the process; that one then signs.
    let _ = jsonwebtoken::crypto::aws_lc::DEFAULT_PROVIDER.install_default();
    let now = wall.duration_since(UNIX_EPOCH).unwrap_or_default();
    // GitHub reads neither audience, subject nor scope.
    let is_github = oauth.grant == OAuthGrant::GithubApp;
    let claims = Claims {
        iss: issuer,
        aud: (!is_github).then_some(&*oauth.audience),
        sub: oauth.subject.as_deref(),
        scope: (!is_github && !oauth.scopes.is_empty()).then(|| oauth.scopes.join(" ")),
        iat: now.saturating_sub(AGO).as_secs(),
        exp: now.saturating_add(LIFE).as_secs(),
        jti: (!is_github).then(|| uuid::Uuid::now_v7().to_string()),
    };
    let pem = key.expose_secret().as_bytes();
    // Neither error message names the key's content; the key parser's own error adds nothing to this one.
    let (algorithm, read) = match oauth.algorithm {
        JwtAlgorithm::Rs256 => (Algorithm::RS256, EncodingKey::from_rsa_pem(pem)),
        JwtAlgorithm::Es256 => (Algorithm::ES256, EncodingKey::from_ec_pem(pem)),
    };
    let unreadable = |_| {
        let name = oauth.algorithm.name();
        Trouble::Refused(format!("the private key is no PEM of a key for {name}; an elliptic one must be PKCS #8"))
    };
    let key = read.map_err(unreadable)?;
    let mut header = Header::new(algorithm);
    header.kid.clone_from(&oauth.key_id);
    let unsigned = |_| Trouble::Refused("the JWT could not be signed with the private key".to_owned());
    jsonwebtoken::encode(&header, &claims, &key).map_err(unsigned)
}
