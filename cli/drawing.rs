//! What is drawn with characters: on a terminal of its own, or as text.

use ratatui::DefaultTerminal;
use ratatui::buffer::Buffer;
use std::io;

/// Takes the terminal for as long as `draw` runs, and gives it back also after a panic.
pub fn on_terminal<T>(draw: impl FnOnce(&mut DefaultTerminal) -> io::Result<T>) -> io::Result<T> {
    // Its hook gives the terminal back before a panic is told.
    let mut terminal = ratatui::try_init()?;
    let drawn = draw(&mut terminal);
    ratatui::restore();
    drawn
}

/// The characters of `buffer`, line by line, nothing behind the last one of each.
pub fn text(buffer: &Buffer) -> String {
    let mut text = String::new();
    for row in buffer.content().chunks(usize::from(buffer.area.width.max(1))) {
        let line: String = row.iter().map(ratatui::buffer::Cell::symbol).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
