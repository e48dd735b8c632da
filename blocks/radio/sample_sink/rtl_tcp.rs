//! The protocol of `rtl_tcp`: a header, then `cu8` samples; the reader sends commands.

use fxgraph::event::{BlockEvents, EventKind};
use fxgraph::{Counter, Env};
use std::time::{Duration, Instant};

/// Bytes of a command: its number, and a value in big-endian order.
const COMMAND: usize = 5;
/// Least time between two events about commands.
const PAUSE: Duration = Duration::from_secs(1);

/// Header: `RTL0`, the type of the tuner (unknown), and the number of its gains.
pub const HEADER: [u8; 12] = *b"RTL0\0\0\0\0\0\0\0\0";

/// Commands of a reader.
#[derive(Default)]
pub struct Commands {
    inbox: Vec<u8>,
}

impl Commands {
    /// Takes bytes of the reader; calls `each` for each command.
    pub fn take(&mut self, bytes: &[u8], mut each: impl FnMut(u8, u32)) {
        self.inbox.extend_from_slice(bytes);
        let (commands, rest) = self.inbox.as_chunks::<COMMAND>();
        commands.iter().for_each(|[number, a, b, c, d]| {
            each(*number, u32::from_be_bytes([*a, *b, *c, *d]));
        });
        let used = self.inbox.len() - rest.len();
        self.inbox.drain(..used);
    }
}

/// Requests of readers, compared with the stream.
pub struct Requests {
    rate_hz: f64,
    centre_hz: Option<f64>,
    ignored: Counter,
    events: BlockEvents,
    told: Option<Instant>,
}

impl Requests {
    /// Requests for a stream of this rate and centre frequency.
    pub fn new(rate_hz: f64, centre_hz: Option<f64>, env: &Env) -> Self {
        let help = "commands of rtl_tcp readers that were ignored; set the values in the flowgraph";
        let ignored = env.counters.count("commands_ignored", help);
        Self { rate_hz, centre_hz, ignored, events: env.events.clone(), told: None }
    }

    /// Takes a command of the reader `name`. No command changes the stream; an event says so where it differs.
    pub fn take(&mut self, name: &str, command: u8, value: u32) {
        let has = |own: Option<f64>| own.is_some_and(|own| (own - f64::from(value)).abs() < 1.0);
        let wanted = match command {
            1 if has(self.centre_hz) => return,
            2 if has(Some(self.rate_hz)) => return,
            1 => format!("a centre frequency of {value} Hz"),
            2 => format!("{value} samples per second, and gets {}", self.rate_hz),
            3 | 4 | 6 | 8 | 13 => "another gain".to_owned(),
            5 => format!("a correction of {} ppm", value.cast_signed()),
            _ => format!("command {command}"),
        };
        self.ignored.add(1);
        // Gains are set by every program as it starts.
        let is_told = matches!(command, 1 | 2);
        if is_told && self.told.is_none_or(|told| told.elapsed() >= PAUSE) {
            self.told = Some(Instant::now());
            self.events.add(
                EventKind::Warning,
                format!(
                    "{name} asks for {wanted}; the flowgraph sets it, so the command is ignored"
                ),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_in_pieces_and_those_that_change_nothing_do_not_count() {
        let env = Env::detached("sink");
        let mut requests = Requests::new(2.4e6, Some(100e6), &env);
        let mut commands = Commands::default();
        let mut seen = Vec::new();
        let mut bytes = vec![1];
        bytes.extend(100_000_000_u32.to_be_bytes());
        bytes.extend([2]);
        bytes.extend(1_000_000_u32.to_be_bytes());
        bytes.extend([4, 0, 0, 0]);
        for piece in bytes.chunks(3) {
            commands.take(piece, |command, value| {
                seen.push((command, value));
                requests.take("reader", command, value);
            });
        }
        assert_eq!(seen, [(1, 100_000_000), (2, 1_000_000)]);
        assert_eq!((requests.ignored.get(), commands.inbox.len()), (1, 4));
    }
}
