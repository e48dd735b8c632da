//! IPv4 and IPv6: the differences between their sockets, options and addresses.
#![allow(unsafe_code)] // Source-specific groups have no safe interface by number.

use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};
use std::fmt;
use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;

/// Version of the Internet Protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

impl Family {
    /// Returns the family of `ip`.
    #[must_use]
    pub fn of(ip: IpAddr) -> Self {
        if ip.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// Opens a UDP socket for packets of this family only.
    ///
    /// # Errors
    /// If the kernel has no such sockets, or no descriptor is left.
    pub fn socket(self) -> io::Result<Socket> {
        let domain = match self {
            Self::V4 => Domain::IPV4,
            Self::V6 => Domain::IPV6,
        };
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
        if self == Self::V6 {
            socket.set_only_v6(true)?;
        }
        Ok(socket)
    }

    /// Returns the wildcard address, which means all addresses of a host.
    #[must_use]
    pub fn unspecified(self) -> IpAddr {
        match self {
            Self::V4 => Ipv4Addr::UNSPECIFIED.into(),
            Self::V6 => Ipv6Addr::UNSPECIFIED.into(),
        }
    }

    /// Length of the prefix of a usual network, for commands in messages.
    #[must_use]
    pub fn prefix(self) -> u8 {
        match self {
            Self::V4 => 24,
            Self::V6 => 64,
        }
    }

    /// Gives `socket` only the multicast groups that it has joined itself.
    pub fn only_own_groups(self, socket: &Socket) -> io::Result<()> {
        match self {
            Self::V4 => socket.set_multicast_all_v4(false),
            Self::V6 => socket.set_multicast_all_v6(false),
        }
    }

    /// Lets multicast packets of `socket` pass `ttl` routers, and arrive on this host, too.
    pub fn set_multicast(self, socket: &Socket, ttl: u32) -> io::Result<()> {
        match self {
            Self::V4 => {
                socket.set_multicast_ttl_v4(ttl)?;
                socket.set_multicast_loop_v4(true)
            }
            Self::V6 => {
                socket.set_multicast_hops_v6(ttl)?;
                socket.set_multicast_loop_v6(true)
            }
        }
    }
}

/// Returns whether `ip` means a host or group only together with an interface: link-local IPv6 addresses.
#[must_use]
pub fn needs_scope(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(_) => false,
        IpAddr::V6(ip) if ip.is_multicast() => matches!(ip.octets()[1] & 15, 1 | 2),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// Joins `group` with `socket` on interface number `index`; 0: where the route leads.
pub fn join(socket: &Socket, group: IpAddr, index: u32) -> io::Result<()> {
    match group {
        IpAddr::V4(group) => {
            socket.join_multicast_v4_n(&group, &InterfaceIndexOrAddress::Index(index))
        }
        IpAddr::V6(group) => socket.join_multicast_v6(&group, index),
    }
}

/// Leaves `group`, which `socket` has joined on interface number `index`.
pub fn leave(socket: &Socket, group: IpAddr, index: u32) -> io::Result<()> {
    match group {
        IpAddr::V4(group) => {
            socket.leave_multicast_v4_n(&group, &InterfaceIndexOrAddress::Index(index))
        }
        IpAddr::V6(group) => socket.leave_multicast_v6(&group, index),
    }
}

/// Joins `group` like [`join`], for packets of `source`.
pub fn join_source(socket: &Socket, group: IpAddr, source: IpAddr, index: u32) -> io::Result<()> {
    let level = match group {
        IpAddr::V4(_) => libc::IPPROTO_IP,
        IpAddr::V6(_) => libc::IPPROTO_IPV6,
    };
    let request = libc::group_source_req {
        gsr_interface: index,
        gsr_group: storage(group),
        gsr_source: storage(source),
    };
    // SAFETY: the option's value is this structure, which outlives the call, and its size is given.
    let rc = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            libc::MCAST_JOIN_SOURCE_GROUP,
            (&raw const request).cast(),
            size_of_val(&request) as libc::socklen_t,
        )
    };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn storage(ip: IpAddr) -> libc::sockaddr_storage {
    // SAFETY: a sockaddr_storage is plain integers, for which all zeros is a value.
    let mut storage: libc::sockaddr_storage = unsafe { zeroed() };
    let (name, _) = name(SocketAddr::new(ip, 0));
    // SAFETY: a sockaddr_storage has room for every address, and the alignment of all.
    unsafe { (&raw mut storage).cast::<libc::sockaddr_in6>().write(name) };
    storage
}

/// Returns `address` for the kernel, and its length: in the memory of a `sockaddr_in6` also a `sockaddr_in`, which has
/// the address in the place of the flow information.
#[must_use]
pub fn name(address: SocketAddr) -> (libc::sockaddr_in6, libc::socklen_t) {
    let (family, flowinfo, ip, scope, bytes) = match address {
        SocketAddr::V4(v4) => {
            let ip = v4.ip().to_bits().to_be();
            (libc::AF_INET, ip, [0; 16], 0, size_of::<libc::sockaddr_in>())
        }
        SocketAddr::V6(v6) => {
            let bytes = size_of::<libc::sockaddr_in6>();
            (libc::AF_INET6, v6.flowinfo(), v6.ip().octets(), v6.scope_id(), bytes)
        }
    };
    let name = libc::sockaddr_in6 {
        sin6_family: family as libc::sa_family_t,
        sin6_port: address.port().to_be(),
        sin6_flowinfo: flowinfo,
        sin6_addr: libc::in6_addr { s6_addr: ip },
        sin6_scope_id: scope,
    };
    (name, bytes as libc::socklen_t)
}

/// Returns the address and port in `name`, as [`name()`] writes them.
#[must_use]
pub fn of_name(name: &libc::sockaddr_in6) -> (IpAddr, u16, u32) {
    let port = u16::from_be(name.sin6_port);
    if i32::from(name.sin6_family) == libc::AF_INET {
        return (Ipv4Addr::from_bits(u32::from_be(name.sin6_flowinfo)).into(), port, 0);
    }
    (Ipv6Addr::from(name.sin6_addr.s6_addr).into(), port, name.sin6_scope_id)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_layout_of_the_kernel() {
        for text in ["10.77.0.1:7148", "[fe80::12:3456%7]:65535", "[::]:0", "255.255.255.255:1"] {
            let address: SocketAddr = text.parse().unwrap();
            let (name, len) = name(address);
            let of_std = socket2::SockAddr::from(address);
            assert_eq!(len, of_std.len());
            // SAFETY: both have `len` bytes of plain integers.
            let [ours, theirs] = unsafe {
                [(&raw const name).cast::<u8>(), of_std.as_ptr().cast()]
                    .map(|start| std::slice::from_raw_parts(start, len as usize))
            };
            assert_eq!(ours, theirs, "{text}");
            let scope = if let SocketAddr::V6(v6) = address { v6.scope_id() } else { 0 };
            assert_eq!(of_name(&name), (address.ip(), address.port(), scope));
        }
    }

    #[test]
    fn link_local_addresses_need_a_scope() {
        for text in ["fe80::1", "febf::1", "ff02::1:3", "ff11::1"] {
            assert!(needs_scope(text.parse().unwrap()), "{text}");
        }
        for text in ["::1", "fec0::1", "ff05::1", "ff3e::1", "2001:db8::1", "169.254.0.1"] {
            assert!(!needs_scope(text.parse().unwrap()), "{text}");
        }
    }
}
