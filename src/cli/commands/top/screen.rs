//! Screen of `fxgraph top`, and its keys.

use super::look::{Look, Row, kind_of, lines, percent};
use crate::client::events::{is_bad, time_of_day};
use crate::replicas::Line as Folded;
use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Alignment, Constraint, Layout, Margin, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, Borders, Cell, Clear, Paragraph, Table, TableState};

/// Result of a request: statistics of the flowgraph, or the error.
pub type Answer = Result<Look, String>;

/// Rows of events, with their heading.
const EVENTS: u16 = 7;
/// Least width of the column of kinds; without room for it there is none.
const KIND: u16 = 8;
const KEYS: [(&str, &str); 8] = [
    ("q, esc", "quit"),
    ("up, down, j, k", "select a block"),
    ("page up, page down, home, end", "select a block, faster"),
    ("s", "sort by the next column"),
    ("enter", "events of the selected block only, or of all"),
    ("a", "show all replicas, or fold them"),
    ("space, p", "pause or resume the display"),
    ("?", "show or hide this help"),
];

/// Sort order of the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Flowgraph,
    Busy,
    Frames,
    Bytes,
    Lost,
    Name,
}

impl Order {
    const ALL: [(Self, &'static str); 6] = [
        (Self::Flowgraph, "flowgraph"),
        (Self::Busy, "busy"),
        (Self::Frames, "frames/s"),
        (Self::Bytes, "GB/s"),
        (Self::Lost, "drops"),
        (Self::Name, "block"),
    ];

    fn position(self) -> usize {
        Self::ALL.iter().position(|(order, _)| *order == self).unwrap_or_default()
    }

    fn name(self) -> &'static str {
        Self::ALL[self.position()].1
    }

    fn next(self) -> Self {
        Self::ALL[(self.position() + 1) % Self::ALL.len()].0
    }

    /// Sorts `rows`, largest first.
    fn sort(self, rows: &mut [&Row]) {
        let by = |rows: &mut [&Row], figure: fn(&Row) -> f64| {
            rows.sort_by(|a, b| figure(b).total_cmp(&figure(a)));
        };
        match self {
            Self::Flowgraph => {}
            Self::Busy => by(rows, |row| {
                row.busy_fraction.unwrap_or(0.0).max(row.device_busy_fraction.unwrap_or(0.0))
            }),
            Self::Frames => by(rows, |row| row.frames_per_second.unwrap_or(0.0)),
            Self::Bytes => by(rows, |row| row.bytes_per_second.unwrap_or(0.0)),
            Self::Lost => by(rows, |row| row.losses as f64),
            Self::Name => rows.sort_by(|a, b| a.name.cmp(&b.name)),
        }
    }
}

/// State of the screen, with the user's choices.
#[allow(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub struct Screen {
    look: Look,
    /// Error of the last request.
    silence: Option<String>,
    url: String,
    is_coloured: bool,
    order: Order,
    table: TableState,
    is_held: bool,
    /// Blocks whose events are shown, with the name of their row; `None` for all blocks.
    events_of: Option<(String, Vec<String>)>,
    /// Whether every replica has a row.
    all: bool,
    has_help: bool,
    /// Number of rows for blocks.
    page: u16,
}

impl Screen {
    pub fn new(look: Look, url: &str, all: bool, is_coloured: bool) -> Self {
        Self {
            look,
            silence: None,
            url: url.to_owned(),
            is_coloured,
            order: Order::Flowgraph,
            table: TableState::new().with_selected(0),
            is_held: false,
            events_of: None,
            all,
            has_help: false,
            page: 1,
        }
    }

    /// Takes the result of a request.
    pub fn take(&mut self, answer: Answer) {
        if self.is_held {
            return;
        }
        match answer {
            Ok(look) => (self.look, self.silence) = (look, None),
            Err(why) => self.silence = Some(why),
        }
    }

    /// Handles a key; returns `true` to quit.
    pub fn press(&mut self, key: KeyEvent) -> bool {
        if key.kind == KeyEventKind::Release {
            return false;
        }
        let has_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if self.has_help {
            self.has_help = false;
            return key.code == KeyCode::Char('c') && has_control;
        }
        match key.code {
            KeyCode::Char('c') if has_control => return true,
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Up | KeyCode::Char('k') => self.table.scroll_up_by(1),
            KeyCode::Down | KeyCode::Char('j') => self.table.scroll_down_by(1),
            KeyCode::PageUp => self.table.scroll_up_by(self.page),
            KeyCode::PageDown => self.table.scroll_down_by(self.page),
            KeyCode::Home => self.table.select_first(),
            KeyCode::End => self.table.select_last(),
            KeyCode::Char('s') => self.order = self.order.next(),
            KeyCode::Enter => {
                let selected = self.selected();
                self.events_of = if self.events_of.is_some() { None } else { selected };
            }
            KeyCode::Char(' ' | 'p') => self.is_held = !self.is_held,
            KeyCode::Char('a') => self.all = !self.all,
            KeyCode::Char('?' | 'h') => self.has_help = true,
            _ => {}
        }
        // Keeps the selection within the rows.
        let last = self.lines().len().saturating_sub(1);
        self.table.select(self.table.selected().map(|row| row.min(last)));
        false
    }

    fn colour(&self, colour: Color) -> Style {
        if self.is_coloured { Style::new().fg(colour) } else { Style::new() }
    }

    /// Style of a state's name.
    fn state(&self, state: &str) -> Style {
        match state {
            "running" => self.colour(Color::Green),
            "failed" => self.colour(Color::Red).add_modifier(Modifier::BOLD),
            _ => self.colour(Color::Yellow),
        }
    }

    pub fn draw(&mut self, frame: &mut Frame<'_>) {
        let events = if frame.area().height >= 16 { EVENTS } else { 0 };
        let parts = Layout::vertical([
            Constraint::Length(4),
            Constraint::Min(2),
            Constraint::Length(events),
            Constraint::Length(1),
        ]);
        let [head, blocks, events, foot] = parts.areas(frame.area());
        self.draw_head(frame, head);
        self.draw_blocks(frame, blocks);
        self.draw_events(frame, events);
        self.draw_foot(frame, foot);
        if self.has_help {
            draw_help(frame);
        }
    }

    fn draw_head(&self, frame: &mut Frame<'_>, area: Rect) {
        let flowgraph = &self.look.flowgraph;
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let first = Line::from(vec![
            Span::styled(flowgraph.name.clone(), bold),
            Span::raw("  "),
            Span::styled(flowgraph.state.clone(), self.state(&flowgraph.state)),
            Span::raw(format!(" {}  config {}", self.look.elapsed(), flowgraph.config_id)),
        ]);
        let count = |count: u64, what: &str| {
            let style = if count > 0 { self.state("failed") } else { Style::new() };
            Span::styled(format!("   {count} {what}"), style)
        };
        let second = Line::from(vec![
            Span::raw(format!("{} of real time", percent(self.look.real_time_fraction()))),
            count(self.look.losses(), "drops"),
            count(self.look.faults(), "faults"),
        ]);
        let lag = self.look.lag();
        let between = if lag.is_some() { "   " } else { "" };
        let style = if self.look.lags() { self.state("failed") } else { Style::new() };
        let third = Line::from(vec![
            Span::styled(lag.unwrap_or_default(), style),
            Span::raw(between),
            Span::raw(self.look.limit().unwrap_or_default()),
        ]);
        let trouble = self.look.trouble().unwrap_or_default();
        let fourth = Line::styled(trouble, self.state("failed"));
        frame.render_widget(Paragraph::new(vec![first, second, third, fourth]), area);
        let place = Paragraph::new(self.url.as_str()).alignment(Alignment::Right);
        let room = Rect { y: area.y + 1, height: 1, ..area };
        frame.render_widget(place, room);
    }

    /// Rows of the table.
    fn lines(&self) -> Vec<Folded<'_, Row>> {
        let mut rows: Vec<&Row> = self.look.rows.iter().collect();
        self.order.sort(&mut rows);
        lines(&rows, self.all, self.look.has_gpu())
    }

    fn draw_blocks(&mut self, frame: &mut Frame<'_>, area: Rect) {
        let lines = self.lines();
        let headings: Vec<&str> = self.look.figures().collect();
        let right = |text: String| Cell::new(Text::from(text).alignment(Alignment::Right));
        let width = |text: &str| text.chars().count() as u16;
        let names = lines.iter().map(|line| width(&line.name)).max().unwrap_or(0).max(5);
        let kinds = lines.iter().map(|line| width(&kind_of(line))).max().unwrap_or(0).max(4);
        let columns = headings.iter().enumerate().map(|(column, heading)| {
            let widest = lines.iter().map(|line| width(&line.cells[column])).max().unwrap_or(0);
            widest.max(width(heading))
        });
        let columns: Vec<u16> = columns.collect();
        let gaps = columns.len() as u16 + 1;
        let others = names + columns.iter().sum::<u16>() + gaps;
        let spacing = if others + kinds + gaps <= area.width { 2 } else { 1 };
        let has_kind = others + kinds.min(KIND) <= area.width;
        let mut widths = vec![Constraint::Length(names)];
        widths.extend(has_kind.then_some(Constraint::Fill(1)));
        widths.extend(columns.into_iter().map(Constraint::Length));
        let drawn: Vec<_> = lines
            .iter()
            .map(|line| {
                let style = match line.entry.state.as_str() {
                    _ if line.entry.faults > 0 => self.state("failed"),
                    "running" => Style::new(),
                    state => self.state(state),
                };
                let kind = has_kind.then(|| Cell::new(kind_of(line)));
                let cells = std::iter::once(Cell::new(line.name.clone())).chain(kind);
                let cells = cells.chain(line.cells.iter().cloned().map(right));
                ratatui::widgets::Row::new(cells).style(style)
            })
            .collect();
        let kind = has_kind.then(|| Cell::new("kind"));
        let head = std::iter::once(Cell::new("block")).chain(kind);
        let head = head.chain(headings.iter().map(|name| right((*name).to_owned())));
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let table = Table::new(drawn, widths)
            .header(ratatui::widgets::Row::new(head).style(bold))
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
            .column_spacing(spacing);
        let all = lines.len();
        let has_more = all + 1 > usize::from(area.height);
        let [area, below] =
            Layout::vertical([Constraint::Min(1), Constraint::Length(u16::from(has_more))])
                .areas(area);
        self.page = area.height.saturating_sub(1).max(1);
        frame.render_stateful_widget(table, area, &mut self.table);
        if has_more {
            let first = self.table.offset();
            let last = (first + usize::from(self.page)).min(all);
            let more = format!("rows {} to {last} of {all}; up and down scroll", first + 1);
            let dim = Style::new().add_modifier(Modifier::DIM);
            frame.render_widget(Paragraph::new(more).style(dim), below);
        }
    }

    /// Name of the selected row, and its blocks.
    fn selected(&self) -> Option<(String, Vec<String>)> {
        let lines = self.lines();
        let line = lines.get(self.table.selected()?)?;
        let name = if line.is_worst { line.entry.name.clone() } else { line.name.clone() };
        Some((name, line.members.iter().map(|row| row.name.clone()).collect()))
    }

    fn draw_events(&self, frame: &mut Frame<'_>, area: Rect) {
        let only = self.events_of.as_ref();
        let title = only.map_or("events".to_owned(), |(name, _)| format!("events of {name}"));
        let block = Block::new().borders(Borders::TOP).title(format!("{title} "));
        let wanted = self.look.events.iter().filter(|event| {
            only.is_none_or(|(_, blocks)| {
                event.block.as_ref().is_some_and(|block| blocks.contains(block))
            })
        });
        let newest = wanted.rev().take(usize::from(area.height.saturating_sub(1)));
        let lines: Vec<Line<'_>> = newest
            .map(|event| {
                let style = if is_bad(event) { self.state("failed") } else { Style::new() };
                let block = event.block.as_deref().unwrap_or_default();
                Line::from(vec![
                    Span::raw(format!("{}  ", time_of_day(event))),
                    Span::styled(event.kind.clone(), style),
                    Span::raw(format!(" {block}  {}", event.text)),
                ])
            })
            .collect();
        frame.render_widget(Paragraph::new(lines).block(block), area);
    }

    fn draw_foot(&self, frame: &mut Frame<'_>, area: Rect) {
        let line = match &self.silence {
            Some(why) => Line::styled(why.clone(), self.state("failed")),
            None if self.is_held => Line::raw("paused; press space to resume"),
            None => Line::raw(format!(
                "q quit   up/down select   s sort: {}   enter events   p pause   ? help",
                self.order.name()
            )),
        };
        let style = Style::new().add_modifier(Modifier::DIM);
        frame.render_widget(Paragraph::new(line).style(style), area);
    }
}

fn draw_help(frame: &mut Frame<'_>) {
    let lines: Vec<Line<'_>> =
        KEYS.iter().map(|(keys, does)| Line::raw(format!("{keys:<30}  {does}"))).collect();
    let width = lines.iter().map(Line::width).max().unwrap_or(0) as u16 + 4;
    let area = frame.area();
    let [area] = Layout::vertical([Constraint::Length(KEYS.len() as u16 + 2)])
        .flex(ratatui::layout::Flex::Center)
        .areas(area);
    let [area] = Layout::horizontal([Constraint::Length(width)])
        .flex(ratatui::layout::Flex::Center)
        .areas(area);
    frame.render_widget(Clear, area);
    frame.render_widget(Block::bordered().title(" keys "), area);
    frame.render_widget(Paragraph::new(lines), area.inner(Margin::new(2, 1)));
}

#[cfg(test)]
#[path = "screen_tests.rs"]
mod tests;
