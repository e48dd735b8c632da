//! Views as plots.

use super::plot::Plot;
use crate::drawing;
use crate::failure::Failure;
use crate::signals::Signals;
use crate::terminal::Terminal;
use fxgraph_api::views::Message;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{self, Event, KeyCode};
use ratatui::layout::Rect;
use std::io;
use std::sync::mpsc;
use std::time::Duration;

/// Columns of a plot that is not drawn on a terminal.
const COLUMNS: u16 = 80;
/// Time between two checks for keys and signals.
const TICK: Duration = Duration::from_millis(50);

/// Writes the plot of the view in `message`.
pub fn print(name: &str, message: &str, terminal: &Terminal) -> Result<(), Failure> {
    let plot = Plot::new(name, read(message)?, false);
    let columns = terminal_size::terminal_size_of(io::stdout());
    let columns = columns.map_or(COLUMNS, |(terminal_size::Width(columns), _)| columns);
    let area = Rect::new(0, 0, columns, plot.rows());
    let mut buffer = Buffer::empty(area);
    plot.draw(area, &mut buffer);
    terminal.results(&drawing::text(&buffer))
}

/// Plots views on the terminal until the user quits or the stream of `messages` ends.
pub fn follow(
    name: &str,
    mut messages: impl Iterator<Item = Result<String, Failure>> + Send + 'static,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let Some(first) = messages.next() else { return Ok(()) };
    let plot = Plot::new(name, read(&first?)?, terminal.coloured_results);
    let (tell, told) = mpsc::channel();
    // The thread ends with the stream, or when the receiver is gone.
    std::thread::spawn(move || {
        for message in messages {
            if tell.send(message.and_then(|message| read(&message))).is_err() {
                return;
            }
        }
    });
    let signals = Signals::count()?;
    drawing::on_terminal(|drawn| Ok(watch(plot, &told, &signals, drawn)))?
}

fn read(message: &str) -> Result<Message, Failure> {
    serde_json::from_str(message).map_err(|_| Failure::failed("unexpected view of a frame"))
}

/// Draws until the user quits or the stream ends.
fn watch(
    mut plot: Plot,
    told: &mpsc::Receiver<Result<Message, Failure>>,
    signals: &Signals,
    drawn: &mut ratatui::DefaultTerminal,
) -> Result<(), Failure> {
    loop {
        drawn.draw(|frame| plot.draw(frame.area(), frame.buffer_mut()))?;
        if event::poll(TICK)?
            && let Event::Key(key) = event::read()?
        {
            let is_end = matches!(key.code, KeyCode::Char('q' | 'c') | KeyCode::Esc);
            if is_end {
                return Ok(());
            }
        }
        loop {
            match told.try_recv() {
                Ok(view) => plot.take(view?),
                Err(mpsc::TryRecvError::Empty) => break,
                Err(mpsc::TryRecvError::Disconnected) => return Ok(()),
            }
        }
        if signals.look() > 0 {
            return Ok(());
        }
    }
}
