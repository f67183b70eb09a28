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
mod tests {
    use super::*;

    #[test]
    fn special_purpose_addresses_are_not_public() {
        let denied = [
            // This network, loopback, private use.
            "0.0.0.0",
            "0.0.0.1",
            "0.255.255.255",
            "10.0.0.0",
            "10.0.0.1",
            "10.255.255.255",
            "127.0.0.0",
            "127.0.0.1",
            "127.0.0.53",
            "127.1.2.3",
            "127.255.255.255",
            "172.16.0.0",
            "172.16.0.1",
            "172.20.10.4",
            "172.31.255.255",
            "192.168.0.0",
            "192.168.0.1",
            "192.168.1.254",
            "192.168.255.255",
            // Shared, link local (metadata services), protocol assignments.
            "100.64.0.0",
            "100.64.0.1",
            "100.100.100.200",
            "100.127.255.255",
            "169.254.0.0",
            "169.254.169.254",
            "169.254.170.2",
            "169.254.255.255",
            "192.0.0.0",
            "192.0.0.8",
            "192.0.0.170",
            "192.0.0.192",
            "192.0.0.255",
            // Documentation, benchmarking, relays.
            "192.0.2.0",
            "192.0.2.1",
            "192.0.2.255",
            "198.51.100.7",
            "203.0.113.0",
            "203.0.113.255",
            "198.18.0.0",
            "198.18.0.1",
            "198.19.255.255",
            "192.88.99.1",
            // Multicast, reserved, broadcast.
            "224.0.0.0",
            "224.0.0.251",
            "232.1.1.1",
            "239.255.255.250",
            "239.255.255.255",
            "240.0.0.0",
            "240.0.0.1",
            "250.1.2.3",
            "255.255.255.254",
            "255.255.255.255",
            // IPv6: unspecified, loopback, IPv4 inside.
            "::",
            "::1",
            "::2",
            "::127.0.0.1",
            "::10.0.0.1",
            "::ffff:0.0.0.0",
            "::ffff:10.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:192.168.1.1",
            "::ffff:172.16.5.4",
            "::ffff:100.64.0.1",
            "::ffff:0:127.0.0.1",
            "::ffff:0:8.8.8.8",
            // NAT64, discard, local use.
            "64:ff9b::",
            "64:ff9b::7f00:1",
            "64:ff9b::8.8.8.8",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::1",
            "64:ff9b:1:ffff::1",
            "100::",
            "100::1",
            "100:0:0:1::1",
            "5f00::1",
            // Teredo, ORCHID, benchmarking and the other protocol assignments.
            "2001::",
            "2001::1",
            "2001:0:4136:e378:8000:63bf:3fff:fdd2",
            "2001:1::1",
            "2001:2::1",
            "2001:2:0:ffff::1",
            "2001:3::1",
            "2001:4:112::1",
            "2001:10::1",
            "2001:20::1",
            "2001:30::1",
            "2001:1ff:ffff::1",
            // Documentation, 6to4.
            "2001:db8::",
            "2001:db8::1",
            "2001:db8:ffff::1",
            "3fff::1",
            "3fff:fff:ffff::1",
            "2002::1",
            "2002:7f00:1::1",
            "2002:a00:1::",
            "2002:c0a8:101::1",
            "2002:808:808::1",
            // Unique local, link local, site local, multicast.
            "fc00::",
            "fc00::1",
            "fd00::1",
            "fd00:ec2::254",
            "fdff:ffff::1",
            "fe80::",
            "fe80::1",
            "fe80::a9fe:a9fe",
            "febf::1",
            "fec0::1",
            "ff00::",
            "ff02::1",
            "ff02::fb",
            "ff05::1:3",
            "ff0e::1",
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        ];
        assert!(denied.len() >= 100, "{}", denied.len());
        for text in denied {
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn addresses_beside_special_ranges_are_public() {
        for text in [
            "1.0.0.0",
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "140.82.112.3",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "191.255.255.255",
            "192.0.1.0",
            "192.0.3.0",
            "192.88.98.255",
            "192.88.100.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "198.51.99.255",
            "198.51.101.0",
            "203.0.112.255",
            "203.0.114.0",
            "223.255.255.255",
            "::ffff:8.8.8.8",
            "2000::1",
            "2001:200::1",
            "2001:4860:4860::8888",
            "2001:db7::1",
            "2001:db9::1",
            "2003::1",
            "2606:4700::1111",
            "2a00:1450::1",
            "3ffe::1",
            "3fff:1000::1",
        ] {
            assert!(is_public(text.parse().unwrap()), "{text}");
        }
    }

    #[tokio::test]
    async fn resolver_answers_no_private_address() {
        // Every system resolves this name to itself, without a server.
        let Err(error) = PublicOnly.resolve("localhost".parse().unwrap()).await else { panic!("it was resolved") };
        assert!(error.is::<PrivateAddress>(), "{error}");
    }
}
