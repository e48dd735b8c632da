//! Descriptors: heaps that describe the name, shape and type of a stream's items.

use super::item;
use super::packet::{Head, Pointer, VALUE_BITS};
use std::fmt::Write;

/// Type of an item's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elements {
    /// Unsigned integers of 48 bits, as in immediate items.
    Unsigned48,
    /// Two's-complement integers with this number of bits, most significant bit first.
    Packed(u8),
    /// A `NumPy` type, such as `|i1` or `<i4`.
    Numpy(&'static str),
    /// Characters of a text of any length.
    Text,
}

/// Description of one item.
#[derive(Clone, Debug)]
pub struct Description {
    /// Item identifier.
    pub id: u16,
    /// Short name.
    pub name: &'static str,
    /// Description in one line.
    pub text: &'static str,
    /// Lengths of the axes; none for a single number.
    pub shape: Vec<usize>,
    /// Type of the elements.
    pub elements: Elements,
}

impl Description {
    /// Creates the description of a number in the item pointer itself.
    #[must_use]
    pub fn immediate(id: u16, name: &'static str, text: &'static str) -> Self {
        Self { id, name, text, shape: Vec::new(), elements: Elements::Unsigned48 }
    }

    /// Returns the nested packet.
    fn packet(&self) -> Vec<u8> {
        let format = match self.elements {
            Elements::Unsigned48 => vec![b'u', 0, VALUE_BITS as u8],
            Elements::Packed(bits) => vec![b'i', 0, bits],
            Elements::Text => vec![b'c', 0, 8],
            Elements::Numpy(_) => Vec::new(),
        };
        // Per axis one byte for a fixed length, then the length in 48 bits.
        let mut shape = Vec::new();
        if self.elements == Elements::Text {
            // One axis of variable length.
            shape.extend([1, 0, 0, 0, 0, 0, 0]);
        }
        for length in &self.shape {
            shape.push(0);
            shape.extend(&(*length as u64).to_be_bytes()[2..]);
        }
        let mut fields = vec![
            (item::DESCRIPTOR_NAME, self.name.as_bytes().to_vec()),
            (item::DESCRIPTOR_DESCRIPTION, self.text.as_bytes().to_vec()),
            (item::DESCRIPTOR_FORMAT, format),
            (item::DESCRIPTOR_SHAPE, shape),
        ];
        if let Elements::Numpy(dtype) = self.elements {
            fields.push((item::DESCRIPTOR_DTYPE, numpy_header(dtype, &self.shape)));
        }
        let mut pointers = vec![Pointer::immediate(item::DESCRIPTOR_ID, u64::from(self.id))];
        let mut payload = Vec::new();
        for (id, bytes) in fields {
            pointers.push(Pointer::addressed(id, payload.len() as u64));
            payload.extend(bytes);
        }
        // The counter of a nested packet has no meaning, but 0 is reserved for "none".
        let head = Head::new(1, payload.len(), 0, payload.len(), &pointers);
        [head.as_bytes(), &payload].concat()
    }
}

/// Returns the header dictionary of a `.npy` file, which describes `NumPy` types.
fn numpy_header(dtype: &str, shape: &[usize]) -> Vec<u8> {
    let mut header = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': (");
    for length in shape {
        // Writing to a string cannot fail.
        let _ = write!(header, "{length}, ");
    }
    header.push_str(")}");
    header.into_bytes()
}

/// Returns the item pointers and payload of a heap that describes `items`.
#[must_use]
pub fn heap(items: &[Description]) -> (Vec<Pointer>, Vec<u8>) {
    let (mut pointers, mut payload) = (Vec::new(), Vec::new());
    for item in items {
        pointers.push(Pointer::addressed(item::DESCRIPTOR, payload.len() as u64));
        payload.extend(item.packet());
    }
    (pointers, payload)
}
