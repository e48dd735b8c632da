//! Network interfaces of this host: addresses, numbers and states, which change while a flowgraph runs.
#![allow(unsafe_code)] // The number and the flags of an interface have no safe interface.

use fxgraph::event::{BlockEvents, EventKind};
use if_addrs::IfAddr;
use std::ffi::CString;
use std::net::Ipv4Addr;
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
    /// The IPv4 address by which it was looked for, or else its first one.
    pub ip: Option<Ipv4Addr>,
}

/// Reason why a network interface cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoInterface {
    /// This host has no interface with the name or address.
    #[error("network interface `{0}` does not exist; this host has {1}")]
    Absent(String, Names),
    /// The interface has no IPv4 address.
    #[error(
        "network interface `{0}` has no IPv4 address; give it one with `ip address add ADDRESS/24 dev {0}`, or name \
         another interface: this host has {1}"
    )]
    NoAddress(String, Names),
}

/// The interfaces of a host that have an IPv4 address, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names(String);

impl std::fmt::Display for Names {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_empty() { "none with an IPv4 address" } else { &self.0 })
    }
}

/// The IPv4 addresses of the interfaces of this host, at one time.
pub struct Interfaces(Vec<(String, Ipv4Addr)>);

impl Interfaces {
    /// Reads the addresses.
    #[must_use]
    pub fn read() -> Self {
        let ipv4 = |interface: if_addrs::Interface| match interface.addr {
            IfAddr::V4(address) => Some((interface.name, address.ip)),
            IfAddr::V6(_) => None,
        };
        Self(if_addrs::get_if_addrs().unwrap_or_default().into_iter().filter_map(ipv4).collect())
    }

    /// Finds the interface with the name or IPv4 address `asked`.
    #[must_use]
    pub fn find(&self, asked: &str) -> Option<Interface> {
        let address = asked.parse::<Ipv4Addr>().ok();
        let mut entries = self.0.iter();
        let found = entries.find(|(name, ip)| name == asked || Some(*ip) == address);
        let name = found.map_or(asked, |(name, _)| name);
        Some(Interface { name: name.to_owned(), index: index(name)?, ip: found.map(|of| of.1) })
    }

    /// The interfaces that have an address, each once for each address.
    pub fn all(&self) -> impl Iterator<Item = (Interface, Ipv4Addr)> {
        self.0.iter().filter_map(|(name, ip)| {
            let name = name.clone();
            Some((Interface { index: index(&name)?, name, ip: Some(*ip) }, *ip))
        })
    }

    /// Whether an interface has the address `ip`.
    #[must_use]
    pub fn have(&self, ip: Ipv4Addr) -> bool {
        self.0.iter().any(|(_, known)| *known == ip)
    }

    /// Number of the interface that has the address `ip`.
    #[must_use]
    pub fn index_of(&self, ip: Ipv4Addr) -> Option<u32> {
        self.0.iter().find(|(_, known)| *known == ip).and_then(|(name, _)| index(name))
    }

    fn names(&self) -> Names {
        let names: Vec<_> = self.0.iter().map(|(name, ip)| format!("{name} ({ip})")).collect();
        Names(names.join(", "))
    }
}

impl Interface {
    /// Finds the interface with the name or IPv4 address `asked`.
    ///
    /// # Errors
    /// If this host has no such interface.
    pub fn find(asked: &str) -> Result<Self, NoInterface> {
        let all = Interfaces::read();
        all.find(asked).ok_or_else(|| NoInterface::Absent(asked.to_owned(), all.names()))
    }

    /// Finds the interface with the name or IPv4 address `asked`, and its address.
    ///
    /// # Errors
    /// If this host has no such interface, or if it has no IPv4 address.
    pub fn with_address(asked: &str) -> Result<(Self, Ipv4Addr), NoInterface> {
        let found = Self::find(asked)?;
        let ip = found
            .ip
            .ok_or_else(|| NoInterface::NoAddress(asked.to_owned(), Interfaces::read().names()))?;
        Ok((found, ip))
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

    #[test]
    fn loopback_interface_is_found_by_name_and_by_address() {
        let (by_address, ip) = Interface::with_address("127.0.0.1").unwrap();
        assert_eq!((by_address.ip, ip), (Some(ip), Ipv4Addr::LOCALHOST));
        assert_eq!(Interface::find(&by_address.name), Ok(by_address.clone()));
        assert_eq!(by_address.fault(), None);
        assert!(by_address.queues() >= 1);
        let labelled = Interface { name: format!("{}:1", by_address.name), ..by_address.clone() };
        assert!(std::fs::exists(labelled.directory() + "/queues").unwrap(), "{labelled:?}");
        let error = Interface::find("eth-none").unwrap_err().to_string();
        assert!(error.contains("eth-none") && error.contains("127.0.0.1"), "{error}");
    }
}
