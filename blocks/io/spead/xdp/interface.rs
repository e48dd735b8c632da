//! Network interfaces by name or address, and their receive queues.

use crate::io::spead::address::NoInterface;
use if_addrs::IfAddr;
use std::ffi::CString;
use std::os::fd::AsRawFd;

/// Request of the numbers of queues (`linux/ethtool.h`, `linux/sockios.h`).
const GET_CHANNELS: u32 = 0x3c;
const SIOCETHTOOL: u64 = 0x8946;

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name.
    pub name: String,
    /// Number by which the kernel knows it.
    pub index: u32,
}

impl Interface {
    /// Finds the interface with the name or IPv4 address `asked`.
    ///
    /// # Errors
    /// If this host has no such interface.
    pub fn find(asked: &str) -> Result<Self, NoInterface> {
        let all = if_addrs::get_if_addrs().unwrap_or_default();
        let has_address = |i: &&if_addrs::Interface| matches!(&i.addr, IfAddr::V4(address) if Ok(address.ip) == asked.parse());
        let name = all.iter().find(has_address).map_or(asked, |interface| &interface.name);
        match index(name) {
            Some(index) => Ok(Self { name: name.to_owned(), index }),
            None => Err(NoInterface::of(asked)),
        }
    }

    /// Number of its receive queues: 1 if the driver does not report it.
    #[must_use]
    pub fn queues(&self) -> usize {
        self.channels().unwrap_or_else(|| {
            let folder = format!("/sys/class/net/{}/queues", self.name);
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            let is_rx = |name: &std::ffi::OsStr| name.as_encoded_bytes().starts_with(b"rx-");
            entries.filter(|entry| is_rx(&entry.file_name())).count().max(1)
        })
    }

    fn channels(&self) -> Option<usize> {
        /// Command, four maxima, and the numbers of receive, send, other and combined queues.
        type Channels = [u32; 9];
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
        let mut channels: Channels = [GET_CHANNELS, 0, 0, 0, 0, 0, 0, 0, 0];
        // SAFETY: an ifreq is plain integers and pointers, for which all zeros is a value.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        if self.name.len() >= request.ifr_name.len() {
            return None;
        }
        for (to, from) in request.ifr_name.iter_mut().zip(self.name.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_data = channels.as_mut_ptr().cast();
        // SAFETY: the request points to the structure of its command, which lives until after the call.
        let rc = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
        let queues = (channels[5] + channels[8]) as usize;
        (rc == 0 && queues > 0).then_some(queues)
    }
}

/// Number of receive queues of the interface `asked`: 0 if this host has no such interface.
#[must_use]
pub fn queues(asked: &str) -> usize {
    Interface::find(asked).map_or(0, |interface| interface.queues())
}

fn index(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: `name` ends with a zero.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (index > 0).then_some(index)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn loopback_interface_is_found_by_name_and_by_address() {
        let by_address = Interface::find("127.0.0.1").unwrap();
        assert_eq!(Interface::find(&by_address.name), Ok(by_address.clone()));
        assert!(by_address.queues() >= 1);
        let error = Interface::find("eth-none").unwrap_err().to_string();
        assert!(error.contains("`eth-none`") && error.contains("127.0.0.1"), "{error}");
    }
}
