//! Time limit of a wait that counts only the time in which the program ran.

use std::time::{Duration, Instant};

/// Looks within a limit.
const LOOKS: u32 = 8;

/// Waits of a block for something that may never come: data of a silent sender, or the end of another block's call.
///
/// A program that was stopped, or that a busy machine did not let run, has not listened in that time. So what passes
/// between two looks counts as two intervals at most, and a pause does not use up the limit.
///
/// ```
/// # use fxgraph_core::patience::Patience;
/// # use std::time::{Duration, Instant};
/// let mut patience = Patience::new(Duration::from_secs(2));
/// let start = Instant::now();
/// let next_look = patience.left(start);
/// assert_eq!(next_look, Some(Duration::from_millis(100)));
/// // The program was stopped for an hour.
/// assert!(patience.left(start + Duration::from_hours(1)).is_some());
/// ```
#[derive(Clone, Debug)]
pub struct Patience {
    limit: Duration,
    waited: Duration,
    looked: Option<Instant>,
}

impl Patience {
    /// Longest interval between two looks at the clock.
    pub const LOOK: Duration = Duration::from_millis(100);

    /// Patience for `limit`.
    #[must_use]
    pub fn new(limit: Duration) -> Self {
        Self { limit, waited: Duration::ZERO, looked: None }
    }

    /// Begins again, because what was waited for has come.
    pub fn renew(&mut self) {
        (self.waited, self.looked) = (Duration::ZERO, None);
    }

    /// Time waited until the last look.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Looks at the clock, which shows `now`: the time until the next look, or `None` if the limit has passed.
    pub fn left(&mut self, now: Instant) -> Option<Duration> {
        let look = (self.limit / LOOKS).clamp(Duration::from_millis(1), Self::LOOK);
        let passed =
            self.looked.map_or(Duration::ZERO, |looked| now.saturating_duration_since(looked));
        self.waited += passed.min(2 * look);
        self.looked = Some(now);
        let left = self.limit.checked_sub(self.waited).filter(|left| !left.is_zero())?;
        Some(left.min(look))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Time after which a wait of `limit` is over, if the clock is looked at as asked, and `pause` passes at each look
    /// of which the number is a multiple of 3.
    fn over_after(limit: Duration, pause: Duration) -> Duration {
        let mut patience = Patience::new(limit);
        let start = Instant::now();
        let mut now = start;
        for number in 0.. {
            let Some(next) = patience.left(now) else { break };
            now += next;
            if number % 3 == 1 {
                now += pause;
            }
        }
        now - start
    }

    #[test]
    fn wait_ends_at_the_limit() {
        for limit in [1, 30, 200, 5000].map(Duration::from_millis) {
            assert_eq!(over_after(limit, Duration::ZERO), limit);
        }
        assert_eq!(over_after(Duration::ZERO, Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn pauses_count_for_two_intervals_at_most() {
        let limit = Duration::from_secs(1);
        for pause in [2, 300, 86_400].map(Duration::from_secs) {
            // Of three looks one follows a pause and counts twice.
            let passed = over_after(limit, pause);
            assert!(passed > 2 * pause, "{passed:?}");
        }
    }

    #[test]
    fn wait_begins_again_after_data() {
        let mut patience = Patience::new(Duration::from_millis(100));
        let mut now = Instant::now();
        for _ in 0..50 {
            assert!(patience.left(now).is_some());
            now += Duration::from_millis(20);
            assert!(patience.left(now).is_some());
            patience.renew();
        }
    }
}
