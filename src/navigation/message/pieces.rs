//! Pieces of an ephemeris, one in each unit, which belong together if their issues agree.

/// A unit with a piece of an ephemeris.
#[derive(Clone, Debug)]
struct Piece {
    /// Issue of the data; `None` for a unit that goes with every issue.
    issue: Option<u16>,
    /// Number of the first symbol of the unit.
    first: u64,
    /// Whether the same unit was received twice.
    is_repeated: bool,
    bits: Vec<bool>,
}

/// The newest unit of each kind.
#[derive(Clone, Debug)]
pub struct Pieces {
    pieces: Vec<Option<Piece>>,
    /// Symbols after which a piece is too old to go with another one.
    longest: u64,
}

impl Pieces {
    /// Creates the store of `count` pieces that are at most `longest` symbols apart.
    pub fn new(count: usize, longest: u64) -> Self {
        Self { pieces: vec![None; count], longest }
    }

    /// Forgets all pieces.
    pub fn clear(&mut self) {
        self.pieces.fill(None);
    }

    /// Takes piece number `index`; `bits` are those by which two units are compared.
    pub fn add(&mut self, index: usize, issue: Option<u16>, first: u64, bits: &[bool]) {
        let Some(place) = self.pieces.get_mut(index) else { return };
        match place {
            Some(piece) if piece.bits == bits => {
                piece.is_repeated = true;
                piece.first = first;
            }
            // The storage is reused: a unit lasts seconds, and its pieces have the same length.
            Some(piece) => {
                piece.bits.clear();
                piece.bits.extend_from_slice(bits);
                (piece.issue, piece.first, piece.is_repeated) = (issue, first, false);
            }
            None => {
                let bits = bits.to_vec();
                *place = Some(Piece { issue, first, is_repeated: false, bits });
            }
        }
    }

    /// Returns the bits of all pieces if they belong together, at symbol `now`: their issues agree, none is too old, and
    /// each is from symbol `since` on or was received twice.
    pub fn complete(&self, now: u64, since: u64) -> Option<Vec<&[bool]>> {
        let mut issue = None;
        let mut all = Vec::with_capacity(self.pieces.len());
        for piece in &self.pieces {
            let piece = piece.as_ref()?;
            let agrees = piece.issue.is_none_or(|of| *issue.get_or_insert(of) == of);
            let is_sure = piece.first >= since || piece.is_repeated;
            let is_new = now.saturating_sub(piece.first) <= self.longest;
            if !(agrees && is_sure && is_new) {
                return None;
            }
            all.push(&piece.bits[..]);
        }
        Some(all)
    }
}
