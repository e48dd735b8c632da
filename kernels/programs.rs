//! The list of programs, each with the parameter sets it is checked with.

use crate::{Needs, Program, Source};

/// The source file of that name in this folder.
macro_rules! source {
    ($name:literal) => {
        Source { name: $name, text: include_str!($name) }
    };
}

/// All programs, by name.
pub const PROGRAMS: &[Program] = &[
    Program { source: source!("correlator_dump.cu"), needs: Needs::Ampere, cases: &[""] },
    Program {
        source: source!("correlator_hopper.cu"),
        needs: Needs::Hopper,
        cases: &[
            "TILE_BLOCKS=1 SINGLE_TILE=1 STAGES=16",
            "TILE_BLOCKS=2 SINGLE_TILE=1 STAGES=16",
            "TILE_BLOCKS=3 SINGLE_TILE=1 STAGES=12",
            "TILE_BLOCKS=4 SINGLE_TILE=1 STAGES=9",
            "TILE_BLOCKS=5 SINGLE_TILE=1 STAGES=7",
            "TILE_BLOCKS=4 SINGLE_TILE=0 STAGES=5",
        ],
    },
    Program {
        source: source!("correlator_rows.cu"),
        needs: Needs::Ampere,
        cases: &[
            "ANTENNAS=1 CHANNELS=1 SPECTRA=16 K_MAJOR=0 FOUR_BIT=0",
            "ANTENNAS=80 CHANNELS=16 SPECTRA=256 K_MAJOR=0 FOUR_BIT=1",
            "ANTENNAS=80 CHANNELS=16 SPECTRA=37 K_MAJOR=1 FOUR_BIT=0",
            "ANTENNAS=512 CHANNELS=65536 SPECTRA=1024 K_MAJOR=1 FOUR_BIT=1",
        ],
    },
    Program {
        source: source!("correlator_tensor_core.cu"),
        needs: Needs::Ampere,
        cases: &["TILE_ROWS=64 STAGES=3", "TILE_ROWS=96 STAGES=3", "TILE_ROWS=128 STAGES=6"],
    },
    Program { source: source!("matrix_peak.cu"), needs: Needs::Ampere, cases: &[""] },
    Program { source: source!("matrix_peak_hopper.cu"), needs: Needs::Hopper, cases: &[""] },
    Program {
        source: source!("f_engine.cu"),
        needs: Needs::Ampere,
        cases: &[
            "CHANNELS=1024 POLS=2 TAPS=16 SAMPLE_BITS=10 NATIVE_SAMPLES=0 VALUE_BITS=8 K_MAJOR=0 SPECTRA_PER_HEAP=256 DITHER=0 CHANNEL_GAINS=1 TILE_BYTES=32",
            "CHANNELS=2048 POLS=1 TAPS=1 SAMPLE_BITS=2 NATIVE_SAMPLES=0 VALUE_BITS=8 K_MAJOR=1 SPECTRA_PER_HEAP=16 DITHER=1 CHANNEL_GAINS=0 TILE_BYTES=32",
            "CHANNELS=4096 POLS=2 TAPS=16 SAMPLE_BITS=8 NATIVE_SAMPLES=0 VALUE_BITS=4 K_MAJOR=1 SPECTRA_PER_HEAP=256 DITHER=1 CHANNEL_GAINS=1 TILE_BYTES=16",
            "CHANNELS=8192 POLS=2 TAPS=16 SAMPLE_BITS=10 NATIVE_SAMPLES=0 VALUE_BITS=8 K_MAJOR=1 SPECTRA_PER_HEAP=256 DITHER=1 CHANNEL_GAINS=1 TILE_BYTES=32",
            "CHANNELS=16384 POLS=2 TAPS=32 SAMPLE_BITS=12 NATIVE_SAMPLES=0 VALUE_BITS=4 K_MAJOR=0 SPECTRA_PER_HEAP=48 DITHER=0 CHANNEL_GAINS=1 TILE_BYTES=16",
            "CHANNELS=32768 POLS=2 TAPS=16 SAMPLE_BITS=10 NATIVE_SAMPLES=0 VALUE_BITS=8 K_MAJOR=0 SPECTRA_PER_HEAP=256 DITHER=1 CHANNEL_GAINS=1 TILE_BYTES=16",
            "CHANNELS=32768 POLS=1 TAPS=4 SAMPLE_BITS=16 NATIVE_SAMPLES=1 VALUE_BITS=8 K_MAJOR=0 SPECTRA_PER_HEAP=65536 DITHER=1 CHANNEL_GAINS=1 TILE_BYTES=16",
        ],
    },
    Program {
        source: source!("fft.cu"),
        needs: Needs::Ampere,
        cases: &["CHANNELS=4", "CHANNELS=1048576"],
    },
    Program {
        source: source!("pfb.cu"),
        needs: Needs::Ampere,
        cases: &[
            "CHANNELS=4 TAPS=1 UNZIP=1 BITS=3 NATIVE=0",
            "CHANNELS=1024 TAPS=13 UNZIP=1 BITS=12 NATIVE=0",
            "CHANNELS=4096 TAPS=16 UNZIP=2 BITS=10 NATIVE=0",
            "CHANNELS=32768 TAPS=32 UNZIP=16 BITS=16 NATIVE=0",
            "CHANNELS=1048576 TAPS=64 UNZIP=1 BITS=16 NATIVE=1",
        ],
    },
    Program {
        source: source!("postproc.cu"),
        needs: Needs::Ampere,
        cases: &[
            "CHANNELS=4 UNZIP=1 POLS=1 SPECTRA_PER_HEAP=1 BITS=4 K_MAJOR=0 DITHER=0 GAINS=0",
            "CHANNELS=4096 UNZIP=1 POLS=2 SPECTRA_PER_HEAP=256 BITS=8 K_MAJOR=0 DITHER=1 GAINS=1",
            "CHANNELS=4096 UNZIP=2 POLS=2 SPECTRA_PER_HEAP=256 BITS=8 K_MAJOR=0 DITHER=1 GAINS=0",
            "CHANNELS=8192 UNZIP=4 POLS=2 SPECTRA_PER_HEAP=250 BITS=8 K_MAJOR=1 DITHER=0 GAINS=1",
            "CHANNELS=32768 UNZIP=8 POLS=1 SPECTRA_PER_HEAP=256 BITS=4 K_MAJOR=1 DITHER=1 GAINS=1",
            "CHANNELS=1048576 UNZIP=16 POLS=2 SPECTRA_PER_HEAP=65536 BITS=4 K_MAJOR=0 DITHER=1 GAINS=1",
        ],
    },
];
