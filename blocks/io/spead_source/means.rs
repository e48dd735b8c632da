//! Window, threads and buffers of a source, given or chosen.

use super::layout::Layout;
use super::window::MAX_THREADS;
use super::{Receive, SpeadSource, StreamName};
use crate::common::net::address;
use crate::io::spead::chosen::{HELD_SECONDS, Threads, Work, gigabytes, receive_buffer};
use fxgraph::kind::Chosen;

/// Default window of F-engine heaps: a frame with a missing heap waits for this long, in seconds. A dead antenna makes
/// every frame wait.
const ANTENNAS_SECONDS: f64 = 0.05;
/// Largest window that is chosen, in bytes, of samples and of F-engine heaps.
const WINDOW_BYTES: [usize; 2] = [512 << 20, 256 << 20];
const MIN_WINDOW: usize = 4;
/// A few heaps do not show reliably where a stream begins.
const MIN_WINDOW_HEAPS: usize = 16;
const MAX_WINDOW: usize = 64;
/// Memory of each receive queue with `receive: af_xdp`.
const QUEUE_BYTES: usize = 32 << 20;

/// Means of a source to receive its stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Means {
    /// Frames in the window.
    pub window: usize,
    /// Receiving threads.
    pub threads: usize,
    /// Receive buffer of each socket or queue, in bytes.
    pub receive_buffer_bytes: usize,
    /// Those of them that the flowgraph does not give.
    pub chosen: Vec<Chosen>,
}

impl Means {
    /// Means of a source with a stream of `bytes_per_second`: as given, and chosen otherwise.
    pub fn of(parameters: &SpeadSource, layout: &Layout, bytes_per_second: f64) -> Self {
        let mut chosen = Vec::new();
        let window = parameters.window.unwrap_or_else(|| {
            let (frames, why) = window(parameters, layout);
            chosen.push(Chosen::new("window", frames, why));
            frames
        });
        if parameters.pcap.is_some() {
            // A file has one reader, and no sockets.
            return Self { window, threads: 1, receive_buffer_bytes: QUEUE_BYTES, chosen };
        }
        let is_xdp = parameters.receive == Receive::AfXdp;
        let addresses = address::count(&parameters.addresses);
        let threads = parameters.threads.unwrap_or_else(|| {
            let most = if is_xdp { 1 } else { addresses.min(MAX_THREADS) };
            let Threads { count, why } = Threads::choose(Work::Receive, bytes_per_second, 1..=most);
            chosen.push(Chosen::new("threads", count, why));
            count
        });
        let receive_buffer_bytes = parameters.receive_buffer_bytes.unwrap_or_else(|| {
            let (bytes, why) = if is_xdp {
                (QUEUE_BYTES, "for each receive queue".to_owned())
            } else {
                receive_buffer(bytes_per_second, addresses.max(threads))
            };
            chosen.push(Chosen::new("receive_buffer_bytes", bytes, why));
            bytes
        });
        Self { window, threads, receive_buffer_bytes, chosen }
    }
}

/// Frames in a window that is not given, with the reason.
fn window(parameters: &SpeadSource, layout: &Layout) -> (usize, String) {
    let (seconds, most_bytes) = match parameters.stream {
        StreamName::Digitiser => (HELD_SECONDS, WINDOW_BYTES[0]),
        StreamName::FEngine => (ANTENNAS_SECONDS, WINDOW_BYTES[1]),
    };
    let frame_seconds = layout.samples_per_frame() as f64 / parameters.adc_sample_rate_hz;
    let by_time = (seconds / frame_seconds).ceil() as usize;
    let by_heaps = MIN_WINDOW_HEAPS.div_ceil(layout.slots());
    let by_memory = most_bytes / (layout.slots() * layout.heap_bytes).max(1);
    let frames = by_time.max(by_heaps).min(by_memory).clamp(MIN_WINDOW, MAX_WINDOW);
    let held = frames as f64 * frame_seconds;
    let rate = gigabytes((layout.slots() * layout.heap_bytes) as f64 / frame_seconds);
    let why = match frames {
        frames if frames == by_time => format!("{seconds} s of {rate}"),
        frames if frames > by_time => format!("{held:.3} s: the fewest frames or heaps"),
        _ => format!("{held:.3} s of {rate}: the most frames or bytes"),
    };
    (frames, why)
}
