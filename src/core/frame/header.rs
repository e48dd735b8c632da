//! Headers and annotations of frames.

use crate::time_base::TimeBase;

/// Header of a frame.
#[derive(Clone, Debug, Default)]
pub struct Header {
    /// Number of the frame at its port, from 0, without gaps.
    pub sequence: u64,
    /// Timestamp of the first element in ADC samples since sync time; set by the block.
    pub timestamp: u64,
    /// Time base of the timestamp. A block that leaves it at its default gets that of its input frames at this time.
    pub base: TimeBase,
    /// Identifier of the configuration that made the frame.
    pub config_id: u64,
    /// One count per unit of the port's [`ValidityType`](crate::port::ValidityType), row-major.
    pub validity: Vec<u32>,
    /// Small tables that blocks pass on.
    pub annotations: Annotations,
}

impl Header {
    /// Copies `other`. Allocations are reused.
    pub fn copy_from(&mut self, other: &Self) {
        self.sequence = other.sequence;
        self.timestamp = other.timestamp;
        self.base = other.base;
        self.config_id = other.config_id;
        self.validity.clone_from(&other.validity);
        self.annotations.copy_from(&other.annotations);
    }
}

/// Small named tables of numbers of a frame: one value per spectrum, per heap or per
/// polarisation, never per sample.
///
/// # Examples
///
/// ```
/// use fxgraph_core::frame::Header;
///
/// let mut header = Header::default();
/// header.annotations.reset("saturated", 2).copy_from_slice(&[3.0, 0.0]);
/// assert_eq!(header.annotations.get("saturated"), [3.0, 0.0]);
/// assert!(header.annotations.get("adc_power").is_empty());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Annotations(Vec<(&'static str, Vec<f64>)>);

impl Annotations {
    /// The table `name`, row-major; empty if it is not set.
    #[must_use]
    pub fn get(&self, name: &str) -> &[f64] {
        self.0.iter().find(|(key, _)| *key == name).map_or(&[], |(_, values)| values)
    }

    /// Sets the table `name` to `len` zeros and returns it. The allocation is kept from frame to frame.
    pub fn reset(&mut self, name: &'static str, len: usize) -> &mut [f64] {
        let index = self.0.iter().position(|(key, _)| *key == name).unwrap_or_else(|| {
            self.0.push((name, Vec::new()));
            self.0.len() - 1
        });
        let values = &mut self.0[index].1;
        values.clear();
        values.resize(len, 0.0);
        values
    }

    /// All tables that are not empty.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &[f64])> {
        self.0.iter().filter(|(_, v)| !v.is_empty()).map(|(k, v)| (*k, v.as_slice()))
    }

    /// Copies the tables of `other`. Allocations are reused.
    pub fn copy_from(&mut self, other: &Self) {
        self.clear();
        for (name, values) in other.iter() {
            self.reset(name, values.len()).copy_from_slice(values);
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.iter_mut().for_each(|(_, values)| values.clear());
    }
}
