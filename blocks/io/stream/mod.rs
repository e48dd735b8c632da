//! Described streams between hosts: frames of any type as SPEAD heaps.
//!
//! Not a block: code shared by [`stream_sink`](crate::io::stream_sink) and
//! [`stream_source`](crate::io::stream_source).
//!
//! # Layout
//! - [`Described`]: the type of a stream, its sizes, and its descriptors
//! - [`annotations`]: tables of a frame as JSON

pub mod annotations;

use crate::common::axes;
use crate::io::spead::descriptor::{self, Description, Elements};
use crate::io::spead::item;
use crate::io::spead::packet::Pointer;
use fxgraph::changes::MAX_TIMESTAMP;
use fxgraph::recording::{Checksum, StreamType};
use fxgraph::{Dtype, PortType, Time, TimeBase, npy};

/// Largest text of the annotations of a frame, in bytes.
pub const MAX_ANNOTATION_BYTES: usize = 4 << 20;
/// Largest text of a type, and largest heap with descriptors, in bytes.
pub const MAX_TYPE_BYTES: usize = 1 << 20;
/// Bytes of a validity count.
const COUNT_BYTES: usize = 4;
/// Bytes of a configuration's identifier.
const CONFIG_BYTES: usize = 8;
/// Bytes of a time base.
pub const BASE_BYTES: usize = 24;
/// Seconds of a base with the sync time of the type.
const OF_TYPE: i64 = i64::MIN;

/// The type of a stream, as both ends use it.
#[derive(Clone, Debug)]
pub struct Described {
    /// The type.
    pub port: PortType,
    /// Its description in JSON.
    pub text: String,
    /// The type as it is read from `text`: JSON may be read with an error in the last bit of a number, and types that
    /// were read the same way are compared.
    as_read: PortType,
    /// CRC-32 of `text`.
    pub check: u64,
    /// Bytes of the payload of a frame.
    pub data_bytes: usize,
    /// Number of validity counts of a frame.
    pub units: usize,
}

impl Described {
    /// Describes `port`; the error says why a receiver would not read its description.
    pub fn new(port: &PortType) -> Result<Self, String> {
        let entry = StreamType::of(port);
        entry.port(axes::known)?;
        let text = serde_json::to_string(&entry).map_err(|error| error.to_string())?;
        if text.len() > MAX_TYPE_BYTES / 2 {
            return Err(format!("its description has {} bytes", text.len()));
        }
        let mut checksum = Checksum::default();
        checksum.add(text.as_bytes());
        Ok(Self {
            as_read: StreamType::read(&text)?.port(axes::known)?,
            check: u64::from(checksum.value()),
            text,
            data_bytes: port.frame_bytes(),
            units: port.validity.units(),
            port: port.clone(),
        })
    }

    /// Largest heap of the stream, in bytes.
    #[must_use]
    pub fn max_heap_bytes(&self) -> usize {
        let fixed = self.data_bytes + COUNT_BYTES * self.units + CONFIG_BYTES + BASE_BYTES;
        fixed + MAX_ANNOTATION_BYTES + MAX_TYPE_BYTES
    }

    /// Bits of one element.
    #[must_use]
    pub fn bits(&self) -> usize {
        self.port.dtype.bits()
    }

    /// Returns the item pointers and payload of the heap that describes the stream of the sender's run `run`.
    #[must_use]
    pub fn heap(&self, run: u64) -> (Vec<Pointer>, Vec<u8>) {
        let (mut pointers, mut payload) = descriptor::heap(&self.items());
        pointers.push(Pointer::immediate(item::RUN, run));
        pointers.push(Pointer::immediate(item::TYPE_CHECK, self.check));
        pointers.push(Pointer::addressed(item::TYPE, payload.len() as u64));
        payload.extend(self.text.as_bytes());
        (pointers, payload)
    }

    /// Returns the first difference of the type with the description `text`, or the reason why it is not readable; `None`
    /// if the types are equal.
    #[must_use]
    pub fn difference(&self, text: &[u8]) -> Option<String> {
        let read = str::from_utf8(text).map_err(|_| "it is not UTF-8".to_owned());
        match read.and_then(StreamType::read).and_then(|read| read.port(axes::known)) {
            Ok(port) => difference(&self.as_read, &port),
            Err(why) => Some(format!("its type is not readable: {why}")),
        }
    }

    fn items(&self) -> Vec<Description> {
        let number = Description::immediate;
        let described =
            |id, name, text, shape, elements| Description { id, name, text, shape, elements };
        let data = match self.port.dtype {
            Dtype::Packed(_) => "bytes of packed samples, most significant bit first",
            dtype => npy::layout(dtype).2,
        };
        let units = self.port.validity.axes.iter().map(|axis| axis.len).collect();
        let shape = npy::frame_shape(&self.port);
        let elements = Elements::Numpy(npy::layout(self.port.dtype).0);
        vec![
            described(item::DATA, "data", data, shape, elements),
            number(item::TIMESTAMP, "timestamp", "ADC samples since sync time, modulo 2^48"),
            number(item::TIMESTAMP_HIGH, "timestamp_high", "timestamp divided by 2^48"),
            number(item::SEQUENCE, "sequence", "number of the frame in this stream, from 0"),
            number(item::RUN, "run", "identifier of the run of the sender"),
            number(item::TYPE_CHECK, "type_check", "CRC-32 of the text of the type"),
            number(
                item::TAKEN_OVER,
                "taken_over",
                "first timestamp taken over from another sender, modulo 2^48; 0 if none",
            ),
            described(
                item::VALIDITY,
                "validity",
                "count of each unit: 0 is missing, `validity.full` of the type is complete",
                units,
                Elements::Numpy("<u4"),
            ),
            described(
                item::CONFIG_ID,
                "config_id",
                "identifier of the configuration that made the frame",
                Vec::new(),
                Elements::Numpy("<u8"),
            ),
            described(
                item::TIME_BASE,
                "time_base",
                "time base: first timestamp, and its Unix time in seconds and picoseconds; -2^63 s is that of the type",
                vec![3],
                Elements::Numpy("<i8"),
            ),
            number(
                item::TIME_BASE_UNCERTAINTY,
                "time_base_uncertainty",
                "largest error of the Unix time of the time base in nanoseconds, 2^48 - 1 if not known",
            ),
            described(
                item::ANNOTATIONS,
                "annotations",
                "tables of the frame: JSON, null is NaN",
                Vec::new(),
                Elements::Text,
            ),
            described(item::TYPE, "type", "type of the frames: JSON", Vec::new(), Elements::Text),
        ]
    }
}

/// Bytes of a time base on the wire.
#[must_use]
pub fn base_bytes(base: &TimeBase) -> [u8; BASE_BYTES] {
    let (seconds, picoseconds) = base.sync_time.map_or((OF_TYPE, 0), Time::to_unix);
    let mut bytes = [0; BASE_BYTES];
    let numbers = [base.from.cast_signed(), seconds, picoseconds.cast_signed()];
    for (to, number) in bytes.chunks_exact_mut(8).zip(numbers) {
        to.copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

/// Reads a time base from the wire; `None` if it is impossible.
#[must_use]
pub fn read_base(bytes: &[u8]) -> Option<TimeBase> {
    let ([from, seconds, picoseconds], []) = bytes.as_chunks::<8>() else { return None };
    let number = |bytes: &[u8; 8]| i64::from_le_bytes(*bytes);
    let from = u64::try_from(number(from)).ok().filter(|from| *from < MAX_TIMESTAMP)?;
    let picoseconds = u64::try_from(number(picoseconds)).ok()?;
    let sync_time = match number(seconds) {
        OF_TYPE => None,
        seconds => Some(Time::from_unix(seconds, picoseconds)?),
    };
    Some(TimeBase { from, sync_time, ..TimeBase::default() })
}

/// Uncertainty of a sync time on the wire that is not known.
const UNKNOWN: u64 = (1 << 48) - 1;

/// Uncertainty of the sync time of a time base on the wire: nanoseconds, rounded up.
#[must_use]
pub fn uncertainty_value(base: &TimeBase) -> u64 {
    ((base.uncertainty_seconds * 1e9).ceil() as u64).min(UNKNOWN)
}

/// Uncertainty, in seconds, of the sync time of `base` with this value on the wire. A sender that does not state one, of
/// an earlier version, has not told whether the sync time was measured.
#[must_use]
pub fn read_uncertainty(base: &TimeBase, value: Option<u64>) -> f64 {
    match value {
        None if base.sync_time.is_none() => 0.0,
        None | Some(UNKNOWN) => f64::INFINITY,
        Some(nanoseconds) => nanoseconds as f64 / 1e9,
    }
}

/// Returns the first difference between the types `declared` and `received`, for messages; `None` if they are equal.
fn difference(declared: &PortType, received: &PortType) -> Option<String> {
    let differ = |name: &str, declared: String, received: String| {
        (declared != received)
            .then(|| format!("`{name}` of the stream is {received}, expected {declared}"))
    };
    let axes = |axes: &[fxgraph::Axis]| {
        let axes: Vec<String> =
            axes.iter().map(|axis| format!("[{} {}]", axis.name, axis.len)).collect();
        if axes.is_empty() { "empty".to_owned() } else { axes.concat() }
    };
    let (a, b) = (declared, received);
    differ("dtype", a.dtype.to_string(), b.dtype.to_string())
        .or_else(|| differ("axes", axes(&a.axes), axes(&b.axes)))
        .or_else(|| {
            let rate = |port: &PortType| format!("{:?}", port.clock.adc_sample_rate_hz);
            differ("clock.adc_sample_rate_hz", rate(a), rate(b))
        })
        .or_else(|| {
            let time = |port: &PortType| port.clock.sync_time.decimal();
            differ("clock.sync_time", time(a), time(b))
        })
        .or_else(|| {
            let samples = |port: &PortType| port.clock.samples_per_frame.to_string();
            differ("clock.samples_per_frame", samples(a), samples(b))
        })
        .or_else(|| {
            let band = |port: &PortType| match port.band {
                None => "absent".to_owned(),
                Some(band) => format!(
                    "{} channels from {} of {:?} Hz at {:?} Hz",
                    band.channels,
                    band.first_channel,
                    band.signed_bandwidth_hz(),
                    band.centre_hz
                ),
            };
            differ("band", band(a), band(b))
        })
        .or_else(|| differ("validity.axes", axes(&a.validity.axes), axes(&b.validity.axes)))
        .or_else(|| {
            let full = |port: &PortType| port.validity.full.to_string();
            differ("validity.full", full(a), full(b))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uncertainty_of_a_sync_time_is_not_less_after_the_wire() {
        let base = |uncertainty_seconds| TimeBase {
            from: 1 << 48,
            sync_time: Some(Time::unix(1_800_000_000)),
            uncertainty_seconds,
        };
        for seconds in [0.0, 1e-10, 0.25, 3.0, 1e6, f64::INFINITY] {
            let read = read_uncertainty(&base(0.0), Some(uncertainty_value(&base(seconds))));
            assert!(
                read >= seconds && (read < seconds + 2e-9 || seconds > 1e5),
                "{seconds} {read}"
            );
        }
        // Senders of earlier versions state none.
        assert!(read_uncertainty(&base(0.0), None).is_infinite());
        assert!(read_uncertainty(&TimeBase::default(), None).abs() < 1e-12);
    }
}
