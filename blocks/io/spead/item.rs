//! Item identifiers.

/// Counter of the heaps of a stream.
pub const HEAP_COUNTER: u16 = 0x1;
/// Payload bytes of the whole heap.
pub const HEAP_LENGTH: u16 = 0x2;
/// Offset of this packet's payload in the heap, in bytes.
pub const PAYLOAD_OFFSET: u16 = 0x3;
/// Payload bytes of this packet.
pub const PAYLOAD_LENGTH: u16 = 0x4;
/// A nested packet that describes an item.
pub const DESCRIPTOR: u16 = 0x5;
/// Stream control; [`STREAM_STOP`] ends a stream.
pub const STREAM_CONTROL: u16 = 0x6;
/// Value of [`STREAM_CONTROL`] that ends a stream.
pub const STREAM_STOP: u64 = 2;

/// In a descriptor: the item's short name.
pub const DESCRIPTOR_NAME: u16 = 0x10;
/// In a descriptor: one line about the item.
pub const DESCRIPTOR_DESCRIPTION: u16 = 0x11;
/// In a descriptor: the item's axes.
pub const DESCRIPTOR_SHAPE: u16 = 0x12;
/// In a descriptor: the fields of an element, as bits.
pub const DESCRIPTOR_FORMAT: u16 = 0x13;
/// In a descriptor: the item's identifier.
pub const DESCRIPTOR_ID: u16 = 0x14;
/// In a descriptor: a `NumPy` header instead of a format.
pub const DESCRIPTOR_DTYPE: u16 = 0x15;

/// ADC samples since sync time.
pub const TIMESTAMP: u16 = 0x1600;
/// Identifier of the digitiser; the least significant bit is the polarisation.
pub const DIGITISER_ID: u16 = 0x3101;
/// Saturated samples in bits 47..32, a saturation flag in bit 1.
pub const DIGITISER_STATUS: u16 = 0x3102;
/// Packed samples.
pub const RAW_SAMPLES: u16 = 0x3300;
/// Number of the F-engine.
pub const FENG_ID: u16 = 0x4101;
/// Index of the heap's first channel in the whole band.
pub const FREQUENCY: u16 = 0x4103;
/// Channelised voltages.
pub const FENG_RAW: u16 = 0x4300;
/// Visibilities.
pub const XENG_RAW: u16 = 0x1800;
/// Pair of inputs of each visibility.
pub const BLS_ORDERING: u16 = 0x100c;
/// Beam voltages.
pub const BF_RAW: u16 = 0x5000;
/// Number of antennas that contributed to a beam.
pub const BEAM_ANTENNAS: u16 = 0x5004;

/// Described stream: elements of a frame.
pub const DATA: u16 = 0x7000;
/// Described stream: number of the frame in the stream, from 0.
pub const SEQUENCE: u16 = 0x7001;
/// Described stream: identifier of the run of the sender.
pub const RUN: u16 = 0x7002;
/// Described stream: bits 48 and up of the timestamp.
pub const TIMESTAMP_HIGH: u16 = 0x7003;
/// Described stream: CRC-32 of the text of [`TYPE`].
pub const TYPE_CHECK: u16 = 0x7004;
/// Described stream: first timestamp for which the sender took the stream over from another one, modulo 2^48; 0 if it
/// did not.
pub const TAKEN_OVER: u16 = 0x7009;
/// Described stream: time base: its first timestamp, and its Unix time in seconds and picoseconds.
pub const TIME_BASE: u16 = 0x700a;
/// Described stream: largest error of the Unix time of [`TIME_BASE`] in nanoseconds, 2^48 - 1 if it is not known; 0 of a
/// sync time that was given.
pub const TIME_BASE_UNCERTAINTY: u16 = 0x700b;
/// Described stream: validity counts.
pub const VALIDITY: u16 = 0x7005;
/// Described stream: identifier of the configuration that made the frame.
pub const CONFIG_ID: u16 = 0x7006;
/// Described stream: tables of the frame, as JSON.
pub const ANNOTATIONS: u16 = 0x7007;
/// Described stream: type of the frames, as JSON.
pub const TYPE: u16 = 0x7008;
