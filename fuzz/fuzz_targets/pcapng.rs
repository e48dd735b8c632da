//! Arbitrary bytes as a capture file, pcap or pcapng.
#![cfg_attr(fuzzing, no_main)]

#[macro_use]
mod target;

use fxgraph_blocks::io::spead::pcap::Capture;

target!(capture, "pcapng");

fn capture(bytes: &[u8]) {
    let Ok(mut capture) = Capture::new(bytes) else { return };
    // A record has at least 16 bytes.
    let most = bytes.len() / 16 + 1;
    let mut datagrams = 0;
    while let Ok(Some(datagram)) = capture.next_datagram() {
        assert!(datagram.payload.len() <= bytes.len());
        datagrams += 1;
        assert!(datagrams <= most);
    }
}
