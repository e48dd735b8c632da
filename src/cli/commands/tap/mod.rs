//! `fxgraph tap`
//!
//! # Layout
//! - [`figures`]: statistics of a frame
//! - `plotted`: views as plots, which `plot` draws

mod figures;
#[cfg(feature = "tui")]
mod plot;
#[cfg_attr(not(feature = "tui"), path = "plotted_absent.rs")]
mod plotted;

use crate::assignment::Assignment;
use crate::client::output::Output;
use crate::client::{Client, Connection, in_path, problem_of};
use crate::failure::Failure;
use crate::replicas::{groups, is_folded};
use crate::signals::Signals;
use crate::table::{Align, Table};
use crate::terminal::Terminal;
use crate::units;
use figures::Figures;
use fxgraph::Dtype;
use fxgraph_api::flowgraph::FlowgraphPage;
use fxgraph_api::ports::Carries;
use fxgraph_api::views::ViewList;
use serde_json::json;
use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

/// Shows the data of an output: statistics, a plot, or a frame as .npy
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples: fxgraph tap 'digitiser[0].pol0' --plot --follow\n          \
                  fxgraph tap x --view visibility --select baseline=2\n          \
                  fxgraph tap 'f[0].pfb' --save frame.npy")]
#[allow(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct Tap {
    /// Output to show; the port is optional if the block has one output. Without it, lists all outputs that blocks read
    #[arg(value_name = "BLOCK[.PORT]")]
    output: Option<String>,

    /// Saves a frame as .npy
    #[arg(long, value_name = "FILE.npy", requires = "output", conflicts_with_all = ["plot", "view", "follow"])]
    save: Option<PathBuf>,

    /// Plots the output's first view
    #[arg(long, requires = "output")]
    plot: bool,

    /// Plots this view, like `spectrum` or `band_pass`; an unknown name lists the available views
    #[arg(long, value_name = "NAME", requires = "output")]
    view: Option<String>,

    /// Index on an axis that the view does not show in full; may be given several times
    #[arg(long, value_name = "AXIS=INDEX", value_parser = Assignment::parse, requires = "output")]
    select: Vec<Assignment>,

    /// Continues with newer frames
    #[arg(long, short, requires = "output")]
    follow: bool,

    /// Time between two frames
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, default_value = "500ms")]
    every: Duration,

    /// Largest frame to accept, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20)]
    max_bytes: u64,

    /// Lists the outputs of every replica; by default more than 8 outputs are folded, like `f[0..63].pfb.output`
    #[arg(long, conflicts_with = "output")]
    all: bool,

    /// Writes JSON, one object per frame
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    connection: Connection,
}

impl Tap {
    pub fn execute(self, terminal: &mut Terminal) -> Result<(), Failure> {
        let client = self.connection.client()?;
        let Some(output) = &self.output else { return self.list(&client, terminal) };
        let output = Output::find(&client, output)?;
        if let Some(view) = self.wanted_view(&client, &output)? {
            let path = format!("{}/views/{view}", output.path());
            return self.look(&client, &path, &output.to_string(), terminal);
        }
        if !self.select.is_empty() {
            return Err(Failure::failed("`--select` needs `--plot` or `--view`"));
        }
        let signals = Signals::count()?;
        loop {
            self.snapshot(&client, &output, terminal)?;
            if !self.follow || signals.wait(self.every) {
                return Ok(());
            }
        }
    }

    /// Lists the outputs of the flowgraph, in the order of its blocks.
    fn list(&self, client: &Client, terminal: &Terminal) -> Result<(), Failure> {
        let FlowgraphPage { graph, .. } = client.get("/api/v1/flowgraph")?;
        let mut outputs: Vec<(String, String)> = Vec::new();
        for edge in graph.edges {
            let name = format!("{}.{}", edge.from, edge.output);
            if outputs.iter().all(|(known, _)| *known != name) {
                outputs.push((name, edge.carries));
            }
        }
        if self.json {
            let entry = |(name, carries)| json!({"output": name, "carries": carries});
            return terminal.json(&outputs.into_iter().map(entry).collect());
        }
        let columns = [("output", Align::Left), ("frames", Align::Left)];
        let mut table = Table::new(terminal.coloured_results, &columns);
        let is_folded = is_folded(outputs.len(), self.all);
        for output in groups(&outputs, is_folded, |(name, carries)| (name, carries.clone())) {
            table.row([output.name, output.members[0].1.clone()]);
        }
        terminal.results(&table.finish())
    }

    /// Returns the name of the requested view, if any.
    fn wanted_view(&self, client: &Client, output: &Output) -> Result<Option<String>, Failure> {
        if let Some(view) = &self.view {
            return Ok(Some(in_path(view)));
        }
        if !self.plot {
            return Ok(None);
        }
        let ViewList { views } = client.get(&format!("{}/views", output.path()))?;
        match views.into_iter().next() {
            Some(first) => Ok(Some(first.name)),
            None => Err(Failure::failed(format!("`{output}` has no views to plot"))),
        }
    }

    /// Shows the statistics of a frame, and saves it with `--save`.
    fn snapshot(
        &self,
        client: &Client,
        output: &Output,
        terminal: &Terminal,
    ) -> Result<(), Failure> {
        if let Some(file) =
            self.save.as_ref().filter(|file| file.extension() != Some("npy".as_ref()))
        {
            let message =
                format!("the name of an array must end in `.npy`, got `{}`", file.display());
            return Err(Failure::failed(message));
        }
        let path = format!("{}/snapshot?format=npy&max_bytes={}", output.path(), self.max_bytes);
        let (headers, array) = client.bytes(&path)?;
        if let Some(file) = &self.save {
            std::fs::write(file, &array).map_err(|error| {
                Failure::because(&format!("cannot write `{}`", file.display()), &error)
            })?;
        }
        let header = |name: &str| headers.get(name)?.to_str().ok()?.parse::<u64>().ok();
        let (sequence, timestamp) = (header("fxgraph-sequence"), header("fxgraph-timestamp"));
        let figures = figures(&array, &output.carries)
            .ok_or_else(|| Failure::failed(format!("unexpected frame of `{output}`")))?;
        if self.json {
            return terminal.results(
                &json!({
                    "output": output.to_string(),
                    "sequence": sequence,
                    "timestamp": timestamp,
                    "carries": output.carries.text,
                    "figures": figures.as_json(),
                    "saved": self.save,
                })
                .to_string(),
            );
        }
        let number = |number: Option<u64>| number.map_or("-".to_owned(), |n| n.to_string());
        let mut text = format!(
            "{output}  frame {}  timestamp {}\n{}\n{}\n",
            number(sequence),
            number(timestamp),
            output.carries.text,
            figures.as_text()
        );
        if let Some(file) = &self.save {
            let _ = writeln!(text, "saved in {}", file.display());
        }
        terminal.results(&text)
    }

    /// Shows the view at `path`, once or repeatedly.
    fn look(
        &self,
        client: &Client,
        path: &str,
        name: &str,
        terminal: &Terminal,
    ) -> Result<(), Failure> {
        let mut query = String::new();
        for Assignment { name, value } in &self.select {
            let _ = write!(query, "&{}={}", in_path(name), in_path(&value.to_string()));
        }
        if !self.follow {
            let once = client.get(&format!("{path}?once=true{query}"))?;
            return self.show(name, once, terminal);
        }
        let every = self.every.as_secs_f64();
        let sent = client.follow(&format!("{path}?every_seconds={every}{query}"))?;
        let mut messages = sent.map(|sent| {
            let sent =
                sent.map_err(|error| Failure::because("the stream of frames broke", &error))?;
            if sent.event == "problem" { Err(problem_of(&sent.data)) } else { Ok(sent.data) }
        });
        if self.json || !(io::stdout().is_terminal() && io::stdin().is_terminal()) {
            return messages.try_for_each(|message| {
                let message = serde_json::from_str(&message?).unwrap_or_default();
                self.show(name, message, terminal)
            });
        }
        plotted::follow(name, messages, terminal)
    }

    /// Writes a view.
    fn show(
        &self,
        name: &str,
        message: serde_json::Value,
        terminal: &Terminal,
    ) -> Result<(), Failure> {
        if self.json {
            return terminal.results(&message.to_string());
        }
        plotted::print(name, &message.to_string(), terminal)
    }
}

/// Statistics of the frame in `array` (.npy); `None` if it does not match `carries`.
fn figures(array: &[u8], carries: &Carries) -> Option<Figures> {
    let dtype: Dtype = carries.dtype.parse().ok()?;
    let elements = carries.axes.iter().map(|axis| axis.len).product();
    // The payload is at the end of the file.
    let payload = array.get(array.len().checked_sub(dtype.bytes(elements))?..)?;
    Figures::of(payload, dtype, elements)
}
