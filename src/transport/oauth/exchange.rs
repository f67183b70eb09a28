//! One token request and its response. The crate oauth2 implements the protocol and hands its requests to
//! [`TokenRequest`]; RFC 7523 and GitHub's exchange, which it lacks, are written here.

use std::sync::Arc;
use std::time::Duration;

use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use oauth2::basic::{BasicErrorResponse, BasicRevocationErrorResponse, BasicTokenIntrospectionResponse};
use oauth2::{
    AsyncHttpClient, AuthType, ClientId, ClientSecret, HttpRequest, HttpResponse, RefreshToken, RequestTokenError,
    Scope, TokenUrl,
};
use parking_lot::Mutex;
use secrecy::{ExposeSecret, SecretString};

use super::issued::{Issued, Trouble, carried, is_error, refusal};
use super::jwt;
use crate::BoxFuture;
use crate::clock::Clock;
use crate::config::{ClientAuth, OAuth, OAuthGrant, Tenant};
use crate::route::Connections;
use crate::signals::{self, Dialect};
use crate::transport::tokens::OAuthSecrets;
use crate::transport::{Body, Exchange, Transport};

/// Backoff after the first failed refresh, and the wait after a 429 that states none.
pub(super) const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// Timeout of a token request, response included.
const TIMEOUT: Duration = Duration::from_secs(15);
/// Largest response to a token request, in bytes.
const MAX_ANSWER: usize = 64 * 1024;

type Client = oauth2::Client<
    BasicErrorResponse,
    Issued,
    BasicTokenIntrospectionResponse,
    oauth2::StandardRevocableToken,
    BasicRevocationErrorResponse,
>;

/// The parameters that all token requests of one refresh share.
pub(super) struct TokenRequest<'a> {
    pub(super) oauth: &'a OAuth,
    pub(super) tenant: &'a Tenant,
    pub(super) secrets: &'a OAuthSecrets,
    pub(super) transport: &'a Arc<dyn Transport>,
    pub(super) clock: Clock,
    /// The wait that the last response stated, which the crate oauth2 does not pass on.
    pub(super) stated: Mutex<Option<Duration>>,
}

impl TokenRequest<'_> {
    /// Sends one token request. `refresh_token` is used only by the grant of that name.
    pub(super) async fn ask(&self, refresh_token: Option<&SecretString>) -> Result<Issued, Trouble> {
        *self.stated.lock() = None;
        let issued = self.issued(refresh_token).await.map_err(|trouble| trouble.with_wait(*self.stated.lock()))?;
        match issued.is_usable() {
            true => Ok(issued),
            false => {
                Err(Trouble::Later("the token that was issued is empty, too long or no ASCII text".to_owned(), None))
            }
        }
    }

    async fn issued(&self, refresh_token: Option<&SecretString>) -> Result<Issued, Trouble> {
        match (self.oauth.grant, refresh_token) {
            (OAuthGrant::RefreshToken, Some(token)) => {
                let (client, token) = (self.client(), RefreshToken::new(token.expose_secret().to_owned()));
                let client = client.set_token_uri(TokenUrl::from_url(self.oauth.token_url.clone()));
                let mut request = client.exchange_refresh_token(&token).add_scopes(self.scopes());
                for (name, value) in &self.oauth.params {
                    request = request.add_extra_param(name, value);
                }
                request.request_async(self).await.map_err(|error| self.trouble(error, Some(token.secret())))
            }
            (OAuthGrant::ClientCredentials, _) => {
                let client = self.client().set_token_uri(TokenUrl::from_url(self.oauth.token_url.clone()));
                let mut request = client.exchange_client_credentials().add_scopes(self.scopes());
                for (name, value) in &self.oauth.params {
                    request = request.add_extra_param(name, value);
                }
                request.request_async(self).await.map_err(|error| self.trouble(error, None))
            }
            (OAuthGrant::JwtBearer, _) => self.by_jwt().await,
            (OAuthGrant::GithubApp, _) => self.by_github_app().await,
            (OAuthGrant::RefreshToken, None) => Err(Trouble::Refused("there is no refresh token".to_owned())),
        }
    }

    fn client(&self) -> Client {
        let client = Client::new(ClientId::new(self.secrets.client_id.expose_secret().to_owned()));
        let client = client.set_auth_type(match self.oauth.client_auth {
            ClientAuth::Basic => AuthType::BasicAuth,
            ClientAuth::Body => AuthType::RequestBody,
        });
        match &self.secrets.client_secret {
            Some(secret) => client.set_client_secret(ClientSecret::new(secret.expose_secret().to_owned())),
            None => client,
        }
    }

    fn scopes(&self) -> impl Iterator<Item = Scope> {
        self.oauth.scopes.iter().cloned().map(Scope::new)
    }

    fn jwt(&self) -> Result<String, Trouble> {
        let Some(key) = &self.secrets.private_key else {
            return Err(Trouble::Refused("there is no private key".to_owned()));
        };
        jwt::signed(self.oauth, self.secrets.client_id.expose_secret(), key, self.clock.wall())
    }

    fn jwt_form(&self, jwt: &str) -> String {
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer").append_pair("assertion", jwt);
        if !self.oauth.scopes.is_empty() {
            form.append_pair("scope", &self.oauth.scopes.join(" "));
        }
        form.extend_pairs(&self.oauth.params);
        form.finish()
    }

    async fn by_jwt(&self) -> Result<Issued, Trouble> {
        let jwt = self.jwt()?;
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        let answer = self.post(headers, self.jwt_form(&jwt).into_bytes()).await?;
        match answer.status() {
            StatusCode::OK => serde_json::from_slice(answer.body()).map_err(|_| malformed()),
            _ => Err(match serde_json::from_slice::<BasicErrorResponse>(answer.body()) {
                Ok(error) => refusal(&error, &self.secrets_to_hide(Some(&jwt))),
                Err(_) => Trouble::Refused(format!("the token URL answered {}", answer.status().as_u16())),
            }),
        }
    }

    /// <https://docs.github.com/en/rest/apps/apps#create-an-installation-access-token-for-an-app>
    async fn by_github_app(&self) -> Result<Issued, Trouble> {
        #[derive(serde::Deserialize)]
        struct Installation {
            token: String,
            expires_at: jiff::Timestamp,
        }
        let unfit = |_| Trouble::Refused("the JWT cannot stand in a header".to_owned());
        let mut authorization = HeaderValue::try_from(format!("Bearer {}", self.jwt()?)).map_err(unfit)?;
        authorization.set_sensitive(true);
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, authorization);
        headers.insert(ACCEPT, HeaderValue::from_static("application/vnd.github+json"));
        let answer = self.post(headers, Vec::new()).await?;
        match answer.status() {
            StatusCode::OK => {
                let issued: Installation = serde_json::from_slice(answer.body()).map_err(|_| malformed())?;
                let until = std::time::SystemTime::from(issued.expires_at);
                Ok(Issued::of(issued.token, until.duration_since(self.clock.wall()).unwrap_or_default()))
            }
            StatusCode::NOT_FOUND => {
                Err(Trouble::Reconnect("the app is not installed there any more (404)".to_owned()))
            }
            other => Err(Trouble::Refused(format!("the token URL answered {}", other.as_u16()))),
        }
    }

    /// Sends the request, and returns the response if it is one of the protocol's. Its status becomes 200 for every
    /// success, and 400 for an error that the vendor sent with a success status.
    async fn post(&self, mut headers: HeaderMap, body: Vec<u8>) -> Result<HttpResponse, Trouble> {
        if let Some(authorization) = headers.get_mut(AUTHORIZATION) {
            authorization.set_sensitive(true);
        }
        let exchange = Exchange {
            method: Method::POST,
            url: self.oauth.token_url.clone(),
            headers,
            body: Body::from(body),
            vendor: self.tenant.vendor.clone(),
            client_certificate: self.tenant.client_certificate.clone(),
            deadline: self.clock.instant(self.clock.now() + TIMEOUT),
            connections: Arc::new(Connections::of_host(self.oauth.host_is_chosen())),
        };
        let later = |why: &dyn std::fmt::Display| Trouble::Later(format!("the token URL did not answer: {why}"), None);
        let mut answer = self.transport.execute(exchange).await.map_err(|error| later(&error))?;
        let status = answer.status;
        // The vendor's dialect describes its API, which the token URL need not be part of.
        let stated = signals::read(&Dialect::default(), status, &answer.headers, b"", self.clock.wall()).retry_after;
        let is_throttled = status == StatusCode::TOO_MANY_REQUESTS;
        if is_throttled || status == StatusCode::REQUEST_TIMEOUT || status.is_server_error() {
            // A wait keeps `Refresh::ask` from asking again at once, which a vendor that throttles would refuse too.
            let wait = stated.or(is_throttled.then_some(FIRST_PAUSE));
            return Err(Trouble::Later(format!("the token URL answered {}", status.as_u16()), wait));
        }
        if status.is_redirection() || status.is_informational() {
            return Err(Trouble::Refused(format!("the token URL answered {}, which is not followed", status.as_u16())));
        }
        *self.stated.lock() = stated;
        let mut whole = Vec::new();
        while let Some(data) = answer.body.data().await.map_err(|error| later(&error))? {
            if whole.len() + data.len() > MAX_ANSWER {
                return Err(Trouble::Later(format!("the token URL answered with more than {MAX_ANSWER} bytes"), None));
            }
            whole.extend_from_slice(&data);
        }
        let status = match status.is_success() {
            true if is_error(&whole) => StatusCode::BAD_REQUEST,
            true => StatusCode::OK,
            false => status,
        };
        let mut response = HttpResponse::new(whole);
        *response.status_mut() = status;
        Ok(response)
    }

    fn trouble(&self, error: RequestTokenError<Trouble, BasicErrorResponse>, token: Option<&String>) -> Trouble {
        match error {
            RequestTokenError::ServerResponse(error) => {
                refusal(&error, &self.secrets_to_hide(token.map(String::as_str)))
            }
            RequestTokenError::Request(trouble) => trouble,
            // Both errors hold the response, which may contain secrets.
            RequestTokenError::Parse(..) | RequestTokenError::Other(_) => malformed(),
        }
    }

    /// The secrets that no error message may repeat, in the forms in which a request carries them.
    fn secrets_to_hide(&self, token: Option<&str>) -> Vec<SecretString> {
        let secret = self.secrets.client_secret.as_ref().map(|secret| secret.expose_secret());
        carried(self.secrets.client_id.expose_secret(), secret, token)
    }
}

/// Sends the requests that the crate oauth2 builds.
impl<'c> AsyncHttpClient<'c> for TokenRequest<'_> {
    type Error = Trouble;
    type Future = BoxFuture<'c, Result<HttpResponse, Trouble>>;

    fn call(&'c self, request: HttpRequest) -> Self::Future {
        let (parts, body) = request.into_parts();
        Box::pin(self.post(parts.headers, body))
    }
}

fn malformed() -> Trouble {
    Trouble::Later("the answer of the token URL is no token answer".to_owned(), None)
}
