//! Sources and sinks: SPEAD streams, files, simulated digitisers.

pub mod dada_sink;
pub mod dada_source;
pub mod digitiser_simulator;
pub mod file_sink;
pub mod file_source;
pub mod filterbank_sink;
pub mod filterbank_source;
pub mod guppi_sink;
pub mod guppi_source;
pub mod image_sink;
pub(crate) mod output_file;
pub(crate) mod pace;
pub(crate) mod playback;
pub mod recorder;
pub(crate) mod rows;
pub mod sigmf_sink;
pub mod sigmf_source;
pub mod spead;
pub mod spead_sink;
pub mod spead_source;
pub mod uvh5_sink;
pub(crate) mod validity_counts;
pub mod vdif_sink;
pub mod vdif_source;
