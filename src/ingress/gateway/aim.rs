//! Finds where a request goes (tenant, vendor and path), for each of the ways in which a caller can name them.

use std::net::IpAddr;
use std::sync::Arc;

use http::header::{HOST, HeaderMap};
use http::uri::PathAndQuery;
use http::{StatusCode, Uri};
use url::{Host, Url};

use super::callers::{self, Allowed};
use super::door::Door;
use super::links::Own;
use super::path;
use super::problem::Problem;
use super::shared::Shared;
use crate::config::{May, unknown};
use crate::core::Registry;
use crate::error::Error;
use crate::route::Route;

/// Where a request goes, and how its caller addressed that.
pub(super) struct Aim {
    pub(super) route: Arc<Route>,
    pub(super) path: String,
    pub(super) own: Own,
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
        let public = self.public_url.as_ref().and_then(|url| Name::of(url.authority()?.as_str(), url.path()));
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
            let route = proxied(registry, &tenant, &uri.to_string()).filter(is_callers).ok_or_else(|| {
                let why = "there is no vendor at this host and path that the caller may call on behalf of this tenant \
                           ([[callers]] says what it may); the gateway is no open proxy";
                Problem::refused(StatusCode::FORBIDDEN, "forbidden", why)
            })?;
            let base = route.base().map_err(not_allowed)?.into_owned();
            let (path, _) = path::below(&base, whole).map_err(|why| bad(why.into_owned()))?;
            let own = format!("http://{}{}", uri.authority().map_or("", |authority| authority.as_str()), base.path());
            let own = own.trim_end_matches('/').to_owned();
            let (core, vendor) = (self.client.core().clone(), route.vendor.name.clone());
            // A client without a proxy for loopback reaches the listener itself.
            let names: Vec<Name> = public.into_iter().chain(Name::of(&door.host, "")).collect();
            let reaches_gateway = Arc::new(move |url: &Url| {
                let other = |route: Arc<Route>| route.vendor.name != vendor;
                names.iter().any(|name| name.has(url))
                    || proxied(&core.registry, &tenant, without_user(url).as_str()).is_some_and(other)
            });
            let own = Own { lane: own.len(), url: own, reaches_gateway };
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
        // All URLs at a lane listener lead to its lane.
        let listeners = [host.to_owned(), door.host.to_string()].into_iter().filter(|_| door.lane.is_none());
        let listeners = listeners.filter_map(|host| Name::of(&host, ""));
        let names: Vec<Name> = public.into_iter().chain(listeners).collect();
        let reaches_gateway = Arc::new(move |url: &Url| names.iter().any(|name| name.has(url)));
        let own = Own { lane: own.len() - of_base.len(), url: own, reaches_gateway };
        Ok(Aim { path: path.into_owned(), own, route, is_by_path: door.lane.is_none() })
    }
}

/// Finds the route whose base URL covers the URL of a forward proxy's request. That URL may say `http` for a vendor's
/// `https`.
fn proxied(registry: &Registry, tenant: &str, text: &str) -> Option<Arc<Route>> {
    let find = |text: &str| {
        let url = Url::parse(text).ok().filter(|url| url.username().is_empty() && url.password().is_none())?;
        registry.route_for_url(tenant, &url).ok()
    };
    let secure = || text.strip_prefix("http://").and_then(|rest| find(&format!("https://{rest}")));
    find(text).or_else(secure)
}

/// The URL that a client asks its proxy for: it sends a user name in a header.
fn without_user(url: &Url) -> Url {
    let mut url = url.clone();
    // Only a URL without a host takes no user name, and it has none.
    let _ = (url.set_username(""), url.set_password(None));
    url.set_fragment(None);
    url
}

/// A name of the gateway.
struct Name {
    /// By `http` and by `https`: a name without a port has the scheme's default port, and a server in front of the gateway
    /// may speak TLS.
    urls: Vec<Url>,
    /// The path below which the gateway stands there; empty for the whole host.
    path: String,
}

impl Name {
    /// `host`: the host and port of a `Host` header. `None` if no URL can have them.
    fn of(host: &str, path: &str) -> Option<Name> {
        let urls = ["http", "https"].into_iter().filter_map(|scheme| Url::parse(&format!("{scheme}://{host}")).ok());
        let urls: Vec<Url> = urls.collect();
        (!urls.is_empty()).then(|| Name { urls, path: path.trim_end_matches('/').to_owned() })
    }

    /// Whether a URL leads to this name, by whatever scheme. All names of this machine count as one.
    fn has(&self, url: &Url) -> bool {
        let rest = url.path().strip_prefix(&*self.path);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            && self.urls.iter().any(|own| {
                let is_same = url.host_str().map(bare) == own.host_str().map(bare) || (is_local(url) && is_local(own));
                is_same && url.port_or_known_default() == own.port_or_known_default()
            })
    }
}

/// A host's name without the dot of its root.
fn bare(host: &str) -> &str {
    host.trim_end_matches('.')
}

/// Whether a URL's host is this machine, by any name that clients connect to on loopback.
fn is_local(url: &Url) -> bool {
    let is_own = |address: IpAddr| address.is_loopback() || address.is_unspecified();
    match url.host() {
        Some(Host::Domain(name)) => bare(name) == "localhost" || bare(name).ends_with(".localhost"),
        Some(Host::Ipv4(address)) => is_own(address.into()),
        Some(Host::Ipv6(address)) => is_own(address.to_canonical()),
        None => false,
    }
}

#[cfg(test)]
mod tests;
