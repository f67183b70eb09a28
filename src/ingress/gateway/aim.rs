//! Finds where a request goes (tenant, vendor and path), for each of the ways in which a caller can name them.

use std::sync::Arc;

use http::header::{HOST, HeaderMap};
use http::uri::PathAndQuery;
use http::{StatusCode, Uri};
use url::Url;

use super::callers::{self, Allowed};
use super::door::Door;
use super::path;
use super::problem::Problem;
use super::shared::Shared;
use crate::config::{May, unknown};
use crate::error::Error;
use crate::route::Route;

/// Where a request goes, and how its caller addressed that.
pub(super) struct Aim {
    pub(super) route: Arc<Route>,
    pub(super) path: String,
    /// The vendor's base URL as the caller addresses it at the gateway, without a trailing slash.
    pub(super) own: String,
    /// Whether the path named tenant and vendor. Only then can the caller reach the gateway's own paths at the same
    /// address.
    pub(super) is_by_path: bool,
}

impl Shared {
    /// Finds where the request goes.
    ///
    /// # Errors
    /// The target cannot be read, or the caller does not have `right` there.
    pub(super) fn aim(
        &self,
        headers: &HeaderMap,
        uri: &Uri,
        door: &Door,
        allowed: &Allowed,
        right: May,
    ) -> Result<Aim, Problem> {
        let bad = |why: String| Problem::refused(StatusCode::BAD_REQUEST, "invalid_request", why);
        let not_allowed = |error: Error| Problem::of(&error, true);
        // The error's own text suggests names, and those of other callers' tenants are not for this one.
        let knows_all = match allowed {
            Allowed::All => true,
            Allowed::Caller(caller) => caller.is_for_all(),
        };
        let no_route = |error: Error, tenant: &str, vendor: &str| match knows_all {
            true => not_allowed(error),
            false => not_allowed(unknown::unknown_tenant(tenant, vendor, &[])),
        };
        let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or(&door.host);
        let whole = uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let tenant_of = |named: Option<&str>| match named.or_else(|| allowed.only_tenant()) {
            Some(tenant) => Ok(tenant.to_owned()),
            None => Err(bad("the token stands for several tenants; name one: /TENANT/VENDOR/…".to_owned())),
        };
        let check = |tenant: &str, vendor: &str| match allowed.may(right, tenant, vendor) {
            true => Ok(()),
            false => {
                let why =
                    "the caller may not send on behalf of this tenant to this vendor; [[callers]] says what it may";
                Err(Problem::refused(StatusCode::FORBIDDEN, "forbidden", why))
            }
        };
        let registry = &self.client.core().registry;
        if uri.scheme().is_some() && door.lane.is_some() {
            return Err(bad(
                "this address is one tenant's lane to one vendor, and no forward proxy; use the gateway's own"
                    .to_owned(),
            ));
        }
        if uri.scheme().is_some() {
            let user = callers::proxy_user(headers).filter(|user| !user.is_empty() && user != "@");
            let tenant = tenant_of(user.as_deref())?;
            let is_callers = |route: &Arc<Route>| allowed.may(right, &tenant, &route.vendor.name);
            // The same message for tenants that do not exist and for those of others.
            let route = self.proxied(&tenant, uri).filter(is_callers).ok_or_else(|| {
                let why = "there is no vendor at this host and path that the caller may call on behalf of this tenant \
                           ([[callers]] says what it may); the gateway is no open proxy";
                Problem::refused(StatusCode::FORBIDDEN, "forbidden", why)
            })?;
            let base = route.base().map_err(not_allowed)?.into_owned();
            let (path, _) = path::below(&base, whole).map_err(|why| bad(why.into_owned()))?;
            let own = format!("http://{}{}", uri.authority().map_or("", |authority| authority.as_str()), base.path());
            let own = own.trim_end_matches('/').to_owned();
            return Ok(Aim { path: path.into_owned(), own, route, is_by_path: false });
        }
        let (tenant, vendor, rest, form) = match &door.lane {
            Some((tenant, vendor)) => (tenant.to_string(), &**vendor, whole, String::new()),
            None => {
                let named = path::by_path(whole).map_err(|why| bad(why.to_owned()))?;
                let form = format!("/{}/{}", named.tenant.unwrap_or("@"), named.vendor);
                (tenant_of(named.tenant)?, named.vendor, named.rest, form)
            }
        };
        check(&tenant, vendor)?;
        let route = registry.route(&tenant, vendor).map_err(|error| no_route(error, &tenant, vendor))?;
        let base = route.base().map_err(not_allowed)?.into_owned();
        let (path, had_base) = path::below(&base, rest).map_err(|why| bad(why.into_owned()))?;
        let of_base = if had_base { base.path().trim_end_matches('/') } else { "" };
        let own = match (&door.lane, &self.public_url) {
            (None, Some(url)) => {
                let origin = match (url.scheme_str(), url.authority()) {
                    (Some(scheme), Some(authority)) => format!("{scheme}://{authority}"),
                    _ => format!("http://{host}"),
                };
                format!("{origin}{}{form}{of_base}", url.path().trim_end_matches('/'))
            }
            _ => format!("http://{host}{form}{of_base}"),
        };
        Ok(Aim { path: path.into_owned(), own, route, is_by_path: door.lane.is_none() })
    }

    /// Finds the route whose base URL covers the URL of a forward proxy's request. That URL may say `http` for a
    /// vendor's `https`.
    fn proxied(&self, tenant: &str, uri: &Uri) -> Option<Arc<Route>> {
        let registry = &self.client.core().registry;
        let text = uri.to_string();
        let find = |text: &str| {
            let url = Url::parse(text).ok().filter(|url| url.username().is_empty() && url.password().is_none())?;
            registry.route_for_url(tenant, &url).ok()
        };
        let secure = || text.strip_prefix("http://").and_then(|rest| find(&format!("https://{rest}")));
        find(&text).or_else(secure)
    }
}
