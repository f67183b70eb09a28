//! The settings of an HTTP client, and how a client is built from them.

use std::time::Duration;

use super::TransportError;
use super::addresses::PublicOnly;
use super::cause::{Cause, unusable};
use super::certificates::Files;
use super::tls;
use crate::config::{Connection, Vendor};

/// The most exchanges that a client has under way while a further one may be built. A client has one HTTP/2 connection
/// to a host, and a vendor allows a number of streams on it: 100 or more, as RFC 9113 recommends (section 6.5.2).
pub(super) const STREAMS: usize = 64;

/// The most bytes of a response that are on their way or unread, and the most of all responses of an HTTP/2 connection: as
/// many responses as a connection has may be left unread, and none stops another. hyper's own figures are 2 and 5 MiB.
const STREAM_WINDOW: u32 = 1024 * 1024;
const CONNECTION_WINDOW: u32 = STREAMS as u32 * STREAM_WINDOW;

/// The most response header bytes (names and values) that are accepted.
pub(super) const MAX_HEADER_BYTES: usize = 64 * 1024;

/// An HTTP/2 connection with open streams is asked by a PING whether it is alive if nothing was read from it for
/// `PING_AFTER`, and is closed without an answer within `PING_PATIENCE`.
const PING_AFTER: Duration = Duration::from_secs(20);
const PING_PATIENCE: Duration = Duration::from_secs(10);

/// What the entries of a vendor and a tenant state about connections.
#[derive(Clone)]
pub(super) struct ClientSettings {
    pub(super) connection: Connection,
    /// The PEM file of the client's certificate: the tenant's or the vendor's.
    pub(super) certificate: Option<String>,
    pub(super) connect_timeout: Duration,
    /// Whether tenants' variables choose the host.
    pub(super) hosts_vary: bool,
}

impl ClientSettings {
    pub(super) fn of(vendor: &Vendor, certificate: Option<&str>, hosts_vary: bool) -> ClientSettings {
        ClientSettings {
            connection: vendor.connection.clone(),
            certificate: certificate.map(str::to_owned),
            connect_timeout: vendor.connect_timeout,
            hosts_vary,
        }
    }

    /// Whether these settings are the ones that [`of`](ClientSettings::of) would return.
    pub(super) fn fit(&self, vendor: &Vendor, certificate: Option<&str>, hosts_vary: bool) -> bool {
        self.connect_timeout == vendor.connect_timeout
            && self.certificate.as_deref() == certificate
            && self.connection == vendor.connection
            && self.hosts_vary == hosts_vary
    }

    /// Whether to connect only to public addresses, because tenants choose the host. A proxy's address is the operator's
    /// choice.
    fn is_public_only(&self) -> bool {
        self.hosts_vary && !self.connection.allow_private && self.connection.proxy.is_none()
    }

    /// The PEM files that [`build`](ClientSettings::build) reads, in their present state.
    pub(super) fn files(&self) -> Files {
        Files::of(self.connection.extra_ca.iter().chain(&self.certificate).map(|path| &**path))
    }

    /// Builds a client. Reads PEM files, and so blocks its thread.
    pub(super) fn build(&self, custom: reqwest::ClientBuilder) -> Result<reqwest::Client, TransportError> {
        let mut builder = custom
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .retry(reqwest::retry::never())
            .no_proxy()
            .gzip(true)
            .tcp_nodelay(true)
            .tcp_keepalive(Duration::from_secs(30))
            .connect_timeout(self.connect_timeout)
            .http2_max_header_list_size(MAX_HEADER_BYTES as u32)
            // Some vendors (GitHub) refuse requests without a user agent.
            .user_agent(concat!("integration-client/", env!("CARGO_PKG_VERSION")));
        if let Some(proxy) = &self.connection.proxy {
            // The URL may hold a password: neither it nor the parser's error goes into the message.
            let proxy = reqwest::Proxy::all(proxy.as_str()).map_err(|_| unusable("the proxy is not a URL"))?;
            builder = builder.proxy(proxy);
        }
        if self.is_public_only() {
            builder = builder.dns_resolver(PublicOnly);
        }
        let builder =
            tls::with_certificates(builder, self.connection.extra_ca.as_deref(), self.certificate.as_deref())?;
        builder
            .build()
            .map_err(|error| unusable("the HTTP client cannot be built").with_source(Cause::of(&error.without_url())))
    }
}

/// The settings of all clients that a program may replace by its own.
pub(super) fn replaceable_settings() -> reqwest::ClientBuilder {
    // Tenants share HTTP/2 connections, and a request that ends at its deadline leaves its connection open. A peer that
    // takes bytes and answers nothing would make every later request end so.
    reqwest::Client::builder()
        .http2_keep_alive_interval(PING_AFTER)
        .http2_keep_alive_timeout(PING_PATIENCE)
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
}
