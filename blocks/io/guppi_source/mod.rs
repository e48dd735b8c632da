#![doc = include_str!("README.md")]

mod blocks;
mod cpu;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::float_cmp)]
mod tests;

use crate::common::axes::MAX_FRAME_BYTES;
use crate::io::playback::{FileSource, Playback, PlaybackParameters};
use crate::io::played_file::{band, contradictions};
use blocks::{Blocks, Found};
use fxgraph::access::ReadPath;
use fxgraph::{
    Axis, Checked, Clock, Configured, Dtype, Implementation, Implementations, Kind, KindSpec,
    PortType, Rejection, Sideband, ValidityType,
};
use fxgraph_formats::guppi::{Header, TwoBit};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Spectra of a heap of the default size, and the least number.
const HEAP_SPECTRA: u64 = 256;
const LEAST_SPECTRA: u64 = 16;

/// Parameters of `guppi_source`.
#[derive(Clone, Debug, Kind)]
#[kind(name = "guppi_source", page = "README.md", examples("example.yaml"), outputs("output"))]
pub struct GuppiSource {
    /// File to play.
    pub path: ReadPath,
    /// Spectra of a heap, which is one frame of the output: a divisor of the spectra of a block. By default the largest
    /// divisor up to 256 that divides the overlap of blocks, too, if one of at least 16 does.
    #[param(range = 1..)]
    pub spectra_per_heap: Option<u64>,
    /// Convention of 2-bit numbers, which no header gives: `breakthrough` or `puppi`.
    pub two_bit: Option<Convention>,
    /// Sideband of the values, if the sign of `OBSBW` is wrong. `lower`: frequencies fall from channel to channel, and values
    /// are the complex conjugates of those of the sky.
    pub sideband: Option<Sideband>,
    #[param(flatten)]
    playback: PlaybackParameters,
}

/// Convention of 2-bit numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Convention {
    /// Breakthrough Listen: codes from the highest level down, the first number in the highest bits of a byte.
    Breakthrough,
    /// GUPPI and PUPPI: codes from the lowest level up, the first number in the lowest bits of a byte.
    Puppi,
}

impl From<Convention> for TwoBit {
    fn from(convention: Convention) -> Self {
        match convention {
            Convention::Breakthrough => Self::Breakthrough,
            Convention::Puppi => Self::Puppi,
        }
    }
}

/// Shape of the blocks and of the output.
#[derive(Clone, Debug)]
pub struct Shape {
    header: Header,
    /// Spectra of a heap.
    spectra: u64,
    /// ADC samples of a spectrum.
    step: u64,
}

impl GuppiSource {
    fn shape(&self) -> Result<Shape, Box<Rejection>> {
        let at_path = |why: String| Box::new(Rejection::parameter("path", why));
        let mut blocks = Blocks::open(&self.path).map_err(at_path)?;
        let header = match blocks.next().map_err(at_path)? {
            Found::Block(block) => block.header,
            Found::Incomplete(_) | Found::Zeros(_) | Found::End => {
                return Err(at_path(format!("there is no complete block in {}", self.path)));
            }
        };
        if (header.bits == 2) != self.two_bit.is_some() {
            let message = match self.two_bit {
                None => {
                    "numbers of 2 bits have two conventions, and no header gives the one of this file"
                }
                Some(_) => "`two_bit` is for numbers of 2 bits",
            };
            let help = match self.two_bit {
                None => "set `two_bit: breakthrough` or `two_bit: puppi`".to_owned(),
                Some(_) => format!("omit it; the file has {} bits", header.bits),
            };
            return Err(Box::new(Rejection::parameter("two_bit", message).help(help)));
        }
        let of_block = header.spectra() - header.overlap as u64;
        // Whole heaps of the overlap, too, so that the last one can be played.
        let overlap = header.overlap as u64;
        let fits = |n: &u64, spectra: u64| spectra.is_multiple_of(*n);
        let sizes = || (LEAST_SPECTRA..=HEAP_SPECTRA).rev();
        let both = sizes().find(|n| fits(n, of_block) && fits(n, overlap));
        let usual = both.or_else(|| sizes().find(|n| fits(n, of_block)));
        let spectra = self.spectra_per_heap.unwrap_or(usual.unwrap_or(of_block));
        if !of_block.is_multiple_of(spectra) {
            let message = format!(
                "`spectra_per_heap` must divide the {of_block} spectra of a block, got {spectra}"
            );
            let help = format!("set a divisor such as {}", usual.unwrap_or(of_block));
            return Err(Box::new(Rejection::parameter("spectra_per_heap", message).help(help)));
        }
        if !(spectra * header.unit_bits()).is_multiple_of(8) {
            let message = format!(
                "a heap of {} bits for each number must have whole bytes, got {spectra} spectra",
                header.bits
            );
            let rejection = Rejection::parameter("spectra_per_heap", message);
            return Err(Box::new(rejection.help("set an even number that divides the block")));
        }
        let step = 2 * header.channels as u64;
        Ok(Shape { header, spectra, step })
    }

    fn port(&self, shape: &Shape) -> Result<PortType, Box<Rejection>> {
        let header = &shape.header;
        let dtype = match header.bits {
            16 => Dtype::Ci16,
            4 => Dtype::Ci4,
            _ => Dtype::Ci8,
        };
        let numbers = header.spectrum_bits() / u64::from(2 * header.bits);
        let bytes = numbers.checked_mul(shape.spectra * dtype.bits() as u64 / 8);
        if bytes.is_none_or(|bytes| bytes > MAX_FRAME_BYTES as u64) {
            let message = "a frame of the output must have at most 4 GiB";
            let rejection = Rejection::parameter("spectra_per_heap", message);
            return Err(Box::new(rejection.help("set a divisor of the spectra of a block")));
        }
        let heap = Axis::new("heap", 1);
        let antenna = (header.antennas > 1).then(|| Axis::new("antenna", header.antennas));
        let spectrum =
            Axis::new("spectrum", shape.spectra as usize).from_parameter("spectra_per_heap");
        let rest = [Axis::new("channel", header.channels), spectrum, Axis::new("pol", header.pols)];
        let units: Vec<Axis> = [heap].into_iter().chain(antenna).collect();
        let band = band(
            "OBSBW",
            header.channels,
            header.centre_mhz * 1e6,
            header.bandwidth_mhz * 1e6,
            self.sideband,
        )?;
        Ok(PortType {
            dtype,
            axes: units.iter().cloned().chain(rest).collect(),
            clock: Clock {
                sync_time: header.start,
                ..Clock::new(
                    shape.step as f64 / header.spectrum_seconds,
                    shape.spectra * shape.step,
                )
            },
            band,
            validity: ValidityType::flags(units),
        })
    }
}

impl KindSpec for GuppiSource {
    type Shape = Shape;
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(|block, env| {
        let Configured { parameters, shape, .. } = block;
        let playback = Playback::new(&parameters.playback, block.ports.outputs[0].clock, env);
        Ok(Box::new(FileSource::new(playback, cpu::Heaps::new(parameters, shape, env), env)))
    })];

    /// Reads the shape from the first header of the file.
    fn ports(&self, _inputs: &[PortType]) -> Checked<Shape> {
        self.playback.check()?;
        let shape = self.shape().map_err(|rejection| vec![*rejection])?;
        let port = self.port(&shape).map_err(|rejection| vec![*rejection])?;
        Ok((shape, vec![port]))
    }

    fn warnings(block: &Configured<Self>) -> Vec<Rejection> {
        let path = &block.parameters.path;
        contradictions(path, &block.shape.header.contradictions)
    }
}
