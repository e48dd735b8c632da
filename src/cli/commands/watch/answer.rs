//! Answers of the user on standard input.

use std::io::{self, IsTerminal};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread;

/// Answer of the user to a version.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    Swap,
    Keep,
    /// Standard input has ended.
    Ended,
}

/// Lines that wait to be asked for.
const MOST: usize = 1000;

/// Lines of standard input, which a thread reads until the program ends.
pub struct Answers(Receiver<String>);

impl Answers {
    pub fn start() -> Self {
        let (sender, lines) = sync_channel(MOST);
        thread::spawn(move || {
            io::stdin().lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Self(lines)
    }

    /// Drops what the user has typed before the question.
    pub fn forget(&self) {
        if io::stdin().is_terminal() {
            self.0.try_iter().for_each(drop);
        }
    }

    /// The next answer, if there is one.
    pub fn next(&self) -> Option<Answer> {
        match self.0.try_recv() {
            Ok(line) => Some(answer(&line)),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Answer::Ended),
        }
    }
}

fn answer(line: &str) -> Answer {
    match line.trim().to_ascii_lowercase().as_str() {
        "" | "y" | "yes" => Answer::Swap,
        _ => Answer::Keep,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enter_swaps_and_another_word_keeps() {
        assert_eq!(["", " y\r", "YES"].map(answer), [Answer::Swap, Answer::Swap, Answer::Swap]);
        assert_eq!(["n", "no", "swap?"].map(answer), [Answer::Keep, Answer::Keep, Answer::Keep]);
    }
}
