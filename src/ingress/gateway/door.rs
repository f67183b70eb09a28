//! The listener through which a request arrived, and the checks against requests of browsers.
//!
//! A gateway without tokens is open to every program on the machine, and a browser runs strangers' code: a page can
//! send a POST to loopback, and can read the response if its host name is made to resolve to loopback (DNS rebinding).
//! So requests that show that a page sent them, or that name another host, are refused.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use http::header::{HOST, HeaderMap, ORIGIN};
use http::{StatusCode, Uri};
use tokio::sync::watch;

use super::problem::Problem;

/// How far the shutdown of one [`Serving`](super::Serving) has come.
#[derive(Debug, Default)]
pub(super) struct Shutdown {
    /// Whether the listeners report that they are not ready, because they are about to close.
    pub(super) draining: AtomicBool,
    /// Set when the grace period ends: requests that still wait are refused.
    pub(super) over: watch::Sender<bool>,
}

/// The listener through which a request arrived.
#[derive(Clone, Debug, Default)]
pub(super) struct Door {
    /// Tenant and vendor of all requests on this listener, if it is a lane listener.
    pub(super) lane: Option<(Arc<str>, Arc<str>)>,
    pub(super) peer: Option<IpAddr>,
    /// The listener's address in the form of a `Host` header; empty for a Unix socket or an unknown listener.
    pub(super) host: Arc<str>,
    /// Whether another server accepted the request.
    pub(super) is_unknown: bool,
    pub(super) shutdown: Arc<Shutdown>,
}

impl Door {
    /// The door of a request that another server accepted and passed on.
    pub(super) fn unknown() -> Door {
        Door { is_unknown: true, ..Door::default() }
    }

    /// Refuses a request that a page in a browser may have sent.
    pub(super) fn refuse_browsers(&self, headers: &HeaderMap, uri: &Uri) -> Result<(), Problem> {
        let refuse = |why| Err(Problem::refused(StatusCode::FORBIDDEN, "forbidden", why));
        let site = headers.get("sec-fetch-site");
        if headers.contains_key(ORIGIN) || site.is_some_and(|site| site != "none") {
            return refuse("a page in a browser may not use a gateway that asks for no token; give the caller a token");
        }
        let named = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        let other = "the Host header is not this listener's address; a gateway that asks for no token takes no other";
        if self.is_unknown {
            return if names_loopback(named) { Ok(()) } else { refuse(other) };
        }
        // A forward proxy's request names the vendor as its host, and no page can name the host of a Unix socket.
        if uri.scheme().is_some() || self.host.is_empty() {
            return Ok(());
        }
        let port = self.host.rsplit_once(':').map_or("", |(_, port)| port);
        let hosts =
            [self.host.to_string(), format!("localhost:{port}"), format!("127.0.0.1:{port}"), format!("[::1]:{port}")];
        // Clients omit the port if it is the scheme's default.
        let bare = ["localhost", "127.0.0.1", "[::1]"].into_iter().filter(|_| port == "80");
        let hosts: Vec<&str> = hosts.iter().map(String::as_str).chain(bare).collect();
        match hosts.iter().any(|host| host.eq_ignore_ascii_case(named)) {
            true => Ok(()),
            false => refuse(other),
        }
    }
}

/// Whether a `Host` header names this machine, with any port: the port of another server is not known here.
fn names_loopback(host: &str) -> bool {
    let port = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    let name = port.map_or(host, |(name, _)| name);
    ["localhost", "127.0.0.1", "[::1]"].iter().any(|own| own.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests;
