//! Where a gateway listens.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use crate::error::Error;

/// Where a gateway listens: one address for all tenants and vendors, and one more for each [lane](Listen::lane).
#[derive(Clone, Debug)]
pub struct Listen {
    pub(super) at: At,
    /// Address, tenant and vendor of each lane listener.
    pub(super) lanes: Vec<(SocketAddr, Arc<str>, Arc<str>)>,
}

#[derive(Clone, Debug)]
pub(super) enum At {
    Tcp(SocketAddr),
    #[cfg_attr(not(unix), allow(dead_code, reason = "there are none"))]
    Unix(PathBuf),
}

impl Listen {
    /// Listens on a free port of 127.0.0.1.
    pub fn loopback() -> Listen {
        Listen::tcp((Ipv4Addr::LOCALHOST, 0).into())
    }

    /// Listens on `address`. An address that is not loopback needs `[[callers]]` in the configuration.
    pub fn tcp(address: SocketAddr) -> Listen {
        Listen { at: At::Tcp(address), lanes: Vec::new() }
    }

    /// Listens on a Unix socket at `path`, accessible to the user and the group of this process. Replaces a socket
    /// file that a process left when it was killed.
    #[cfg(unix)]
    pub fn unix(path: impl Into<PathBuf>) -> Listen {
        Listen { at: At::Unix(path.into()), lanes: Vec::new() }
    }

    /// Adds an address all of whose requests are sent for `tenant` to `vendor`: for SDKs that take only host and port.
    #[must_use]
    pub fn lane(mut self, address: SocketAddr, tenant: impl AsRef<str>, vendor: impl AsRef<str>) -> Listen {
        self.lanes.push((address, tenant.as_ref().into(), vendor.as_ref().into()));
        self
    }
}

impl FromStr for Listen {
    type Err = Error;

    /// Parses `127.0.0.1:8099` or `unix:PATH`.
    fn from_str(text: &str) -> Result<Listen, Error> {
        #[cfg(unix)]
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Listen::unix(path));
        }
        let unread =
            |_| Error::config("this is no address to listen on; write for example 127.0.0.1:8099, or unix:PATH");
        text.parse().map(Listen::tcp).map_err(unread)
    }
}

#[cfg(test)]
mod tests;
