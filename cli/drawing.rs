//! Drawings made of characters, on the full terminal screen or as text.

use ratatui::DefaultTerminal;
use ratatui::buffer::Buffer;
use std::io;

/// Takes over the terminal while `draw` runs, and restores it even after a panic.
pub fn on_terminal<T>(draw: impl FnOnce(&mut DefaultTerminal) -> io::Result<T>) -> io::Result<T> {
    // ratatui's panic hook restores the terminal before the panic message is printed.
    let mut terminal = ratatui::try_init()?;
    let drawn = draw(&mut terminal);
    ratatui::restore();
    drawn
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
