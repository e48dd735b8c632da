//! What travels with a payload.

/// What a frame says about its payload.
#[derive(Clone, Debug, Default)]
pub struct Header {
    /// Counts the frames pushed on this port, from 0, without gaps.
    pub sequence: u64,
    /// ADC samples since sync time of the first element; set by the block.
    pub timestamp: u64,
    /// Configuration that made the frame.
    pub config_id: u64,
    /// One count per unit of the port's [`ValidityType`](crate::port::ValidityType), row-major.
    pub validity: Vec<u32>,
    /// Small tables that blocks pass on along the way.
    pub annotations: Annotations,
}

impl Header {
    /// Becomes the same as `other`, reusing allocations.
    pub fn copy_from(&mut self, other: &Self) {
        self.sequence = other.sequence;
        self.timestamp = other.timestamp;
        self.config_id = other.config_id;
        self.validity.clone_from(&other.validity);
        self.annotations.copy_from(&other.annotations);
    }
}

/// Small named tables of numbers that travel with a frame: per spectrum, per heap or per
/// polarisation, never per sample.
#[derive(Clone, Debug, Default)]
pub struct Annotations(Vec<(&'static str, Vec<f64>)>);

impl Annotations {
    /// The table `name`, row-major; empty if nobody set it.
    #[must_use]
    pub fn get(&self, name: &str) -> &[f64] {
        self.0.iter().find(|(key, _)| *key == name).map_or(&[], |(_, values)| values)
    }

    /// The table `name`, resized to `len` zeros. Keeps its allocation from frame to frame.
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

    /// Every table that holds something.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &[f64])> {
        self.0.iter().filter(|(_, v)| !v.is_empty()).map(|(k, v)| (*k, v.as_slice()))
    }

    /// Takes over the tables of `other`, reusing allocations.
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
