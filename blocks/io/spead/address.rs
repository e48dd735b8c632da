//! `a.b.c.d+N:port` and `name:port`.

use fxgraph::{BlockError, Rejection};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, ToSocketAddrs};
use std::sync::Arc;

/// Largest number of groups in one address.
pub const MAX_GROUPS: u32 = 4096;

/// Reason why a text is not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The port is missing, or is not a number from 1 to 65535.
    #[error("`{0}` has no valid port; write `a.b.c.d:port`, `a.b.c.d+N:port` or `name:port`")]
    Port(String),
    /// The part before the port is neither an IPv4 address nor the name of a host.
    #[error(
        "`{0}` is not an IPv4 address or host name; write `a.b.c.d:port`, `a.b.c.d+N:port` or `name:port`"
    )]
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

/// One or several addresses, as a parameter names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Consecutive addresses.
    Listed(Vec<SocketAddrV4>),
    /// A host by its name, whose address is looked up when the block is made, and a port.
    Host(String, u16),
}

impl Address {
    /// Number of addresses.
    #[must_use]
    pub fn count(&self) -> usize {
        self.listed().map_or(1, <[_]>::len)
    }

    /// The addresses that are known without looking a name up.
    #[must_use]
    pub fn listed(&self) -> Option<&[SocketAddrV4]> {
        match self {
            Self::Listed(all) => Some(all),
            Self::Host(..) => None,
        }
    }

    /// Whether the addresses are multicast groups.
    #[must_use]
    pub fn is_multicast(&self) -> bool {
        self.listed().is_some_and(|all| all.iter().all(|address| address.ip().is_multicast()))
    }

    /// Returns the addresses; that of a host is looked up.
    ///
    /// # Errors
    /// If the host has no IPv4 address, or is not known.
    pub fn resolve(self) -> Result<Vec<SocketAddrV4>, BlockError> {
        let (name, port) = match self {
            Self::Listed(all) => return Ok(all),
            Self::Host(name, port) => (name, port),
        };
        let all = (name.as_str(), port).to_socket_addrs().map_err(|error| {
            let text = format!(
                "host `{name}` is not found: {error}; check the name, or give its IPv4 address"
            );
            BlockError::new(text).because(error)
        })?;
        let ipv4 = |address| match address {
            SocketAddr::V4(address) => Some(address),
            SocketAddr::V6(_) => None,
        };
        let found = all.into_iter().find_map(ipv4).ok_or_else(|| {
            BlockError::new(format!("host `{name}` has no IPv4 address; streams use IPv4"))
        })?;
        tracing::info!(host = name, address = %found, "host found");
        Ok(vec![found])
    }
}

/// Parses the addresses in `text`: `a.b.c.d+N:port` is N + 1 consecutive addresses.
pub fn parse(text: &str) -> Result<Address, AddressError> {
    let port_error = || AddressError::Port(text.to_owned());
    let (hosts, port) = text.trim().rsplit_once(':').ok_or_else(port_error)?;
    let port: u16 = port.parse().ok().filter(|port| *port != 0).ok_or_else(port_error)?;
    if is_name(hosts) {
        return Ok(Address::Host(hosts.to_owned(), port));
    }
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
    let all = (start..=start + more).map(|ip| SocketAddrV4::new(ip.into(), port));
    Ok(Address::Listed(all.collect()))
}

/// Whether `text` can be the name of a host: labels of letters, digits and hyphens, the last one not a number.
fn is_name(text: &str) -> bool {
    let is_label = |label: &str| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        (1..64).contains(&label.len()) && !label.starts_with('-') && label.bytes().all(is_allowed)
    };
    let last = text.rsplit('.').next().unwrap_or_default();
    let is_number = last.bytes().all(|byte| byte.is_ascii_digit());
    text.len() < 254 && !is_number && text.split('.').all(is_label)
}

/// Parses the addresses in all of `texts`, in order.
pub fn parse_all(texts: &[String]) -> Result<Vec<Address>, Vec<AddressError>> {
    let (mut all, mut errors) = (Vec::new(), Vec::new());
    for text in texts {
        match parse(text) {
            Ok(address) => all.push(address),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(all) } else { Err(errors) }
}

/// Number of addresses in all of `texts`; those that are not valid do not count.
#[must_use]
pub fn count(texts: &[String]) -> usize {
    texts.iter().filter_map(|text| parse(text).ok()).map(|address| address.count()).sum()
}

/// Returns the addresses in all of `texts`, in order; those of hosts are looked up.
///
/// # Errors
/// If a text is not an address, or if a host is not found.
pub fn resolve<'a>(
    texts: impl IntoIterator<Item = &'a String>,
) -> Result<Vec<SocketAddrV4>, BlockError> {
    let mut all = Vec::new();
    for text in texts {
        let address = parse(text).map_err(|error| BlockError::new(error.to_string()))?;
        all.extend(address.resolve()?);
    }
    Ok(all)
}

/// Parses the addresses of senders.
///
/// # Errors
/// If one is not an IPv4 address.
pub fn sources(texts: &[String]) -> Result<Arc<[Ipv4Addr]>, BlockError> {
    let parse = |text: &String| {
        let message = || BlockError::new(format!("`{text}` is not an IPv4 address"));
        text.parse().map_err(|_| message())
    };
    texts.iter().map(parse).collect()
}

/// Diagnostics of the parameter `sources` of a receiver whose parameter `of` has multicast groups only if `are_groups`.
pub fn reject_sources(
    texts: &[String],
    (of, are_groups): (&str, bool),
) -> impl Iterator<Item = Rejection> {
    let is_host = |text: &&String| {
        text.parse::<Ipv4Addr>().is_ok_and(|ip| !ip.is_multicast() && !ip.is_unspecified())
    };
    let wrong = texts.iter().find(|text| !is_host(text)).map(|text| {
        let message = format!("`sources` must be IPv4 addresses of senders, got `{text}`");
        Rejection::parameter("sources", message).help("give addresses such as [10.0.0.1]")
    });
    let no_group = (!texts.is_empty() && !are_groups).then(|| {
        let message = format!("`sources` needs multicast groups in `{of}`");
        let help = "remove `sources`: a unicast address receives the packets of all senders";
        Rejection::parameter("sources", message).help(help)
    });
    wrong.into_iter().chain(no_group)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn range_is_consecutive_groups() {
        let all = parse("239.1.2.254+3:7148").unwrap().resolve().unwrap();
        let texts: Vec<String> = all.iter().map(ToString::to_string).collect();
        let expected = ["239.1.2.254:7148", "239.1.2.255:7148", "239.1.3.0:7148", "239.1.3.1:7148"];
        assert_eq!(texts, expected);
        assert_eq!(parse("127.0.0.1:1").unwrap().count(), 1);
    }

    #[test]
    fn parse_names_the_error_of_an_address() {
        for text in ["127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536"] {
            assert!(matches!(parse(text), Err(AddressError::Port(_))), "{text}");
        }
        for text in ["127.0.1:1", "x_+3:1", "a..b:1", "-a:1", "[::1]:1", "1.2.3.4.5:1", ":1"] {
            assert!(
                matches!(parse(text), Err(AddressError::Ip(_) | AddressError::Groups(_))),
                "{text}"
            );
        }
        assert!(matches!(parse("1.2.3.4+x:1"), Err(AddressError::Groups(_))));
        assert!(matches!(parse("1.2.3.4+4000000000:1"), Err(AddressError::Groups(_))));
        assert!(matches!(parse("239.255.255.255+1:1"), Err(AddressError::Range(_))));
        assert!(matches!(parse("255.255.255.255+1:1"), Err(AddressError::Range(_))));
    }

    #[test]
    fn host_name_is_looked_up() {
        let address = parse("localhost:7148").unwrap();
        assert_eq!((address.count(), address.is_multicast()), (1, false));
        assert_eq!(address.resolve().unwrap(), [SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7148)]);
        // RFC 2606: no host has this name.
        let error = resolve([&"no-such-host.invalid:1".to_owned()]).unwrap_err().to_string();
        assert!(error.starts_with("host `no-such-host.invalid` is not found"), "{error}");
    }
}
