//! Pairwise comparison of the frames of two outputs.

use fxgraph::difference::{Difference, StreamDifference};
use fxgraph::elements::Elements;
use fxgraph::flowgraph::Probe;
use fxgraph::lock::lock;
use fxgraph::{Block, BlockError, Frame, Io, Next, PortType};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Maximum number of frames by which one output may be ahead of the other.
const QUEUE: usize = 16;
/// Time between two checks of a reader that waits for the other one.
const PATIENCE: Duration = Duration::from_millis(1);

/// Pairwise comparison of two outputs.
pub struct Pairing {
    port: PortType,
    stops_at_difference: bool,
    state: Mutex<State>,
}

struct State {
    elements: Elements,
    sides: [Side; 2],
    found: Found,
}

#[derive(Default)]
struct Side {
    /// The next frame to compare.
    frame: Option<Arc<Frame>>,
    has_ended: bool,
}

/// Result of a comparison.
#[derive(Clone, Debug, Default)]
pub struct Found {
    pub difference: StreamDifference,
    pub first: Option<First>,
}

/// The first pair of frames that differs.
#[derive(Clone, Debug)]
pub struct First {
    pub timestamp: u64,
    /// Type of both outputs.
    pub port: PortType,
    /// Payloads of both frames.
    pub payloads: [Vec<u8>; 2],
}

impl Pairing {
    /// Creates a comparison of outputs of type `port`. With `stops_at_difference` the comparison ends
    /// at the first pair that differs.
    pub fn new(port: &PortType, stops_at_difference: bool) -> Arc<Self> {
        let state = State {
            elements: Elements::new(port),
            sides: [Side::default(), Side::default()],
            found: Found::default(),
        };
        Arc::new(Self { port: port.clone(), stops_at_difference, state: Mutex::new(state) })
    }

    /// Probes of the outputs `a` and `b`, given as (block, port) indices.
    pub fn probes(self: &Arc<Self>, a: (usize, usize), b: (usize, usize)) -> [Probe; 2] {
        [(0, a), (1, b)].map(|(side, source)| Probe {
            name: format!("comparison of {}.{} and {}.{}, {side}", a.0, a.1, b.0, b.1),
            source,
            block: Box::new(Reader { pairing: Arc::clone(self), side }),
            queue: QUEUE,
        })
    }

    /// Returns the result so far.
    pub fn found(&self) -> Found {
        self.state().found.clone()
    }

    /// Number of pairs compared so far.
    pub fn frames(&self) -> u64 {
        self.state().found.difference.frames
    }

    /// Whether a pair differs and the comparison stops at the first difference.
    pub fn is_done(&self) -> bool {
        self.stops_at_difference && self.state().found.first.is_some()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    /// Compares the next two frames; if their timestamps differ, the earlier frame has no counterpart.
    fn step(&mut self, port: &PortType) {
        let [a, b] = &mut self.sides;
        let found = &mut self.found;
        let (Some(first), Some(second)) = (&a.frame, &b.frame) else {
            // An output that has ended provides no counterpart.
            for (frame, other_ended) in [(&mut a.frame, b.has_ended), (&mut b.frame, a.has_ended)] {
                if other_ended && frame.take().is_some() {
                    found.difference.frames_alone += 1;
                }
            }
            return;
        };
        let (first, second) = (Arc::clone(first), Arc::clone(second));
        let (one, other) = (first.header(), second.header());
        if one.timestamp <= other.timestamp {
            a.frame = None;
        }
        if other.timestamp <= one.timestamp {
            b.frame = None;
        }
        if one.timestamp != other.timestamp || one.validity != other.validity {
            found.difference.frames_alone += 1;
            return;
        }
        let difference = Difference::of(
            &self.elements,
            &first.header().validity,
            [first.as_slice().expect(fxgraph::ON_HOST), second.as_slice().expect(fxgraph::ON_HOST)],
        );
        found.difference.see(difference);
        if difference.values_different > 0 {
            found.first.get_or_insert_with(|| First {
                timestamp: one.timestamp,
                port: port.clone(),
                payloads: [&first, &second]
                    .map(|frame| frame.as_slice::<u8>().expect(fxgraph::ON_HOST).to_vec()),
            });
        }
    }
}

/// Probe of one of the two outputs.
struct Reader {
    pairing: Arc<Pairing>,
    side: usize,
}

impl Block for Reader {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let input = &mut io.inputs[0];
        if self.pairing.is_done() {
            // Discards the remaining frames, so that the flowgraph can end.
            while input.pop().is_some() {}
            return Ok(if input.ended() { Next::Finished } else { Next::Wait });
        }
        let mut state = self.pairing.state();
        if state.sides[self.side].frame.is_none() {
            match input.pop() {
                Some(frame) => state.sides[self.side].frame = Some(frame),
                None if input.ended() => state.sides[self.side].has_ended = true,
                None => return Ok(Next::Wait),
            }
        }
        state.step(&self.pairing.port);
        let side = &mut state.sides[self.side];
        if side.frame.is_some() && input.queued() >= QUEUE {
            // The other output may need frames that wait behind this one.
            side.frame = None;
            state.found.difference.frames_alone += 1;
        }
        let side = &state.sides[self.side];
        Ok(match (&side.frame, side.has_ended) {
            // The other reader does not wake this one.
            (Some(_), _) => Next::After(PATIENCE),
            (None, true) => Next::Finished,
            (None, false) => Next::Again,
        })
    }
}
