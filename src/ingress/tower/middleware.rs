//! Middleware for the crate reqwest-middleware: one sends through the client, the other only waits for permits.

use http::Extensions;
use reqwest::{Body, Request, Response, ResponseBuilderExt, Url};
use reqwest_middleware::{Error, Middleware, Next, Result};
use tower_service::Service;

use super::paced::LaneLayer;
use super::service::LaneService;
use crate::client::{IntegrationClient, Lane};

/// Sends the requests of a reqwest-middleware client through a lane, as [`LaneService`] does. Made by
/// [`Lane::middleware`].
///
/// Put it last in a chain: it sends the requests itself, so neither a later middleware nor the inner `reqwest::Client`
/// ever runs. [`SendOptions`](crate::SendOptions) come from the request's extensions (`RequestBuilder::with_extension`)
/// and its `Integration-*` headers. A timeout of the request is ignored: state a deadline.
///
/// An error is [`reqwest_middleware::Error::Middleware`], which `downcast_ref::<integration_client::Error>` opens.
#[derive(Clone, Debug)]
pub struct LaneMiddleware {
    service: LaneService,
}

/// Paces the requests that the rest of a reqwest-middleware chain sends, as [`LaneLayer`] does. Made by
/// [`IntegrationClient::pacing_middleware`].
///
/// Put it after a middleware that retries, so that each attempt takes a permit of its own.
#[derive(Clone, Debug)]
pub struct PacingMiddleware {
    layer: LaneLayer,
}

impl Lane {
    /// Returns this lane as the last middleware of a chain: all requests of the chain's client are sent through the
    /// lane.
    ///
    /// ```
    /// use integration_client::IntegrationClient;
    /// use integration_client::config::TenantEntry;
    /// use reqwest_middleware::ClientBuilder;
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let tenant = TenantEntry::new("acme", "github").credential("env:ACME_GITHUB_TOKEN");
    /// let client = IntegrationClient::builder().tenant(tenant).build().await?;
    /// let http = ClientBuilder::new(reqwest::Client::new()).with(client.lane("acme", "github")?.middleware()).build();
    /// // http.get("https://api.github.com/user").send().await
    /// # drop(http);
    /// # Ok::<(), integration_client::Error>(()) }).unwrap();
    /// ```
    pub fn middleware(&self) -> LaneMiddleware {
        LaneMiddleware { service: self.service() }
    }
}

impl IntegrationClient {
    /// Returns a middleware that paces the requests of the rest of its chain by the limits of one tenant at one vendor.
    ///
    /// # Errors
    /// The tenant or the vendor is unknown.
    pub fn pacing_middleware(
        &self,
        tenant: &str,
        vendor: &str,
    ) -> std::result::Result<PacingMiddleware, crate::error::Error> {
        Ok(PacingMiddleware { layer: self.layer(tenant, vendor)? })
    }
}

impl LaneMiddleware {
    /// Sets default options, for requests that do not state their own.
    #[must_use]
    pub fn options(self, options: crate::SendOptions) -> LaneMiddleware {
        LaneMiddleware { service: self.service.options(options) }
    }
}

/// Turns a response into one of reqwest's, with the URL of its request: programs resolve relative links against it, and
/// the conversion keeps none.
fn with_url(response: http::Response<Body>, url: Url) -> Result<Response> {
    let (parts, body) = response.into_parts();
    let built = http::Response::builder().status(parts.status).version(parts.version).url(url).body(body);
    let mut built = built.map_err(|error| Error::Middleware(error.into()))?;
    *built.headers_mut() = parts.headers;
    built.extensions_mut().extend(parts.extensions);
    Ok(built.into())
}

#[async_trait::async_trait]
impl Middleware for LaneMiddleware {
    async fn handle(&self, request: Request, extensions: &mut Extensions, _: Next<'_>) -> Result<Response> {
        let url = request.url().clone();
        let mut request: http::Request<Body> = request.try_into()?;
        if let Some(options) = extensions.remove::<crate::SendOptions>() {
            request.extensions_mut().insert(options);
        }
        let response = self.service.clone().call(request).await.map_err(|error| Error::Middleware(error.into()))?;
        with_url(response.map(Body::wrap), url)
    }
}

#[async_trait::async_trait]
impl Middleware for PacingMiddleware {
    async fn handle(&self, mut request: Request, extensions: &mut Extensions, next: Next<'_>) -> Result<Response> {
        let ours = |error: crate::error::Error| Error::Middleware(error.into());
        let (mut parts, ()) = http::Request::new(()).into_parts();
        parts.method = request.method().clone();
        parts.uri =
            request.url().as_str().parse().map_err(|error: http::uri::InvalidUri| Error::Middleware(error.into()))?;
        // `options_of` removes the option headers, so the request that is passed on no longer has them.
        std::mem::swap(&mut parts.headers, request.headers_mut());
        if let Some(options) = extensions.remove::<crate::SendOptions>() {
            parts.extensions.insert(options);
        }
        let options = self.layer.options_of(&mut parts).map_err(ours)?;
        let pacing = self.layer.permit(options, &parts).await.map_err(ours)?;
        std::mem::swap(&mut parts.headers, request.headers_mut());
        let response = next.run(request, extensions).await?;
        pacing.answered(&self.layer, response.status(), response.headers());
        // The last URL, if redirects were followed.
        let url = response.url().clone();
        with_url(http::Response::<Body>::from(response).map(|body| Body::wrap(pacing.body(body))), url)
    }
}
