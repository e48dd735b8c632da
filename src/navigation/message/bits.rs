//! Fields of a unit: one layout, a function that goes through the fields in their order, reads and writes.

use super::OutOfRange;
use std::f64::consts::PI;

/// Fields of a unit, most significant bit first, from the first one on.
pub struct Fields<'a> {
    bits: Bits<'a>,
    at: usize,
    fault: Option<OutOfRange>,
}

enum Bits<'a> {
    Read(&'a [bool]),
    Write(&'a mut [bool]),
}

impl<'a> Fields<'a> {
    /// Reads `bits`. Bits after their end are 0.
    pub fn read(bits: &'a [bool]) -> Self {
        Self { bits: Bits::Read(bits), at: 0, fault: None }
    }

    /// Writes `bits`. Bits after their end are ignored.
    pub fn write(bits: &'a mut [bool]) -> Self {
        Self { bits: Bits::Write(bits), at: 0, fault: None }
    }

    /// Returns the first value that did not fit in its field.
    pub fn finish(self) -> Result<(), OutOfRange> {
        self.fault.map_or(Ok(()), Err)
    }

    /// Reads `len` bits, or writes the lowest `len` bits of `value`; returns the bits.
    fn raw(&mut self, len: u32, value: u64) -> u64 {
        let bits = self.at..self.at + len as usize;
        self.at = bits.end;
        match &mut self.bits {
            Bits::Read(from) => {
                let bit = |at| u64::from(from.get(at).copied().unwrap_or(false));
                bits.fold(0, |value, at| value << 1 | bit(at))
            }
            Bits::Write(to) => {
                for (at, place) in bits.zip((0..len).rev()) {
                    if let Some(bit) = to.get_mut(at) {
                        *bit = value >> place & 1 == 1;
                    }
                }
                value
            }
        }
    }

    fn is_reading(&self) -> bool {
        matches!(self.bits, Bits::Read(_))
    }

    fn reject(&mut self, field: &'static str, value: f64) {
        self.fault.get_or_insert(OutOfRange { field, value });
    }

    /// A constant: it is written, and skipped when reading.
    pub fn constant(&mut self, len: u32, value: u64) {
        self.raw(len, value);
    }

    /// Reserved bits: alternating ones and zeros.
    pub fn reserved(&mut self, len: u32) {
        for place in 0..len {
            self.raw(1, u64::from(place.is_multiple_of(2)));
        }
    }

    /// A flag.
    pub fn flag(&mut self, value: &mut bool) {
        *value = self.raw(1, u64::from(*value)) == 1;
    }

    /// An integer without a sign, in `len` bits, at most those of its type.
    pub fn unsigned<T: Copy + Into<u64> + TryFrom<u64>>(
        &mut self,
        field: &'static str,
        len: u32,
        value: &mut T,
    ) {
        let wide: u64 = (*value).into();
        if !self.is_reading() && wide >> len != 0 {
            self.reject(field, wide as f64);
        }
        if let Ok(read) = T::try_from(self.raw(len, wide)) {
            *value = read;
        }
    }

    /// An integer as a two's complement in `len` bits, at most those of its type.
    pub fn signed<T: Copy + Into<i64> + TryFrom<i64>>(&mut self, len: u32, value: &mut T) {
        let wide: i64 = (*value).into();
        let read = self.raw(len, wide.cast_unsigned());
        if let Ok(read) = T::try_from(extend(read, len)) {
            *value = read;
        }
    }

    /// A number in units of `unit`, as a two's complement.
    fn units(&mut self, field: &'static str, len: u32, unit: f64, value: &mut f64) {
        let number = (*value / unit).round();
        let most = 2.0_f64.powi(len as i32 - 1);
        let fits = (-most..most).contains(&number);
        if !self.is_reading() && !fits {
            self.reject(field, number);
        }
        let read = self.raw(len, (number as i64).cast_unsigned());
        if self.is_reading() {
            *value = extend(read, len) as f64 * unit;
        }
    }

    /// A number in units of `2^log2`, as a two's complement.
    pub fn scaled(&mut self, field: &'static str, len: u32, log2: i32, value: &mut f64) {
        self.units(field, len, 2.0_f64.powi(log2), value);
    }

    /// An angle in radians, in units of `2^log2` semicircles, as a two's complement.
    pub fn angle(&mut self, field: &'static str, len: u32, log2: i32, value: &mut f64) {
        self.units(field, len, PI * 2.0_f64.powi(log2), value);
    }

    /// An angle whose field is a whole turn: angles of other turns are the same.
    pub fn phase(&mut self, field: &'static str, len: u32, value: &mut f64) {
        let unit = PI * 2.0_f64.powi(1 - len as i32);
        let (turn, half) = (2.0_f64.powi(len as i32), 2.0_f64.powi(len as i32 - 1));
        let number = (*value / unit).round();
        let mut wrapped = ((number + half).rem_euclid(turn) - half) * unit;
        self.units(field, len, unit, &mut wrapped);
        if self.is_reading() {
            *value = wrapped;
        }
    }

    /// A reference time, a multiple of `unit` seconds.
    pub fn time(&mut self, field: &'static str, len: u32, unit: f64, value: &mut f64) {
        let is_multiple = (*value / unit).fract().abs() < 1e-9;
        if !self.is_reading() && !is_multiple {
            self.reject(field, *value / unit);
        }
        self.positive(field, len, unit, value);
    }

    /// A number in units of `unit`, without a sign.
    pub fn positive(&mut self, field: &'static str, len: u32, unit: f64, value: &mut f64) {
        let number = (*value / unit).round();
        let fits = (0.0..2.0_f64.powi(len as i32)).contains(&number);
        if !self.is_reading() && !fits {
            self.reject(field, number);
        }
        let read = self.raw(len, number as u64);
        if self.is_reading() {
            *value = read as f64 * unit;
        }
    }
}

/// Returns the two's complement in the lowest `len` bits of `value`.
fn extend(value: u64, len: u32) -> i64 {
    let unused = u64::BITS - len;
    (value << unused).cast_signed() >> unused
}

/// Returns the integer that is nearest to `near` and equals `residue` modulo `modulus`; if it would be negative, the
/// smallest one that is not.
pub fn nearest(residue: u32, modulus: u32, near: u32) -> u32 {
    let (modulus, near) = (i64::from(modulus), i64::from(near));
    let ahead = (i64::from(residue) - near + modulus / 2).rem_euclid(modulus) - modulus / 2;
    let found = near + ahead;
    u32::try_from(if found < 0 { found + modulus } else { found }).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes and reads a field of 16 bits.
    fn both(mut value: f64, field: impl Fn(&mut Fields<'_>, &mut f64)) -> Result<f64, OutOfRange> {
        let mut bits = [false; 16];
        let mut fields = Fields::write(&mut bits);
        field(&mut fields, &mut value);
        fields.finish()?;
        value = f64::NAN;
        field(&mut Fields::read(&bits), &mut value);
        Ok(value)
    }

    #[test]
    fn values_are_rounded_to_units_and_rejected_outside_their_field() {
        let scaled = |value| both(value, |fields, value| fields.scaled("Crs", 16, -5, value));
        assert_eq!(scaled(-3.49), Ok(-3.5));
        assert_eq!(scaled(32767.0 / 32.0), Ok(32767.0 / 32.0));
        assert_eq!(scaled(1024.0), Err(OutOfRange { field: "Crs", value: 32768.0 }));
        assert!(scaled(f64::NAN).is_err());
        let positive = |value| both(value, |fields, value| fields.positive("toe", 16, 16.0, value));
        assert_eq!(positive(604_784.0), Ok(604_784.0));
        assert!(positive(-16.0).is_err() && positive(2e6).is_err());
    }

    #[test]
    fn phases_of_other_turns_are_the_same() {
        for turns in [-2.0, 0.0, 1.0] {
            let angle = 1.0 + turns * std::f64::consts::TAU;
            let read = both(angle, |fields, value| fields.phase("M0", 16, value)).unwrap_or(0.0);
            assert!((read - 1.0).abs() < 5e-5, "{read}");
        }
        let read = both(PI, |fields, value| fields.phase("M0", 16, value));
        assert_eq!(read, Ok(-PI));
    }

    #[test]
    fn week_is_the_nearest_one_with_its_number() {
        assert_eq!(nearest(143, 1024, 2191), 2191);
        assert_eq!(nearest(1023, 1024, 2048), 2047);
        assert_eq!(nearest(0, 1024, 2047), 2048);
        assert_eq!(nearest(1000, 1024, 3), 1000);
        assert_eq!(nearest(255, 256, 0), 255);
    }
}
