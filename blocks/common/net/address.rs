//! `a.b.c.d+N:port`, `[ipv6]+N:port` and `name:port`.

use super::family::{Family, needs_scope};
use super::interface;
use fxgraph::{BlockError, Rejection};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs};
use std::sync::Arc;

/// Largest number of groups in one address.
pub const MAX_GROUPS: u32 = 4096;

/// Reason why a text is not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The port is missing, or is not a number from 1 to 65535.
    #[error(
        "`{0}` has no valid port; write `a.b.c.d:port`, `a.b.c.d+N:port`, `[ipv6]:port`, `[ipv6]+N:port` or `name:port`"
    )]
    Port(String),
    /// The part before the port is neither an address nor the name of a host.
    #[error(
        "`{0}` is not an IP address or host name; write `a.b.c.d:port`, `a.b.c.d+N:port`, `[ipv6]:port`, \
         `[ipv6]+N:port` or `name:port`"
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
    /// An IPv6 address that means an IPv4 one.
    #[error("`{0}` is an IPv4 address in IPv6 notation; write `{1}`")]
    Mapped(String, Ipv4Addr),
    /// An address that is not link-local names an interface.
    #[error(
        "`%` in `{0}` must follow a link-local address, such as fe80::1 or ff02::1:3; name the interface of other \
         addresses by a parameter of its own"
    )]
    Scope(String),
}

/// One or several addresses, as a parameter names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Consecutive addresses.
    Listed(Vec<SocketAddr>),
    /// Consecutive link-local IPv6 addresses, and the name or number of their interface.
    LinkLocal(Vec<SocketAddr>, String),
    /// A host by its name, whose address is looked up when the block is made, and a port.
    Host(String, u16),
}

impl Address {
    /// Number of addresses.
    #[must_use]
    pub fn count(&self) -> usize {
        self.listed().map_or(1, <[_]>::len)
    }

    /// The addresses that are known without looking a name up. Link-local ones are without their interface.
    #[must_use]
    pub fn listed(&self) -> Option<&[SocketAddr]> {
        match self {
            Self::Listed(all) | Self::LinkLocal(all, _) => Some(all),
            Self::Host(..) => None,
        }
    }

    /// The family of the addresses, if it is known without looking a name up.
    #[must_use]
    pub fn family(&self) -> Option<Family> {
        self.listed()?.first().map(|first| Family::of(first.ip()))
    }

    /// Whether the addresses are multicast groups.
    #[must_use]
    pub fn is_multicast(&self) -> bool {
        self.listed().is_some_and(|all| all.iter().all(|address| address.ip().is_multicast()))
    }

    /// Whether the addresses are link-local, and do not name their interface.
    #[must_use]
    pub fn lacks_scope(&self) -> bool {
        matches!(self, Self::Listed(all) if all.iter().any(|address| needs_scope(address.ip())))
    }

    /// Returns each address as text.
    #[must_use]
    pub fn texts(&self) -> Vec<String> {
        match self {
            Self::Listed(all) => all.iter().map(ToString::to_string).collect(),
            Self::LinkLocal(all, scope) => {
                all.iter().map(|to| format!("[{}%{scope}]:{}", to.ip(), to.port())).collect()
            }
            Self::Host(name, port) => vec![format!("{name}:{port}")],
        }
    }

    /// Returns the addresses; that of a host, and the number of an interface, are looked up.
    ///
    /// # Errors
    /// If the host is not known, or if this host has no such interface.
    pub fn resolve(self) -> Result<Vec<SocketAddr>, BlockError> {
        let (name, port) = match self {
            Self::Listed(all) => return Ok(all),
            Self::LinkLocal(all, scope) => {
                let scope =
                    interface::scope(&scope).map_err(|error| BlockError::new(error.to_string()))?;
                let scoped = |address: SocketAddr| match address {
                    SocketAddr::V6(v6) => {
                        SocketAddrV6::new(*v6.ip(), v6.port(), v6.flowinfo(), scope).into()
                    }
                    SocketAddr::V4(_) => address,
                };
                return Ok(all.into_iter().map(scoped).collect());
            }
            Self::Host(name, port) => (name, port),
        };
        let all = (name.as_str(), port).to_socket_addrs().map_err(|error| {
            let text =
                format!("host `{name}` is not found: {error}; check the name, or give its address");
            BlockError::new(text).because(error)
        })?;
        // Other streams and interfaces have IPv4 addresses, and most senders send to these.
        let (v4, v6): (Vec<_>, Vec<_>) = all.partition(SocketAddr::is_ipv4);
        let found = v4.into_iter().chain(v6).next().ok_or_else(|| {
            BlockError::new(format!("host `{name}` has no address; give one instead of the name"))
        })?;
        tracing::info!(host = name, address = %found, "host found");
        Ok(vec![found])
    }
}

/// Parses the addresses in `text`: `a.b.c.d+N:port` and `[ipv6]+N:port` are N + 1 consecutive addresses.
pub fn parse(text: &str) -> Result<Address, AddressError> {
    let port_error = || AddressError::Port(text.to_owned());
    let ip_error = || AddressError::Ip(text.to_owned());
    // The colons of an address of IPv6 are in its brackets.
    let trimmed = text.trim();
    let after = trimmed.rfind(']').map_or(0, |end| end + 1);
    let colon = trimmed[after..].rfind(':').ok_or_else(port_error)? + after;
    let (hosts, port) = (&trimmed[..colon], &trimmed[colon + 1..]);
    let port: u16 = port.parse().ok().filter(|port| *port != 0).ok_or_else(port_error)?;
    if is_name(hosts) {
        return Ok(Address::Host(hosts.to_owned(), port));
    }
    // A `+` in brackets can be one of an interface's name.
    let (first, more) = match hosts[after..].split_once('+') {
        None => (hosts, 0),
        Some((between, more)) => {
            let more = more.parse().ok().filter(|more| *more < MAX_GROUPS);
            let more = more.ok_or_else(|| AddressError::Groups(text.to_owned()))?;
            (&hosts[..after + between.len()], more)
        }
    };
    let in_brackets = first.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let Some(v6) = in_brackets else {
        let first: Ipv4Addr = first.parse().map_err(|_| ip_error())?;
        return Ok(Address::Listed(consecutive(first.into(), more, port, text)?));
    };
    let (v6, scope) = v6.split_once('%').map_or((v6, None), |(v6, scope)| (v6, Some(scope)));
    let v6: Ipv6Addr = v6.parse().map_err(|_| ip_error())?;
    if let Some(v4) = v6.to_ipv4_mapped() {
        return Err(AddressError::Mapped(text.to_owned(), v4));
    }
    let all = consecutive(v6.into(), more, port, text)?;
    match scope {
        None => Ok(Address::Listed(all)),
        Some(scope) if !needs_scope(v6.into()) || !interface::is_name(scope) => {
            Err(AddressError::Scope(text.to_owned()))
        }
        Some(scope) => Ok(Address::LinkLocal(all, scope.to_owned())),
    }
}

/// Returns `first` and the `more` addresses after it, which are all multicast or all unicast.
fn consecutive(
    first: IpAddr,
    more: u32,
    port: u16,
    text: &str,
) -> Result<Vec<SocketAddr>, AddressError> {
    let nth = |n: u32| match first {
        IpAddr::V4(first) => {
            first.to_bits().checked_add(n).map(|bits| Ipv4Addr::from_bits(bits).into())
        }
        IpAddr::V6(first) => {
            first.to_bits().checked_add(n.into()).map(|bits| Ipv6Addr::from_bits(bits).into())
        }
    };
    let range = |ip: IpAddr| (ip.is_multicast(), needs_scope(ip));
    let all = (0..=more).map(|n| nth(n).filter(|ip| range(*ip) == range(first)));
    let all = all.map(|ip| Some(SocketAddr::new(ip?, port))).collect::<Option<_>>();
    all.ok_or_else(|| AddressError::Range(text.to_owned()))
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

/// Parses `text`, the value of `parameter`, which must be one address.
///
/// # Errors
/// A diagnostic with `help` if the text is none, or several.
pub fn one(text: &str, parameter: &'static str, help: &str) -> Result<Address, Box<Rejection>> {
    let why = match parse(text) {
        Ok(one) if one.count() == 1 => return Ok(one),
        Ok(all) => format!("`{parameter}` must be one address, got {} groups", all.count()),
        Err(error) => error.to_string(),
    };
    Err(Box::new(Rejection::parameter(parameter, why).help(help)))
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
/// If a text is not an address, or if a host or an interface is not found.
pub fn resolve<'a>(
    texts: impl IntoIterator<Item = &'a String>,
) -> Result<Vec<SocketAddr>, BlockError> {
    let mut all = Vec::new();
    for text in texts {
        let address = parse(text).map_err(|error| BlockError::new(error.to_string()))?;
        all.extend(address.resolve()?);
    }
    Ok(all)
}

/// Returns the addresses in all of `texts` like [`resolve`], but link-local ones without their interface, which this host
/// need not have.
///
/// # Errors
/// If a text is not an address, or if a host is not found.
pub fn without_scope(texts: &[String]) -> Result<Vec<SocketAddr>, BlockError> {
    let mut all = Vec::new();
    for text in texts {
        let address = parse(text).map_err(|error| BlockError::new(error.to_string()))?;
        match address {
            Address::LinkLocal(listed, _) => all.extend(listed),
            address => all.extend(address.resolve()?),
        }
    }
    Ok(all)
}

/// Returns the family of `addresses`, which all have the same: a sender has one socket.
///
/// # Errors
/// If they have two.
pub fn family(addresses: &[SocketAddr]) -> Result<Family, BlockError> {
    let first = addresses.first().map_or(Family::V4, |first| Family::of(first.ip()));
    match addresses.iter().find(|address| Family::of(address.ip()) != first) {
        None => Ok(first),
        Some(other) => {
            let mixed = mixed("`destinations`", addresses[0], *other);
            Err(BlockError::new(format!("{mixed}: send to each family from a sink of its own")))
        }
    }
}

fn mixed(of: &str, first: SocketAddr, other: SocketAddr) -> String {
    let [one, two] = [first, other].map(|address| Family::of(address.ip()));
    format!("{of} must be all {one} or all {two}, got {first} and {other}")
}

/// Diagnostic of the parameter `of`, which has `addresses` of a sender: all must be of one family.
#[must_use]
pub fn reject_mixed(addresses: &[Address], of: &'static str) -> Option<Rejection> {
    let mut listed = addresses.iter().filter_map(|address| address.listed()?.first().copied());
    let first = listed.next()?;
    let other = listed.find(|other| other.is_ipv4() != first.is_ipv4())?;
    let message = mixed(&format!("`{of}`"), first, other);
    Some(Rejection::parameter(of, message).help("send to each family from a sink of its own"))
}

/// Diagnostic of the parameter `of`, which has `addresses`: link-local ones need an interface, which the parameter
/// `interface` does not name.
#[must_use]
pub fn reject_unscoped(
    addresses: &[Address],
    of: &'static str,
    interface: &str,
) -> Option<Rejection> {
    let found = addresses.iter().find(|address| address.lacks_scope())?;
    let first = found.listed()?.first()?;
    let message = format!("`{of}` must name the interface of a link-local address, got {first}");
    let help = format!("write [{}%eth0]:{}, or set `{interface}`", first.ip(), first.port());
    Some(Rejection::parameter(of, message).help(help))
}

/// Parses the addresses of senders.
///
/// # Errors
/// If one is not an IP address.
pub fn sources(texts: &[String]) -> Result<Arc<[IpAddr]>, BlockError> {
    let parse = |text: &String| {
        let message = || BlockError::new(format!("`{text}` is not an IP address"));
        text.parse().map_err(|_| message())
    };
    texts.iter().map(parse).collect()
}

/// Diagnostic of the parameter `sources` of a receiver whose parameter `of` has `addresses`.
pub fn reject_sources(texts: &[String], (of, addresses): (&str, &[Address])) -> Option<Rejection> {
    let first = texts.first()?;
    let reject = |message: String, help: &str| Rejection::parameter("sources", message).help(help);
    let host = |text: &String| {
        let ip = text.parse::<IpAddr>().ok();
        let is_mapped = |ip: &IpAddr| matches!(ip, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some());
        ip.filter(|ip| !ip.is_multicast() && !ip.is_unspecified() && !is_mapped(ip))
    };
    if let Some(wrong) = texts.iter().find(|text| host(text).is_none()) {
        let message = format!("`sources` must be IP addresses of senders, got `{wrong}`");
        return Some(reject(message, "give addresses such as [10.0.0.1] or [2001:db8::1]"));
    }
    if addresses.is_empty() || !addresses.iter().all(Address::is_multicast) {
        let message = format!("`sources` needs multicast groups in `{of}`");
        let help = "remove `sources`: a unicast address receives the packets of all senders";
        return Some(reject(message, help));
    }
    let family = host(first).map(Family::of);
    let of_sources = texts.iter().find(|text| host(text).map(Family::of) != family);
    let of_groups = addresses.iter().find(|address| address.family() != family);
    let other = of_sources.cloned().or_else(|| of_groups?.texts().into_iter().next())?;
    let message = format!(
        "`sources` and the groups in `{of}` must be all IPv4 or all IPv6, got {first} and {other}"
    );
    Some(reject(message, "receive the groups of each family with a source of its own"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn range_is_consecutive_groups() {
        let texts = |text| parse(text).unwrap().texts();
        let expected = ["239.1.2.254:7148", "239.1.2.255:7148", "239.1.3.0:7148", "239.1.3.1:7148"];
        assert_eq!(texts("239.1.2.254+3:7148"), expected);
        assert_eq!(parse("127.0.0.1:1").unwrap().count(), 1);
        let expected = ["[ff05::7:ffff]:7148", "[ff05::8:0]:7148"];
        assert_eq!(texts("[ff05::7:ffff]+1:7148"), expected);
        assert_eq!(texts("[ff02::ffff%e+1]+1:7"), ["[ff02::ffff%e+1]:7", "[ff02::1:0%e+1]:7"]);
        assert_eq!(parse("[ff05::]+4095:1").unwrap().count(), 4096);
    }

    #[test]
    fn parse_names_the_error_of_an_address() {
        for text in
            ["127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536", "[::1]", "[::1]:0"]
        {
            assert!(matches!(parse(text), Err(AddressError::Port(_))), "{text}");
        }
        for text in [
            "127.0.1:1",
            "x_+3:1",
            "a..b:1",
            "-a:1",
            "1.2.3.4.5:1",
            ":1",
            "::1:1",
            "fe80::1:7148",
            "[::1:1",
            "::1]:1",
            "[127.0.0.1]:1",
            "[]:1",
            "[::1]x:1",
            "[[::1]]:1",
            "[::g]:1",
            "]:1",
            "[::1]é+1:1",
        ] {
            assert!(
                matches!(
                    parse(text),
                    Err(AddressError::Ip(_) | AddressError::Groups(_) | AddressError::Port(_))
                ),
                "{text}"
            );
        }
        for text in ["1.2.3.4+x:1", "1.2.3.4+4000000000:1", "[ff05::1]+4096:1", "[::1]+-1:1"] {
            assert!(matches!(parse(text), Err(AddressError::Groups(_))), "{text}");
        }
        for text in [
            "239.255.255.255+1:1",
            "255.255.255.255+1:1",
            "[feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]+1:1",
            "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]+1:1",
            "[ff02:ffff:ffff:ffff:ffff:ffff:ffff:ffff%eth0]+1:1",
        ] {
            assert!(matches!(parse(text), Err(AddressError::Range(_))), "{text}");
        }
        for text in
            ["[ff05::1%eth0]:1", "[::1%lo]:1", "[fe80::1%]:1", "[fe80::1%a b]:1", "[fe80::1%a/b]:1"]
        {
            assert!(matches!(parse(text), Err(AddressError::Scope(_))), "{text}");
        }
        let mapped = parse("[::ffff:10.0.0.1]:1").unwrap_err().to_string();
        assert!(mapped.ends_with("write `10.0.0.1`"), "{mapped}");
    }

    #[test]
    fn link_local_address_has_the_number_of_its_interface() {
        let Some(index) = interface::Interface::find("127.0.0.1").ok().map(|found| found.index)
        else {
            return;
        };
        let name = interface::Interface::find("127.0.0.1").unwrap().name;
        for scope in [name, index.to_string()] {
            let address = parse(&format!("[ff02::1:3%{scope}]:7148")).unwrap();
            assert!(address.is_multicast() && !address.lacks_scope());
            let found = address.resolve().unwrap();
            assert_eq!(found, [format!("[ff02::1:3%{index}]:7148").parse().unwrap()]);
        }
        let error = resolve([&"[fe80::1%no-such0]:1".to_owned()]).unwrap_err().to_string();
        assert!(error.starts_with("network interface `no-such0` does not exist"), "{error}");
        let bare = [parse("[ff02::1:3]+1:7148").unwrap()];
        let rejection = reject_unscoped(&bare, "addresses", "interfaces").unwrap();
        assert!(format!("{rejection:?}").contains("write [ff02::1:3%eth0]:7148"), "{rejection:?}");
    }

    #[test]
    fn host_name_has_its_ipv4_address() {
        let address = parse("localhost:7148").unwrap();
        assert_eq!((address.count(), address.is_multicast()), (1, false));
        // Also where it has an IPv6 address.
        assert_eq!(address.resolve().unwrap(), ["127.0.0.1:7148".parse().unwrap()]);
        // RFC 2606: no host has this name.
        let error = resolve([&"no-such-host.invalid:1".to_owned()]).unwrap_err().to_string();
        assert!(error.starts_with("host `no-such-host.invalid` is not found"), "{error}");
    }

    fn all(texts: &[&str]) -> Vec<Address> {
        texts.iter().map(|text| parse(text).unwrap()).collect()
    }

    #[test]
    fn sender_rejects_destinations_of_both_families() {
        let mixed = all(&["239.1.0.0+3:7148", "name:1", "[ff05::1]:7148"]);
        let rejection = format!("{:?}", reject_mixed(&mixed, "destinations").unwrap());
        assert!(
            rejection.contains("all IPv4 or all IPv6, got 239.1.0.0:7148 and [ff05::1]:7148"),
            "{rejection}"
        );
        assert!(reject_mixed(&mixed[..2], "destinations").is_none());
        let resolved = ["127.0.0.1:1", "[::1]:1"].map(|text| text.parse().unwrap());
        assert!(family(&resolved).unwrap_err().to_string().contains("[::1]:1"));
        assert_eq!(family(&resolved[1..]).unwrap(), Family::V6);
    }

    #[test]
    fn sources_must_be_of_the_family_of_their_groups() {
        let reject = |sources: &[&str], addresses: &[&str]| {
            let sources: Vec<String> = sources.iter().map(ToString::to_string).collect();
            reject_sources(&sources, ("addresses", &all(addresses)))
                .map(|rejection| format!("{rejection:?}"))
        };
        for (sources, addresses) in [
            (&["10.0.0.1"][..], &["239.1.0.0+3:1"][..]),
            (&["2001:db8::1", "fe80::1"], &["[ff35::1]:1", "[ff02::1%lo]:1"]),
            (&[], &["127.0.0.1:1", "[::1]:1"]),
        ] {
            assert_eq!(reject(sources, addresses), None);
        }
        for (sources, addresses, why) in [
            (&["x"][..], &["239.1.0.0:1"][..], "must be IP addresses of senders, got `x`"),
            (&["::"], &["[ff05::1]:1"], "got `::`"),
            (&["10.0.0.1"], &["127.0.0.1:1"], "needs multicast groups in `addresses`"),
            (&["10.0.0.1"], &["239.1.0.0:1", "[ff05::1]:1"], "got 10.0.0.1 and [ff05::1]:1"),
            (&["10.0.0.1", "::1"], &["239.1.0.0:1"], "got 10.0.0.1 and ::1"),
        ] {
            let found = reject(sources, addresses).unwrap();
            assert!(found.contains(why), "{found}");
        }
    }
}
