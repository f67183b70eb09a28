//! OAuth 2.0: how a tenant gets access tokens. `[vendors.NAME.oauth]` states what all tenants have in common; `oauth`
//! in a tenant's entry states what is particular to that tenant.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use url::Url;

use super::credential::CredentialRef;
use super::entry::OAuthEntry;
use super::names::names;

/// How a tenant gets access tokens at its vendor. It holds references to secrets, never the secrets themselves.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct OAuth {
    /// What is exchanged for an access token.
    pub grant: OAuthGrant,
    /// The URL that issues access tokens, with the tenant's variables filled in.
    pub token_url: Url,
    /// How the client authenticates at the token URL.
    pub client_auth: ClientAuth,
    /// The scopes to request.
    pub scopes: Vec<String>,
    /// Further parameters of the token request, such as `audience` or `resource`.
    pub params: BTreeMap<String, String>,
    /// The client's id. In the grants with a JWT it is the issuer: an app id, or the address of a service account.
    pub client_id: CredentialRef,
    /// The client's secret; none for a public client.
    pub client_secret: Option<CredentialRef>,
    /// The first refresh token, which the tenant's user granted.
    pub refresh_token: Option<CredentialRef>,
    /// The private key that signs JWTs, in PEM.
    pub private_key: Option<CredentialRef>,
    /// The name of the private key, as the JWT's header states it.
    pub key_id: Option<String>,
    /// How JWTs are signed.
    pub algorithm: JwtAlgorithm,
    /// The JWT's audience; the token URL unless stated.
    pub audience: String,
    /// The JWT's subject: on whose behalf it requests a token.
    pub subject: Option<String>,
    /// Whether a response may contain a new refresh token that invalidates the old one; true by default. Such a token
    /// is stored before it is used, so the client needs a place to store it.
    pub rotates: bool,
    /// Whether the tenant's variables choose the token URL's host or a part of it.
    pub(super) host_is_chosen: bool,
    /// The tenant's part of the settings, as written.
    pub(super) entry: OAuthEntry,
    pub(super) replaced: Replaced,
}

/// Whether a later version of the tenant is in use, or none. This is no setting: all values are equal, and a copy
/// begins anew.
#[derive(Debug, Default)]
pub(super) struct Replaced(AtomicBool);

impl Clone for Replaced {
    fn clone(&self) -> Replaced {
        Replaced::default()
    }
}

impl PartialEq for Replaced {
    fn eq(&self, _: &Replaced) -> bool {
        true
    }
}

impl OAuth {
    /// Marks the settings of a tenant that was changed or removed.
    pub(crate) fn replace(&self) {
        self.replaced.0.store(true, Ordering::Release);
    }

    /// Whether the tenant was changed or removed since.
    #[cfg_attr(not(feature = "oauth"), allow(dead_code, reason = "what is off asks for no token"))]
    pub(crate) fn is_replaced(&self) -> bool {
        self.replaced.0.load(Ordering::Acquire)
    }

    /// Whether the tenant's variables choose the token URL's host or a part of it.
    #[cfg_attr(not(feature = "oauth"), allow(dead_code, reason = "what is off asks for no token"))]
    pub(crate) fn host_is_chosen(&self) -> bool {
        self.host_is_chosen
    }

    /// Whether both begin with the same refresh token, and the vendor replaces one that is used.
    pub(super) fn has_one_use_token_of(&self, other: &OAuth) -> bool {
        self.grant == OAuthGrant::RefreshToken
            && (self.rotates || other.rotates)
            && self.refresh_token == other.refresh_token
    }

    /// Whether both request the same access tokens. How the tenant's entry is written does not matter.
    pub(super) fn requests_as(&self, other: &OAuth) -> bool {
        // Taken apart, so that no new setting is forgotten.
        let OAuth {
            grant,
            token_url,
            client_auth,
            scopes,
            params,
            client_id,
            client_secret,
            refresh_token,
            private_key,
            key_id,
            algorithm,
            audience,
            subject,
            rotates,
            host_is_chosen: _,
            entry: _,
            replaced: _,
        } = other;
        self.grant == *grant
            && self.token_url == *token_url
            && self.client_auth == *client_auth
            && self.scopes == *scopes
            && self.params == *params
            && self.client_id == *client_id
            && self.client_secret == *client_secret
            && self.refresh_token == *refresh_token
            && self.private_key == *private_key
            && self.key_id == *key_id
            && self.algorithm == *algorithm
            && self.audience == *audience
            && self.subject == *subject
            && self.rotates == *rotates
    }
}

/// What is exchanged for an access token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OAuthGrant {
    /// A refresh token that the tenant's user granted.
    RefreshToken,
    /// The client's own id and secret.
    ClientCredentials,
    /// A JWT that the client signs (RFC 7523): Google service accounts, Salesforce.
    JwtBearer,
    /// A JWT that the client signs, in exchange for the access token of a GitHub App's installation.
    GithubApp,
}

/// How the client authenticates at the token URL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ClientAuth {
    /// By the header `Authorization: Basic …`.
    #[default]
    Basic,
    /// By `client_id` and `client_secret` in the body.
    Body,
}

/// How JWTs are signed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum JwtAlgorithm {
    /// RSA with SHA-256.
    #[default]
    Rs256,
    /// ECDSA on P-256 with SHA-256.
    Es256,
}

names!(OAuthGrant {
    RefreshToken = "refresh_token",
    ClientCredentials = "client_credentials",
    JwtBearer = "jwt_bearer",
    GithubApp = "github_app",
});
names!(ClientAuth { Basic = "basic", Body = "body" });
names!(JwtAlgorithm { Rs256 = "RS256", Es256 = "ES256" });
