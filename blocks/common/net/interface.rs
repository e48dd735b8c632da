//! Network interfaces of this host: addresses, numbers and states, which change while a flowgraph runs.
#![allow(unsafe_code)] // The number and the flags of an interface have no safe interface.

use super::family::{Family, needs_scope};
use fxgraph::event::{BlockEvents, EventKind};
use std::ffi::CString;
use std::net::IpAddr;
use std::os::fd::AsRawFd;

/// Requests of flags and of the numbers of queues (`linux/ethtool.h`, `linux/sockios.h`).
const SIOCGIFFLAGS: u64 = 0x8913;
const SIOCETHTOOL: u64 = 0x8946;
const GET_CHANNELS: u32 = 0x3c;

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name.
    pub name: String,
    /// Number by which the kernel knows it. An interface that is made again has another one.
    pub index: u32,
}

/// Reason why a network interface cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoInterface {
    /// This host has no interface with the name or address.
    #[error("network interface `{0}` does not exist; this host has {1}")]
    Absent(String, Names),
    /// The interface has no address of the family.
    #[error(
        "network interface `{0}` has no {1} address; give it one with `ip address add ADDRESS/{prefix} dev {0}`, or name \
         another interface: this host has {2}",
        prefix = .1.prefix()
    )]
    NoAddress(String, Family, Names),
}

/// The interfaces of a host that have an address, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names(String);

impl std::fmt::Display for Names {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_empty() { "none with an address" } else { &self.0 })
    }
}

/// The addresses of the interfaces of this host, at one time.
pub struct Interfaces(Vec<(String, IpAddr)>);

impl Interfaces {
    /// Reads the addresses.
    #[must_use]
    pub fn read() -> Self {
        let all = if_addrs::get_if_addrs().unwrap_or_default().into_iter();
        let named = |interface: if_addrs::Interface| {
            let ip = interface.ip();
            (interface.name, ip)
        };
        Self(all.map(named).collect())
    }

    /// Finds the interface with the name or address `asked`.
    #[must_use]
    pub fn find(&self, asked: &str) -> Option<Interface> {
        let name = self.name(asked);
        Some(Interface { name: name.to_owned(), index: index(name)? })
    }

    /// Name of the interface with the address `asked`, or else `asked`.
    fn name<'a>(&'a self, asked: &'a str) -> &'a str {
        let address = asked.parse::<IpAddr>().ok();
        let mut entries = self.0.iter();
        entries.find(|(_, ip)| Some(*ip) == address).map_or(asked, |(name, _)| name)
    }

    /// Returns the address of `family` from which the interface with the name or address `asked` sends: `asked` itself,
    /// or else its first one, of IPv6 the first one that is not link-local.
    #[must_use]
    pub fn address(&self, asked: &str, family: Family) -> Option<IpAddr> {
        let address = asked.parse::<IpAddr>().ok().filter(|ip| Family::of(*ip) == family);
        if let Some(ip) = address {
            return self.have(ip).then_some(ip);
        }
        let name = self.name(asked);
        // Also the addresses of the device with other labels.
        let of_device = |(other, ip): &&(String, IpAddr)| {
            device(other) == device(name) && Family::of(*ip) == family
        };
        let own = self.0.iter().filter(of_device);
        own.min_by_key(|(other, ip)| (needs_scope(*ip), other != name)).map(|(_, ip)| *ip)
    }

    /// The interfaces that have an address, each once for each address.
    pub fn all(&self) -> impl Iterator<Item = (Interface, IpAddr)> {
        self.0.iter().filter_map(|(name, ip)| {
            Some((Interface { index: index(name)?, name: name.clone() }, *ip))
        })
    }

    /// Whether an interface has the address `ip`.
    #[must_use]
    pub fn have(&self, ip: IpAddr) -> bool {
        self.0.iter().any(|(_, known)| *known == ip)
    }

    /// Number of the interface that has the address `ip`.
    #[must_use]
    pub fn index_of(&self, ip: IpAddr) -> Option<u32> {
        self.0.iter().find(|(_, known)| *known == ip).and_then(|(name, _)| index(name))
    }

    fn names(&self) -> Names {
        let mut names: Vec<(&str, String)> = Vec::new();
        for (name, ip) in &self.0 {
            match names.iter_mut().find(|(known, _)| known == name) {
                Some((_, ips)) => *ips += &format!(", {ip}"),
                None => names.push((name, ip.to_string())),
            }
        }
        let names: Vec<_> = names.iter().map(|(name, ips)| format!("{name} ({ips})")).collect();
        Names(names.join(", "))
    }
}

impl Interface {
    /// Finds the interface with the name or address `asked`.
    ///
    /// # Errors
    /// If this host has no such interface.
    pub fn find(asked: &str) -> Result<Self, NoInterface> {
        let all = Interfaces::read();
        all.find(asked).ok_or_else(|| NoInterface::Absent(asked.to_owned(), all.names()))
    }

    /// Finds the interface with the name or address `asked`, and its address of `family`.
    ///
    /// # Errors
    /// If this host has no such interface, or if it has no address of `family`.
    pub fn with_address(asked: &str, family: Family) -> Result<(Self, IpAddr), NoInterface> {
        let (found, ip) = (Self::find(asked)?, Interfaces::read().address(asked, family));
        let none = || NoInterface::NoAddress(asked.to_owned(), family, Interfaces::read().names());
        Ok((found, ip.ok_or_else(none)?))
    }

    /// Finds the interface with the name or address `asked` for a stream of `family`, and its address if it has one: an
    /// interface that passes no packets need not have one of IPv6, which the kernel removes meanwhile.
    ///
    /// # Errors
    /// Like [`Self::with_address`].
    pub fn for_stream(asked: &str, family: Family) -> Result<(Self, Option<IpAddr>), NoInterface> {
        match Self::with_address(asked, family) {
            Ok((found, ip)) => Ok((found, Some(ip))),
            Err(error @ NoInterface::NoAddress(..)) => {
                let found = Self::find(asked)?;
                let may_come = family == Family::V6 && found.fault().is_some();
                if may_come { Ok((found, None)) } else { Err(error) }
            }
            Err(error) => Err(error),
        }
    }

    /// The reason why the interface passes no packets, if it has one.
    #[must_use]
    pub fn fault(&self) -> Option<&'static str> {
        let flags = flags(&self.name)?;
        if flags & libc::IFF_UP == 0 {
            Some("is down")
        } else if flags & libc::IFF_RUNNING == 0 {
            Some("has no carrier")
        } else {
            None
        }
    }

    /// Directory of its device.
    fn directory(&self) -> String {
        format!("/sys/class/net/{}", device(&self.name))
    }

    /// Rate of its link in bytes per second; `None` if the driver does not report it, as that of loopback.
    #[must_use]
    pub fn bytes_per_second(&self) -> Option<f64> {
        let text = std::fs::read_to_string(self.directory() + "/speed").ok()?;
        let megabits = text.trim().parse::<i64>().ok().filter(|megabits| *megabits > 0)?;
        Some(megabits as f64 * 1e6 / 8.0)
    }

    /// Number of its receive queues: 1 if the driver does not report it.
    #[must_use]
    pub fn queues(&self) -> usize {
        self.channels().unwrap_or_else(|| {
            let entries =
                std::fs::read_dir(self.directory() + "/queues").into_iter().flatten().flatten();
            let is_rx = |name: &std::ffi::OsStr| name.as_encoded_bytes().starts_with(b"rx-");
            entries.filter(|entry| is_rx(&entry.file_name())).count().max(1)
        })
    }

    fn channels(&self) -> Option<usize> {
        /// Command, four maxima, and the numbers of receive, send, other and combined queues.
        type Channels = [u32; 9];
        let mut channels: Channels = [GET_CHANNELS, 0, 0, 0, 0, 0, 0, 0, 0];
        let mut request = request(&self.name)?;
        request.ifr_ifru.ifru_data = channels.as_mut_ptr().cast();
        ask(SIOCETHTOOL, &mut request).ok()?;
        let queues = (channels[5] + channels[8]) as usize;
        (queues > 0).then_some(queues)
    }
}

/// Number of receive queues of the interface `asked`: 0 if this host has no such interface.
#[must_use]
pub fn queues(asked: &str) -> usize {
    Interface::find(asked).map_or(0, |interface| interface.queues())
}

/// Reports which of the interfaces `names` pass no packets at the start of a block.
pub fn report_faults<'a>(names: impl IntoIterator<Item = &'a String>, events: &BlockEvents) {
    for found in names.into_iter().filter_map(|name| Interface::find(name).ok()) {
        let Some(fault) = found.fault() else { continue };
        let name = &found.name;
        let text = match fault {
            "is down" => format!(
                "network interface `{name}` is down: `ip link set dev {name} up` brings it up"
            ),
            _ => format!(
                "network interface `{name}` {fault}: look at its cable and the other end (`ip link show {name}`)"
            ),
        };
        events.add(EventKind::Warning, text);
    }
}

/// Whether `text` can be the name or the number of an interface.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let is_allowed = |c: char| !(c.is_whitespace() || c.is_control() || "/:%[]".contains(c));
    (1..libc::IFNAMSIZ).contains(&text.len()) && text.chars().all(is_allowed)
}

/// Number of the interface with the name or the number `text`.
///
/// # Errors
/// If this host has no such interface.
pub fn scope(text: &str) -> Result<u32, NoInterface> {
    let number = || text.parse().ok().filter(|number| *number > 0 && name(*number).is_some());
    let found = index(text).or_else(number);
    found.ok_or_else(|| NoInterface::Absent(text.to_owned(), Interfaces::read().names()))
}

/// Name of the interface with the number `index`.
#[must_use]
pub fn name(index: u32) -> Option<String> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    rustix::net::netdevice::index_to_name(&socket, index).ok()
}

fn index(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: `name` ends with a zero.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (index > 0).then_some(index)
}

fn flags(name: &str) -> Option<i32> {
    let mut request = request(name)?;
    ask(SIOCGIFFLAGS, &mut request).ok()?;
    // SAFETY: the call has written the flags.
    Some(i32::from(unsafe { request.ifr_ifru.ifru_flags }))
}

/// A request about the interface `name`.
/// Device of an interface: an address with a label, such as `eth0:1`, is one of `eth0`.
fn device(name: &str) -> &str {
    name.split(':').next().unwrap_or(name)
}

fn request(name: &str) -> Option<libc::ifreq> {
    // SAFETY: an ifreq is plain integers and pointers, for which all zeros is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let name = device(name);
    if name.len() >= request.ifr_name.len() {
        return None;
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Some(request)
}

/// Makes the request number `code` of the kernel. A pointer in `request` must be to what this request reads and writes.
fn ask(code: u64, request: &mut libc::ifreq) -> std::io::Result<()> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
    // SAFETY: the requests of this file have this structure, which lives until after the call, as all it points to.
    let rc = unsafe { libc::ioctl(socket.as_raw_fd(), code as _, &raw mut *request) };
    if rc == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn loopback_interface_is_found_by_name_and_by_address() {
        let (by_address, ip) = Interface::with_address("127.0.0.1", Family::V4).unwrap();
        assert_eq!(ip, Ipv4Addr::LOCALHOST);
        assert_eq!(Interface::find(&by_address.name), Ok(by_address.clone()));
        assert_eq!(name(by_address.index).as_ref(), Some(&by_address.name));
        assert_eq!(by_address.fault(), None);
        assert!(by_address.queues() >= 1);
        let labelled = Interface { name: format!("{}:1", by_address.name), ..by_address.clone() };
        assert!(std::fs::exists(labelled.directory() + "/queues").unwrap(), "{labelled:?}");
        let error = Interface::find("eth-none").unwrap_err().to_string();
        assert!(error.contains("eth-none") && error.contains("127.0.0.1"), "{error}");
    }

    fn interfaces(all: &[(&str, &str)]) -> Interfaces {
        Interfaces(all.iter().map(|(name, ip)| ((*name).to_owned(), ip.parse().unwrap())).collect())
    }

    #[test]
    fn address_of_an_interface_is_that_of_the_family() {
        let all = interfaces(&[
            ("lo", "127.0.0.1"),
            ("eth0", "10.0.0.1"),
            ("eth0:1", "10.0.0.2"),
            ("lo", "::1"),
            ("eth0", "fe80::1"),
            ("eth0", "2001:db8::1"),
            ("eth0", "2001:db8::2"),
            ("eth1", "fe80::2"),
        ]);
        for (asked, family, expected) in [
            ("eth0", Family::V4, Some("10.0.0.1")),
            ("eth0:1", Family::V4, Some("10.0.0.2")),
            ("eth0", Family::V6, Some("2001:db8::1")),
            ("2001:db8::2", Family::V6, Some("2001:db8::2")),
            ("fe80::1", Family::V6, Some("fe80::1")),
            // Named by an address of the other family.
            ("10.0.0.2", Family::V6, Some("2001:db8::1")),
            ("2001:db8::2", Family::V4, Some("10.0.0.1")),
            ("eth1", Family::V6, Some("fe80::2")),
            ("eth1", Family::V4, None),
            ("10.9.9.9", Family::V4, None),
            ("eth9", Family::V6, None),
        ] {
            let expected = expected.map(|ip| ip.parse().unwrap());
            assert_eq!(all.address(asked, family), expected, "{asked} {family}");
        }
        let names = all.names().to_string();
        assert!(names.starts_with("lo (127.0.0.1, ::1), eth0 (10.0.0.1, fe80::1, 2"), "{names}");
    }

    #[test]
    fn name_of_an_interface_is_checked() {
        for text in ["eth0", "3", "br-0", "veth.10", "a+b"] {
            assert!(is_name(text), "{text}");
        }
        for text in ["", "a b", "a/b", "a:1", "a]b", "a%b", "0123456789abcdef"] {
            assert!(!is_name(text), "{text}");
        }
    }
}
