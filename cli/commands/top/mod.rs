//! `fxgraph top`
//!
//! # Layout
//! - [`look`]: statistics of a flowgraph at one time
//! - [`screen`]: drawing on a terminal, and keys

mod look;
mod screen;

use crate::client::{Client, Connection};
use crate::drawing;
use crate::failure::Failure;
use crate::signals::Signals;
use crate::terminal::Terminal;
use crate::units;
use look::Watch;
use ratatui::crossterm::event::{self, Event};
use screen::{Answer, Screen};
use std::io::{self, IsTerminal};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

/// Shows live statistics of the blocks of a running flowgraph
#[derive(Debug, clap::Args)]
pub struct Top {
    /// Time between two updates, like 1s or 200ms
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, default_value = "1s")]
    every: Duration,

    /// Prints one table and ends
    #[arg(long)]
    once: bool,

    /// Shows every replica. By default more than 8 blocks are folded: `f[0..63].pfb` has the minimum and the maximum of
    /// its replicas, and the worst one below it
    #[arg(long)]
    all: bool,

    /// Writes JSON
    #[arg(long, requires = "once")]
    json: bool,

    #[command(flatten)]
    connection: Connection,
}

/// Time between two checks for keys and signals.
const TICK: Duration = Duration::from_millis(100);

impl Top {
    pub fn execute(self, terminal: &mut Terminal) -> Result<(), Failure> {
        let client = self.connection.client()?;
        let mut watch = Watch::default();
        let look = watch.look(&client)?;
        if self.json {
            return terminal.json(&look.as_json());
        }
        if self.once {
            return terminal.results(&look.as_text(self.all, terminal));
        }
        if !(io::stdout().is_terminal() && io::stdin().is_terminal()) {
            return Err(Failure::failed("`top` needs a terminal; `--once` prints one table"));
        }
        let signals = Signals::count()?;
        let screen = Screen::new(look, client.url(), self.all, terminal.coloured_results);
        let (_stop, stopped) = mpsc::channel();
        let (tell, looks) = mpsc::channel();
        let every = self.every;
        std::thread::spawn(move || ask(&client, watch, every, &stopped, &tell));
        Ok(drawing::on_terminal(|drawn| show(screen, &looks, &signals, drawn))?)
    }
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
fn show(
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
