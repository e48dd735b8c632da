//! Statistics that follow the flowgraph, on a terminal.

use super::Top;
use super::look::{Look, Watch};
use super::screen::{Answer, Screen};
use crate::client::Client;
use crate::drawing;
use crate::failure::Failure;
use crate::signals::Signals;
use ratatui::crossterm::event::{self, Event};
use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

/// Time between two checks for keys and signals.
const TICK: Duration = Duration::from_millis(100);

/// Shows `look`, and then newer ones, until the user quits.
pub fn show(
    client: Client,
    watch: Watch,
    look: Look,
    options: &Top,
    is_coloured: bool,
) -> Result<(), Failure> {
    let signals = Signals::count()?;
    let screen = Screen::new(look, client.url(), options.all, is_coloured);
    let (_stop, stopped) = mpsc::channel();
    let (tell, looks) = mpsc::channel();
    let every = options.every;
    std::thread::spawn(move || ask(&client, watch, every, &stopped, &tell));
    Ok(drawing::on_terminal(|drawn| draw(screen, &looks, &signals, drawn))?)
}

/// Requests statistics repeatedly, until the other end of `stopped` is dropped.
fn ask(
    client: &Client,
    mut watch: Watch,
    every: Duration,
    stopped: &Receiver<()>,
    tell: &Sender<Answer>,
) {
    while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
        let answer = watch.look(client).map_err(|failure| failure.first_line());
        if tell.send(answer).is_err() {
            return;
        }
    }
}

/// Draws until the user quits.
fn draw(
    mut screen: Screen,
    looks: &Receiver<Answer>,
    signals: &Signals,
    drawn: &mut ratatui::DefaultTerminal,
) -> io::Result<()> {
    loop {
        drawn.draw(|frame| screen.draw(frame))?;
        // Waits one tick, or until a key is pressed.
        if event::poll(TICK)?
            && let Event::Key(key) = event::read()?
            && screen.press(key)
        {
            return Ok(());
        }
        looks.try_iter().for_each(|answer| screen.take(answer));
        if signals.look() > 0 {
            return Ok(());
        }
    }
}
