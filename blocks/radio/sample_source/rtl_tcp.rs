//! The reader's side of the protocol of `rtl_tcp`: a header, then samples; the reader sends commands.
//!
//! A command is its number and a value of 32 bits in big-endian order, as in `rtl_tcp` of Osmocom's rtl-sdr.

use super::connection::Connection;
use super::tuning::{Setting, Tuning};
use super::{RtlTcp, SampleSource};
use std::io;

/// Bytes of the header: `RTL0`, the type of the tuner, the number of its gains.
pub const HEADER_BYTES: usize = 12;
const MAGIC: &[u8] = b"RTL0";

const CENTRE: u8 = 0x01;
const RATE: u8 = 0x02;
/// 1: the gain is set; 0: the tuner controls it.
const GAIN_MODE: u8 = 0x03;
/// Tenths of a dB.
const GAIN: u8 = 0x04;
/// Parts per million.
const CORRECTION: u8 = 0x05;
const DIGITAL_AGC: u8 = 0x08;
const BIAS_TEE: u8 = 0x0e;

fn command(number: u8, value: u32) -> [u8; 5] {
    let [a, b, c, d] = value.to_be_bytes();
    [number, a, b, c, d]
}

/// A receiver behind a server.
pub struct Tuner {
    rtl: RtlTcp,
    rate_hz: f64,
    centre_hz: f64,
    gain_db: Option<f64>,
    correction_ppm: i32,
    /// Samples that are flagged after the receiver was tuned.
    settling: u64,
    tuning: Tuning,
    /// Bytes of the header that are missing.
    header_left: usize,
    header: [u8; HEADER_BYTES],
}

impl Tuner {
    /// The receiver of `source`.
    pub fn new(source: &SampleSource, rtl: &RtlTcp, tuning: Tuning) -> Self {
        Self {
            rtl: rtl.clone(),
            rate_hz: source.adc_sample_rate_hz,
            centre_hz: source.centre_hz.unwrap_or_default(),
            gain_db: source.gain_db,
            correction_ppm: source.frequency_correction_ppm,
            settling: (source.settle_seconds * source.adc_sample_rate_hz).ceil() as u64,
            tuning,
            header_left: HEADER_BYTES,
            header: [0; HEADER_BYTES],
        }
    }

    fn set(&mut self, setting: Setting) {
        match setting {
            Setting::CentreHz(hz) => self.centre_hz = hz,
            Setting::GainDb(db) => self.gain_db = db,
            Setting::Correction(ppm) => self.correction_ppm = ppm,
        }
    }

    /// Commands that make the receiver have `setting`.
    fn commands(setting: Setting) -> Vec<u8> {
        match setting {
            Setting::CentreHz(hz) => command(CENTRE, hz.round() as u32).to_vec(),
            Setting::GainDb(None) => command(GAIN_MODE, 0).to_vec(),
            Setting::GainDb(Some(db)) => {
                let tenths = (10.0 * db).round() as i32;
                [command(GAIN_MODE, 1), command(GAIN, tenths.cast_unsigned())].concat()
            }
            Setting::Correction(ppm) => command(CORRECTION, ppm.cast_unsigned()).to_vec(),
        }
    }

    /// Sends all settings to a new connection, and begins to read its header. The samples of the first `settling` are
    /// flagged, once they are counted from timestamp [`begins`](Self::begins).
    pub fn connected(&mut self, connection: &mut Connection) -> io::Result<()> {
        for setting in self.tuning.pending() {
            self.set(setting);
        }
        self.header_left = HEADER_BYTES;
        let mut all = Vec::with_capacity(40);
        all.extend(command(RATE, self.rate_hz.round() as u32));
        all.extend(Self::commands(Setting::Correction(self.correction_ppm)));
        all.extend(Self::commands(Setting::CentreHz(self.centre_hz)));
        all.extend(command(DIGITAL_AGC, u32::from(self.rtl.digital_agc)));
        all.extend(Self::commands(Setting::GainDb(self.gain_db)));
        all.extend(command(BIAS_TEE, u32::from(self.rtl.bias_tee)));
        connection.write(&all)
    }

    /// Notes that the samples of a connection begin at `timestamp`.
    pub fn begins(&self, timestamp: u64) {
        self.tuning.settles(Some(timestamp), timestamp + self.settling);
    }

    /// Sends settings that changed. `timestamp` is that of the newest sample.
    pub fn update(&mut self, connection: &mut Connection, timestamp: u64) -> io::Result<()> {
        for setting in self.tuning.pending() {
            self.set(setting);
            connection.write(&Self::commands(setting))?;
            if matches!(setting, Setting::CentreHz(_)) {
                self.tuning.settles(None, timestamp + self.settling);
            }
        }
        Ok(())
    }

    /// Takes the header off the bytes `..end` of `buffer`, which begin with the connection. Returns the end of the samples.
    /// The error says that the server speaks another protocol.
    pub fn take_header(&mut self, buffer: &mut [u8], end: usize) -> Result<usize, &'static str> {
        let at = HEADER_BYTES - self.header_left;
        let count = self.header_left.min(end);
        self.header[at..at + count].copy_from_slice(&buffer[..count]);
        self.header_left -= count;
        let known = (at + count).min(MAGIC.len());
        if self.header[..known] != MAGIC[..known] {
            return Err("its stream does not begin with `RTL0`: it is not a server of rtl_tcp");
        }
        buffer.copy_within(count..end, 0);
        Ok(end - count)
    }

    /// Whether bytes of the header are missing.
    pub fn is_in_header(&self) -> bool {
        self.header_left > 0
    }
}
