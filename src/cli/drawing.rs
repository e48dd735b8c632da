//! Drawings made of characters, on the full terminal screen or as text.

use crate::failure::INTERRUPTED;
use crate::signals::{end_program, is_end};
use ratatui::DefaultTerminal;
use ratatui::buffer::Buffer;
use rustix::event::{PollFd, PollFlags, poll};
use std::time::Duration;
use std::{io, thread};

/// Time between two tries to look at the terminal.
const LOOK: Duration = Duration::from_millis(100);

/// Takes over the terminal while `draw` runs, and restores it even after a panic.
pub fn on_terminal<T>(draw: impl FnOnce(&mut DefaultTerminal) -> io::Result<T>) -> io::Result<T> {
    thread::spawn(end_with_terminal);
    // ratatui's panic hook restores the terminal before the panic message is printed.
    let mut terminal = ratatui::try_init()?;
    let drawn = draw(&mut terminal);
    ratatui::restore();
    drawn
}

/// Ends the program when its terminal is closed. The thread that draws cannot: crossterm reads a closed terminal again
/// and again without returning.
fn end_with_terminal() {
    let terminal = io::stdin();
    loop {
        // Without events to wait for, `poll` returns at a hangup or an error only.
        let mut polled = [PollFd::new(&terminal, PollFlags::empty())];
        match poll(&mut polled, None) {
            Ok(_) if is_end(polled[0].revents()) => {
                end_program(INTERRUPTED, "the terminal is closed")
            }
            Ok(_) => {}
            Err(_) => thread::sleep(LOOK),
        }
    }
}

/// Returns the characters of `buffer` line by line, without trailing spaces.
pub fn text(buffer: &Buffer) -> String {
    let mut text = String::new();
    for row in buffer.content().chunks(usize::from(buffer.area.width.max(1))) {
        let line: String = row.iter().map(ratatui::buffer::Cell::symbol).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
