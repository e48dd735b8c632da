//! Timestamps of which 48 bits are on the wire.

use super::packet::VALUE_BITS;

/// Returns the number nearest to `near` whose lowest 48 bits are those of `wire`.
#[must_use]
pub fn nearest(wire: u64, near: u64) -> u64 {
    let turn = 1_u64 << VALUE_BITS;
    let ahead = wire.wrapping_sub(near) & (turn - 1);
    if ahead < turn / 2 {
        near.saturating_add(ahead)
    } else {
        // One turn less, unless that would be before the beginning.
        near.checked_sub(turn - ahead).unwrap_or(wire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nearest_across_the_wrap_returns_the_next_turn() {
        let turn = 1 << VALUE_BITS;
        assert_eq!(nearest(5, turn - 3), turn + 5);
        assert_eq!(nearest(turn - 3, turn + 5), turn - 3);
        assert_eq!(nearest(5, 3), 5);
        assert_eq!(nearest(turn - 3, 5), turn - 3);
        assert_eq!(nearest(7, 6 * turn), 6 * turn + 7);
    }

    proptest! {
        #[test]
        fn nearest_restores_timestamps_near_the_expected_one_in_every_turn(
            near in 0_u64..1 << 60, by in -(1_i64 << 46)..1_i64 << 46,
        ) {
            let full = near.saturating_add_signed(by);
            prop_assert_eq!(nearest(full & ((1 << VALUE_BITS) - 1), near), full);
        }
    }
}
