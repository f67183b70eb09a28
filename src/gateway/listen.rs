//! Where a gateway listens.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use crate::error::Error;

/// Where a gateway listens: one address, and beside it one for each [lane](Listen::lane).
#[derive(Clone, Debug)]
pub struct Listen {
    pub(super) at: At,
    /// Address, tenant and vendor.
    pub(super) lanes: Vec<(SocketAddr, Arc<str>, Arc<str>)>,
}

#[derive(Clone, Debug)]
pub(super) enum At {
    Tcp(SocketAddr),
    #[cfg_attr(not(unix), allow(dead_code, reason = "there are none"))]
    Unix(PathBuf),
}

impl Listen {
    /// A free port of 127.0.0.1.
    pub fn loopback() -> Listen {
        Listen::tcp((Ipv4Addr::LOCALHOST, 0).into())
    }

    /// This address. One that is not loopback needs `[[callers]]`.
    pub fn tcp(address: SocketAddr) -> Listen {
        Listen { at: At::Tcp(address), lanes: Vec::new() }
    }

    /// A Unix socket at this path, for the user and the group of this process. A socket that is left from a process that
    /// has ended is replaced.
    #[cfg(unix)]
    pub fn unix(path: impl Into<PathBuf>) -> Listen {
        Listen { at: At::Unix(path.into()), lanes: Vec::new() }
    }

    /// One more address, all of whose requests are this tenant's to this vendor: for SDKs that take host and port alone.
    #[must_use]
    pub fn lane(mut self, address: SocketAddr, tenant: impl AsRef<str>, vendor: impl AsRef<str>) -> Listen {
        self.lanes.push((address, tenant.as_ref().into(), vendor.as_ref().into()));
        self
    }
}

impl FromStr for Listen {
    type Err = Error;

    /// `127.0.0.1:8099`, or `unix:PATH`.
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
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        assert!(matches!("[::1]:80".parse::<Listen>().unwrap().at, At::Tcp(address) if address.port() == 80));
        #[cfg(unix)]
        assert!(matches!("unix:/run/x".parse::<Listen>().unwrap().at, At::Unix(_)));
        for bad in ["", "8099", "localhost", "unix:", ":8099"] {
            assert!(bad.parse::<Listen>().is_err(), "{bad}");
        }
    }
}
