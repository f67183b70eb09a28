//! OAuth 2.0: how a tenant gets access tokens. `[vendors.NAME.oauth]` states what all tenants have in common; `oauth`
//! in a tenant's entry states what is particular to that tenant.

use std::collections::BTreeMap;

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
    /// The tenant's part of the settings, as written.
    pub(super) entry: OAuthEntry,
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
