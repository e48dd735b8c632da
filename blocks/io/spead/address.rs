//! `a.b.c.d+N:port` and network interfaces.

use if_addrs::IfAddr;
use std::net::{Ipv4Addr, SocketAddrV4};

/// Largest number of groups in one address.
pub const MAX_GROUPS: u32 = 4096;

/// Reason why a text is not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The port is missing, or is not a number from 1 to 65535.
    #[error("`{0}` has no valid port; write `a.b.c.d:port` or `a.b.c.d+N:port`")]
    Port(String),
    /// The part before the port is not an IPv4 address.
    #[error("`{0}` is not an IPv4 address; write `a.b.c.d:port` or `a.b.c.d+N:port`")]
    Ip(String),
    /// The text after `+` is not a number, or the number is too large.
    #[error("N in `{0}` must be a number below {MAX_GROUPS}, for N + 1 groups")]
    Groups(String),
    /// The groups extend beyond the address range of the first one.
    #[error(
        "the groups of `{0}` extend beyond the address range (multicast or unicast) of the first one"
    )]
    Range(String),
}

/// Parses the addresses in `text`: `a.b.c.d+N:port` is N + 1 consecutive addresses.
pub fn parse(text: &str) -> Result<Vec<SocketAddrV4>, AddressError> {
    let port_error = || AddressError::Port(text.to_owned());
    let (hosts, port) = text.trim().rsplit_once(':').ok_or_else(port_error)?;
    let port: u16 = port.parse().ok().filter(|port| *port != 0).ok_or_else(port_error)?;
    let (first, more) = match hosts.split_once('+') {
        None => (hosts, 0),
        Some((first, more)) => {
            let more = more.parse().ok().filter(|more| *more < MAX_GROUPS);
            (first, more.ok_or_else(|| AddressError::Groups(text.to_owned()))?)
        }
    };
    let first: Ipv4Addr = first.parse().map_err(|_| AddressError::Ip(text.to_owned()))?;
    let last = u32::from(first).checked_add(more).map(Ipv4Addr::from);
    if last.is_none_or(|last| last.is_multicast() != first.is_multicast()) {
        return Err(AddressError::Range(text.to_owned()));
    }
    let start = u32::from(first);
    Ok((start..=start + more).map(|ip| SocketAddrV4::new(ip.into(), port)).collect())
}

/// Parses the addresses in all of `texts`, in order.
pub fn parse_all(texts: &[String]) -> Result<Vec<SocketAddrV4>, Vec<AddressError>> {
    let (mut all, mut errors) = (Vec::new(), Vec::new());
    for text in texts {
        match parse(text) {
            Ok(addresses) => all.extend(addresses),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(all) } else { Err(errors) }
}

/// Returns the names and IPv4 addresses of this host's interfaces.
#[must_use]
pub fn interfaces() -> Vec<(String, Ipv4Addr)> {
    let ipv4 = |interface: if_addrs::Interface| match interface.addr {
        IfAddr::V4(address) => Some((interface.name, address.ip)),
        IfAddr::V6(_) => None,
    };
    if_addrs::get_if_addrs().unwrap_or_default().into_iter().filter_map(ipv4).collect()
}

/// Returns the IPv4 address of the interface `name`, which may also be one of its addresses.
pub fn interface(name: &str) -> Result<Ipv4Addr, NoInterface> {
    let all = interfaces();
    let asked = name.parse::<Ipv4Addr>().ok();
    let found = all.iter().find(|(known, ip)| known == name || Some(*ip) == asked);
    found.map(|(_, ip)| *ip).ok_or_else(|| NoInterface::of(name))
}

/// Error: the network interface does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("network interface `{name}` does not exist; this host has {known}")]
pub struct NoInterface {
    /// Name or address requested.
    pub name: String,
    /// Interfaces of this host, for the message.
    pub known: String,
}

impl NoInterface {
    /// The error for the interface `name`.
    #[must_use]
    pub fn of(name: &str) -> Self {
        let known =
            interfaces().iter().map(|(known, ip)| format!("{known} ({ip})")).collect::<Vec<_>>();
        Self { name: name.to_owned(), known: known.join(", ") }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn range_is_consecutive_groups() {
        let all = parse("239.1.2.254+3:7148").unwrap();
        let texts: Vec<String> = all.iter().map(ToString::to_string).collect();
        let expected = ["239.1.2.254:7148", "239.1.2.255:7148", "239.1.3.0:7148", "239.1.3.1:7148"];
        assert_eq!(texts, expected);
        assert_eq!(parse("127.0.0.1:1").unwrap().len(), 1);
    }

    #[test]
    fn parse_names_the_error_of_an_address() {
        for text in ["127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536"] {
            assert!(matches!(parse(text), Err(AddressError::Port(_))), "{text}");
        }
        assert!(matches!(parse("localhost:1"), Err(AddressError::Ip(_))));
        assert!(matches!(parse("1.2.3.4+x:1"), Err(AddressError::Groups(_))));
        assert!(matches!(parse("1.2.3.4+4000000000:1"), Err(AddressError::Groups(_))));
        assert!(matches!(parse("239.255.255.255+1:1"), Err(AddressError::Range(_))));
        assert!(matches!(parse("255.255.255.255+1:1"), Err(AddressError::Range(_))));
    }

    #[test]
    fn loopback_interface_is_found_by_name_and_by_address() {
        assert_eq!(interface("127.0.0.1"), Ok(Ipv4Addr::LOCALHOST));
        let by_name = interfaces().into_iter().find(|(_, ip)| ip.is_loopback()).unwrap().0;
        assert_eq!(interface(&by_name), Ok(Ipv4Addr::LOCALHOST));
        let error = interface("eth-none").unwrap_err().to_string();
        assert!(error.contains("eth-none") && error.contains("127.0.0.1"), "{error}");
    }
}
