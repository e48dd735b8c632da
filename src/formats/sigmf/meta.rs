//! Description of a recording, in JSON.

use serde::{Deserialize, Serialize};

/// Version of the SigMF specification that is written.
pub const VERSION: &str = "1.2.0";
/// Longest description that is read, in bytes.
pub const MAX_BYTES: u64 = 64 << 20;
/// Label of annotations for samples that are missing.
pub const MISSING: &str = "missing";

/// Content of a `.sigmf-meta` file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    /// Properties of all samples.
    pub global: Global,
    /// Stretches of samples without a gap, in the order of their samples.
    #[serde(default)]
    pub captures: Vec<Capture>,
    /// Notes about samples.
    #[serde(default)]
    pub annotations: Vec<Annotation>,
}

/// Properties of all samples. Names with `fxgraph:` are an extension with the origin of the samples and the exact clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are those of the specification")]
pub struct Global {
    #[serde(rename = "core:datatype")]
    pub datatype: String,
    #[serde(rename = "core:version")]
    pub version: String,
    #[serde(rename = "core:sample_rate", skip_serializing_if = "Option::is_none")]
    pub sample_rate: Option<f64>,
    #[serde(rename = "core:num_channels", skip_serializing_if = "Option::is_none")]
    pub num_channels: Option<u64>,
    #[serde(rename = "core:offset", skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    #[serde(rename = "core:trailing_bytes", skip_serializing_if = "Option::is_none")]
    pub trailing_bytes: Option<u64>,
    #[serde(rename = "core:metadata_only", skip_serializing_if = "Option::is_none")]
    pub metadata_only: Option<bool>,
    #[serde(rename = "core:sha512", skip_serializing_if = "Option::is_none")]
    pub sha512: Option<String>,
    #[serde(rename = "core:dataset", skip_serializing_if = "Option::is_none")]
    pub dataset: Option<String>,
    #[serde(rename = "core:author", skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    #[serde(rename = "core:description", skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(rename = "core:hw", skip_serializing_if = "Option::is_none")]
    pub hardware: Option<String>,
    #[serde(rename = "core:recorder", skip_serializing_if = "Option::is_none")]
    pub recorder: Option<String>,
    #[serde(rename = "core:extensions", default, skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<Extension>,
    /// ADC samples per second.
    #[serde(rename = "fxgraph:adc_sample_rate_hz", skip_serializing_if = "Option::is_none")]
    pub adc_sample_rate_hz: Option<f64>,
    /// ADC samples from one sample to the next.
    #[serde(rename = "fxgraph:adc_samples_per_sample", skip_serializing_if = "Option::is_none")]
    pub adc_samples_per_sample: Option<u64>,
    /// Unix time of the sample with `core:global_index` 0, in seconds.
    #[serde(rename = "fxgraph:sync_time_seconds", skip_serializing_if = "Option::is_none")]
    pub sync_time_seconds: Option<f64>,
    /// The same time, UTC, to the picosecond.
    #[serde(rename = "fxgraph:sync_time", skip_serializing_if = "Option::is_none")]
    pub sync_time: Option<String>,
    /// Width of the band in Hz; negative if its frequencies are inverted.
    #[serde(rename = "fxgraph:bandwidth_hz", skip_serializing_if = "Option::is_none")]
    pub bandwidth_hz: Option<f64>,
    /// Samples of each channel that were on disk when this description was written.
    #[serde(rename = "fxgraph:samples", skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    /// Whether the stream had ended.
    #[serde(rename = "fxgraph:complete", skip_serializing_if = "Option::is_none")]
    pub complete: Option<bool>,
    /// Name of the block that wrote the recording.
    #[serde(rename = "fxgraph:block", skip_serializing_if = "Option::is_none")]
    pub block: Option<String>,
    /// Hash of the resolved flowgraph.
    #[serde(rename = "fxgraph:config_hash", skip_serializing_if = "Option::is_none")]
    pub config_hash: Option<String>,
    /// The resolved flowgraph.
    #[serde(rename = "fxgraph:flowgraph", skip_serializing_if = "Option::is_none")]
    pub flowgraph: Option<String>,
}

/// Declaration of names of an extension.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Extension {
    /// Part of the names before the colon.
    pub name: String,
    /// Version of the extension.
    pub version: String,
    /// Whether readers may ignore the names.
    pub optional: bool,
}

/// A stretch of samples without a gap.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are those of the specification")]
pub struct Capture {
    #[serde(rename = "core:sample_start")]
    pub sample_start: u64,
    #[serde(rename = "core:global_index", skip_serializing_if = "Option::is_none")]
    pub global_index: Option<u64>,
    #[serde(rename = "core:header_bytes", skip_serializing_if = "Option::is_none")]
    pub header_bytes: Option<u64>,
    #[serde(rename = "core:frequency", skip_serializing_if = "Option::is_none")]
    pub frequency: Option<f64>,
    #[serde(rename = "core:datetime", skip_serializing_if = "Option::is_none")]
    pub datetime: Option<String>,
}

/// A note about samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are those of the specification")]
pub struct Annotation {
    #[serde(rename = "core:sample_start")]
    pub sample_start: u64,
    #[serde(rename = "core:sample_count", skip_serializing_if = "Option::is_none")]
    pub sample_count: Option<u64>,
    #[serde(rename = "core:label", skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    #[serde(rename = "core:comment", skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

/// Error for a text that is not a description.
#[derive(Debug, thiserror::Error)]
#[error("it is not SigMF metadata: {0}")]
pub struct NotMeta(String);

impl Meta {
    /// Reads the text of a `.sigmf-meta` file.
    ///
    /// # Errors
    /// If the text is no JSON, or a value has another type.
    pub fn read(text: &[u8]) -> Result<Self, NotMeta> {
        // Texts of the file are in some messages.
        let printable = |error: serde_json::Error| {
            let text = error.to_string();
            text.chars().map(|c| if c.is_control() { '?' } else { c }).take(200).collect()
        };
        serde_json::from_slice(text).map_err(|error| NotMeta(printable(error)))
    }

    /// Returns the text of a `.sigmf-meta` file.
    #[must_use]
    pub fn text(&self) -> String {
        // Numbers that are not finite become null, so that the text is always JSON.
        serde_json::to_string_pretty(self).map_or_else(|_| String::new(), |text| text + "\n")
    }
}
