//! Address and port of a sender, as received datagrams carry them.

use crate::common::net::family;
use std::fmt;
use std::net::{AddrParseError, IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::str::FromStr;

/// Address and port of a sender of either family, in 24 bytes: receivers keep one for each heap, and compare them for
/// each datagram. An IPv4 address is kept as an IPv4-mapped one, which no packet of IPv6 carries here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    ip: [u8; 16],
    port: u16,
    /// Number of the interface of a link-local address; 0 for others.
    scope: u32,
}

impl Endpoint {
    /// Returns the endpoint with an IPv4 address.
    #[must_use]
    pub const fn v4(ip: Ipv4Addr, port: u16) -> Self {
        Self { ip: ip.to_ipv6_mapped().octets(), port, scope: 0 }
    }

    /// Returns the endpoint with an address that is not link-local.
    #[must_use]
    pub fn new(ip: IpAddr, port: u16) -> Self {
        SocketAddr::new(ip, port).into()
    }

    /// Returns the endpoint that the kernel has written to `name`.
    pub(super) fn of_name(name: &libc::sockaddr_in6) -> Self {
        match family::of_name(name) {
            (IpAddr::V4(ip), port, _) => Self::v4(ip, port),
            (IpAddr::V6(ip), port, scope) => Self { ip: ip.octets(), port, scope },
        }
    }

    /// Returns the address.
    #[must_use]
    pub fn ip(&self) -> IpAddr {
        IpAddr::from(self.ip).to_canonical()
    }

    /// Returns the port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl From<SocketAddrV4> for Endpoint {
    fn from(address: SocketAddrV4) -> Self {
        Self::v4(*address.ip(), address.port())
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(v4) => v4.into(),
            SocketAddr::V6(v6) => {
                Self { ip: v6.ip().octets(), port: v6.port(), scope: v6.scope_id() }
            }
        }
    }
}

impl From<Endpoint> for SocketAddr {
    fn from(endpoint: Endpoint) -> Self {
        match endpoint.ip() {
            IpAddr::V4(ip) => SocketAddrV4::new(ip, endpoint.port).into(),
            IpAddr::V6(ip) => SocketAddrV6::new(ip, endpoint.port, 0, endpoint.scope).into(),
        }
    }
}

impl FromStr for Endpoint {
    type Err = AddrParseError;

    fn from_str(text: &str) -> Result<Self, AddrParseError> {
        text.parse::<SocketAddr>().map(Self::from)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::from(*self).fmt(f)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::from(*self).fmt(f)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_is_compact_and_shown_as_its_address() {
        assert_eq!(size_of::<Endpoint>(), 24);
        for text in ["10.77.0.1:7148", "[::1]:7148", "[fe80::1%3]:7148"] {
            let address: SocketAddr = text.parse().unwrap();
            let endpoint = Endpoint::from(address);
            assert_eq!((endpoint.to_string(), SocketAddr::from(endpoint)), (text.into(), address));
            assert_eq!(Endpoint::of_name(&family::name(address).0), endpoint);
        }
    }
}
