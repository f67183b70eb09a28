//! The addresses to which a host chosen by a tenant may resolve.
//!
//! With `https://{host}/api` a tenant's row chooses the host. Its name may resolve to anything: to this machine, to a
//! neighbour in the private network, to the cloud's metadata service, and to another address at each query. So the
//! addresses are checked when the connection is made: the HTTP client asks this resolver, and connects only to the
//! addresses it returns. A host that the operator's own entry spells out is trusted and not checked.
//!
//! Allowed are the addresses that the IANA registries of special-purpose addresses call globally reachable
//! (<https://www.iana.org/assignments/iana-ipv4-special-registry>,
//! <https://www.iana.org/assignments/iana-ipv6-special-registry>), except multicast and the ranges that embed another
//! address (NAT64, 6to4, Teredo), because those lead wherever the embedded address does.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Network address and prefix length, with the registry's name for the range.
const DENIED_V4: [(Ipv4Addr, u32); 15] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),       // this network
    (Ipv4Addr::new(10, 0, 0, 0), 8),      // private use
    (Ipv4Addr::new(100, 64, 0, 0), 10),   // shared address space (carrier-grade NAT)
    (Ipv4Addr::new(127, 0, 0, 0), 8),     // loopback
    (Ipv4Addr::new(169, 254, 0, 0), 16),  // link local; the clouds' metadata services
    (Ipv4Addr::new(172, 16, 0, 0), 12),   // private use
    (Ipv4Addr::new(192, 0, 0, 0), 24),    // IETF protocol assignments
    (Ipv4Addr::new(192, 0, 2, 0), 24),    // documentation
    (Ipv4Addr::new(192, 88, 99, 0), 24),  // 6to4 relays
    (Ipv4Addr::new(192, 168, 0, 0), 16),  // private use
    (Ipv4Addr::new(198, 18, 0, 0), 15),   // benchmarking
    (Ipv4Addr::new(198, 51, 100, 0), 24), // documentation
    (Ipv4Addr::new(203, 0, 113, 0), 24),  // documentation
    (Ipv4Addr::new(224, 0, 0, 0), 4),     // multicast
    (Ipv4Addr::new(240, 0, 0, 0), 4),     // reserved, broadcast
];

/// Global unicast. No IPv6 address outside of it is allowed, which excludes loopback, unspecified, link local, unique
/// local, multicast and NAT64 (`64:ff9b::/96`, `64:ff9b:1::/48`).
const GLOBAL_V6: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

const DENIED_V6: [(Ipv6Addr, u32); 4] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23), // IETF protocol assignments; Teredo among them
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32), // documentation
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16), // 6to4
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20), // documentation
];

/// Whether a host chosen by a tenant may resolve to `address`.
pub(super) fn is_public(address: IpAddr) -> bool {
    // An IPv4 address in IPv6 form (`::ffff:127.0.0.1`) is the IPv4 address.
    match address.to_canonical() {
        IpAddr::V4(address) => !DENIED_V4.iter().any(|(network, length)| {
            let mask = u32::MAX << (32 - length);
            address.to_bits() & mask == network.to_bits()
        }),
        IpAddr::V6(address) => {
            let is_in = |(network, length): &(Ipv6Addr, u32)| {
                let mask = u128::MAX << (128 - length);
                address.to_bits() & mask == network.to_bits()
            };
            is_in(&GLOBAL_V6) && !DENIED_V6.iter().any(is_in)
        }
    }
}

/// The system's resolver, restricted to public addresses.
#[derive(Debug)]
pub(super) struct PublicOnly;

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            // The HTTP client replaces the port with the URL's.
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let public: Vec<SocketAddr> = found.iter().copied().filter(|address| is_public(address.ip())).collect();
            if public.is_empty() && !found.is_empty() {
                return Err(PrivateAddress.into());
            }
            Ok(Box::new(public.into_iter()) as Addrs)
        })
    }
}

/// The error for a host chosen by a tenant that resolves to no public address.
#[derive(Clone, Copy, Debug)]
pub(super) struct PrivateAddress;

impl PrivateAddress {
    /// The message for the caller. It names neither host nor address, because a probing tenant may want to learn them.
    pub(super) const MESSAGE: &'static str = "the host comes from the tenant's variables and leads to an address that is \
         not public (loopback, private, link-local or reserved); correct the variable, or set \
         `connection.allow_private = true` in the vendor's entry if its hosts are in a private network";
}

impl fmt::Display for PrivateAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the host leads to an address that is not public")
    }
}

impl std::error::Error for PrivateAddress {}

#[cfg(test)]
mod tests;
