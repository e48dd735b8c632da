//! Plots of views, drawn with characters.

use crate::units;
use fxgraph_api::views::{DrawnAs, Grid, Message, Series};
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Block, Chart, Dataset, GraphType, Paragraph, Widget};

/// Number of stored views, for plots against time.
const HISTORY: usize = 600;
/// Shades from the minimum to the maximum, without colours.
const SHADES: [&str; 5] = [" ", "░", "▒", "▓", "█"];
/// First grey of a terminal with 256 colours, and number of greys.
const GREYS: (u8, u8) = (232, 24);

/// The newest view, and the history for plots against time.
pub struct Plot {
    title: String,
    is_coloured: bool,
    view: Message,
    /// Timestamp, and one value per series.
    history: Vec<(u64, Vec<Option<f64>>)>,
}

impl Plot {
    pub fn new(output: &str, view: Message, is_coloured: bool) -> Self {
        let mut plot =
            Self { title: output.to_owned(), is_coloured, view: view.clone(), history: Vec::new() };
        plot.take(view);
        plot
    }

    /// Adds a newer view.
    pub fn take(&mut self, view: Message) {
        if view.kind == DrawnAs::Points {
            let values =
                view.drawing.series.iter().map(|series| series.values.first().copied().flatten());
            self.history.push((view.timestamp, values.collect()));
            let old = self.history.len().saturating_sub(HISTORY);
            self.history.drain(..old);
        }
        self.view = view;
    }

    /// Suitable height in rows.
    pub fn rows(&self) -> u16 {
        match self.view.kind {
            DrawnAs::Points if self.history.len() < 2 => 1 + self.view.drawing.series.len() as u16,
            DrawnAs::Points => 1 + 19 * self.units().len().clamp(1, 2) as u16,
            DrawnAs::Sky => 2 + self.view.drawing.series.len() as u16,
            DrawnAs::Lines => 1 + 16 * self.view.drawing.series.len().clamp(1, 2) as u16,
            DrawnAs::Matrix => {
                let rows =
                    self.view.drawing.rows.as_ref().map_or(1, |rows| rows.len).min(32) as u16;
                1 + (rows + 1) * self.view.drawing.series.len().max(1) as u16
            }
        }
    }

    pub fn draw(&self, area: Rect, buffer: &mut Buffer) {
        let [head, body] =
            Layout::vertical([Constraint::Length(1), Constraint::Min(1)]).areas(area);
        self.head().render(head, buffer);
        if self.view.kind == DrawnAs::Points {
            return self.points(body, buffer);
        }
        if self.view.kind == DrawnAs::Sky {
            return Paragraph::new(self.sky()).render(body, buffer);
        }
        let parts = Layout::vertical(self.view.drawing.series.iter().map(|_| Constraint::Fill(1)))
            .split(body);
        for (series, part) in self.view.drawing.series.iter().zip(parts.iter()) {
            match (self.view.kind, &self.view.drawing.x) {
                (DrawnAs::Lines, Some(x)) => self.line(series, x, *part, buffer),
                _ => self.matrix(series, *part, buffer),
            }
        }
    }

    fn head(&self) -> Line<'_> {
        let view = &self.view;
        let mut text = format!("  {}", view.view);
        for selected in &view.selected {
            text += &format!("  {} {}", selected.axis, selected.name);
        }
        text += &format!("  frame {}  timestamp {}", view.frame, view.timestamp);
        if let Some(valid) = view.valid.filter(|valid| *valid < 1.0) {
            text += &format!("  {:.1} % valid", valid * 100.0);
        }
        for (name, figure) in &view.drawing.figures {
            let value = figure.value.map_or("-".to_owned(), units::three_digits);
            text += &format!("  {name} {value} {}", figure.unit);
        }
        Line::from(vec![
            Span::styled(self.title.as_str(), Style::new().add_modifier(Modifier::BOLD)),
            Span::raw(text),
        ])
    }

    fn style(&self, number: usize) -> Style {
        // Distinct for colour-blind eyes, too.
        let colours = [Color::Cyan, Color::Yellow, Color::Blue, Color::Magenta, Color::White];
        if self.is_coloured {
            Style::new().fg(colours[number % colours.len()])
        } else {
            Style::new()
        }
    }

    /// Draws the values of a series against `x`.
    fn line(&self, series: &Series, x: &Grid, area: Rect, buffer: &mut Buffer) {
        let places = (0..).map(|n| x.start + f64::from(n) * x.step);
        let data: Vec<(f64, f64)> =
            places.zip(&series.values).filter_map(|(x, value)| Some((x, (*value)?))).collect();
        let end = x.start + x.step * series.values.len().saturating_sub(1) as f64;
        let name = format!("{} [{}]", series.name, series.unit);
        let line = Drawn { name: &name, data: &data, style: self.style(0) };
        let across = (x.start, end, format!("{} [{}]", x.name, x.unit));
        chart(&[line], across, &series.unit, area, buffer);
    }

    /// Draws one value per series against time, in one chart per unit: decibels and degrees need different axes.
    fn points(&self, area: Rect, buffer: &mut Buffer) {
        let series = &self.view.drawing.series;
        let (Some((first, _)), Some((last, _))) = (self.history.first(), self.history.last())
        else {
            return;
        };
        if first == last {
            let first = |series: &Series| series.values.first().copied().flatten();
            let values: Vec<f64> =
                series.iter().map(|series| first(series).unwrap_or(f64::NAN)).collect();
            let lines = series.iter().zip(units::spanned(&values)).map(|(series, value)| {
                Line::raw(format!("{}  {value} {}", series.name, series.unit))
            });
            return Paragraph::new(lines.collect::<Vec<_>>()).render(area, buffer);
        }
        let data: Vec<Vec<(f64, f64)>> = (0..series.len())
            .map(|n| {
                let values = self.history.iter();
                let values = values.filter_map(|(time, values)| {
                    Some((*time as f64, values.get(n).copied().flatten()?))
                });
                values.collect()
            })
            .collect();
        let units = self.units();
        let parts = Layout::vertical(units.iter().map(|_| Constraint::Fill(1))).split(area);
        for (unit, part) in units.iter().zip(parts.iter()) {
            let of_unit = data.iter().enumerate().filter(|(n, _)| series[*n].unit == *unit);
            let lines: Vec<Drawn<'_>> = of_unit
                .map(|(n, data)| Drawn { name: &series[n].name, data, style: self.style(n) })
                .collect();
            let across = (*first as f64, *last as f64, "timestamp".to_owned());
            chart(&lines, across, unit, *part, buffer);
        }
    }

    /// A table of satellites.
    fn sky(&self) -> Vec<Line<'_>> {
        let head = format!(
            "{:<12}{:>10}{:>11}{:>12}{:>13}  used",
            "satellite", "azimuth", "elevation", "C/N0 dB Hz", "residual m"
        );
        let row = |series: &Series| {
            let value = |at: usize| series.values.get(at).copied().flatten();
            let text = |at| value(at).map_or("-".to_owned(), |value| format!("{value:.1}"));
            let is_used = if value(4) == Some(1.0) { "yes" } else { "no" };
            let [azimuth, elevation, cn0] = [0, 1, 2].map(text);
            let residual = value(3).map_or("-".to_owned(), |value| format!("{value:.2}"));
            Line::raw(format!(
                "{:<12}{azimuth:>10}{elevation:>11}{cn0:>12}{residual:>13}  {is_used}",
                series.name
            ))
        };
        let rows = self.view.drawing.series.iter().map(row);
        std::iter::once(Line::raw(head)).chain(rows).collect()
    }

    /// Units of the series, each once.
    fn units(&self) -> Vec<&str> {
        let mut units: Vec<&str> = Vec::new();
        for series in &self.view.drawing.series {
            if !units.contains(&series.unit.as_str()) {
                units.push(&series.unit);
            }
        }
        units
    }

    /// Draws the values of a series as a matrix, dark to bright.
    fn matrix(&self, series: &Series, area: Rect, buffer: &mut Buffer) {
        let (Some(rows), Some(columns)) = (&self.view.drawing.rows, &self.view.drawing.columns)
        else {
            return;
        };
        let (low, high) = bounds(series.values.iter().flatten().copied(), &series.unit);
        let range = units::spanned(&[low, high]).join(" to ");
        let head = format!(
            "{} [{}], {range}; {} down, {} across",
            series.name, series.unit, rows.name, columns.name
        );
        buffer.set_stringn(area.x, area.y, head, usize::from(area.width), Style::new());
        let height = usize::from(area.height.saturating_sub(1)).min(rows.len);
        // Characters are about twice as high as wide.
        let wide = if usize::from(area.width) >= 2 * columns.len { 2 } else { 1 };
        let width = usize::from(area.width).min(wide * columns.len);
        for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
            let (row, column) = (y * rows.len / height, x * columns.len / width);
            let value = series.values.get(row * columns.len + column).copied().flatten();
            let Some(value) = value else { continue };
            let share = (value - low) / (high - low);
            let cell = &mut buffer[(area.x + x as u16, area.y + 1 + y as u16)];
            if self.is_coloured {
                let grey = GREYS.0 + (share * f64::from(GREYS.1 - 1)).round() as u8;
                cell.set_bg(Color::Indexed(grey));
            } else {
                let shade = (share * (SHADES.len() - 1) as f64).round() as usize;
                cell.set_symbol(SHADES[shade.min(SHADES.len() - 1)]);
            }
        }
    }
}

/// A line of a chart.
struct Drawn<'a> {
    name: &'a str,
    data: &'a [(f64, f64)],
    style: Style,
}

/// Draws lines of one unit over an axis, given as start, end and name.
fn chart(
    lines: &[Drawn<'_>],
    (from, to, across): (f64, f64, String),
    unit: &str,
    area: Rect,
    buffer: &mut Buffer,
) {
    let (low, high) = bounds(lines.iter().flat_map(|line| line.data.iter().map(|(_, y)| *y)), unit);
    // Phases wrap, so lines would jump.
    let graph = if unit == "deg" { GraphType::Scatter } else { GraphType::Line };
    let sets = lines.iter().map(|line| {
        Dataset::default()
            .name(line.name)
            .data(line.data)
            .marker(Marker::Braille)
            .graph_type(graph)
            .style(line.style)
    });
    let labels = |low: f64, high: f64| units::axis(&[low, f64::midpoint(low, high), high]);
    let title = lines.iter().map(|line| line.name).collect::<Vec<_>>().join(", ");
    let below = labels(from, to);
    let width_of = |label: usize| below[label].chars().count() as u16;
    let (middle, last) = (width_of(1), width_of(2));
    Chart::new(sets.collect())
        .block(Block::new().title(title))
        .legend_position(None)
        .x_axis(Axis::default().bounds([from, to]).labels(below))
        .y_axis(Axis::default().bounds([low, high]).labels(labels(low, high)))
        .render(area, buffer);
    // The chart's own title of the axis would cover data: it goes between the labels below the axis.
    let width = across.chars().count() as u16;
    let at = area.right().saturating_sub(last + width + 2);
    if area.height > 0 && at > area.x + area.width / 2 + middle + 2 {
        buffer.set_string(at, area.bottom() - 1, across, Style::new());
    }
}

/// Range of an axis for these values.
fn bounds(values: impl Iterator<Item = f64>, unit: &str) -> (f64, f64) {
    if unit == "deg" {
        return (-180.0, 180.0);
    }
    let (low, high) = values
        .filter(|value| value.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    match high - low {
        span if span > 0.0 && span.is_finite() => (low, high),
        // A single value, or none.
        _ if low.is_finite() => (low - 1.0, low + 1.0),
        _ => (0.0, 1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawing;
    use serde_json::{Value, json};

    fn view(kind: &str, more: Value) -> Message {
        let mut message = json!({"timestamp": 4096, "time_seconds": 1.0, "frame": 7, "valid": 0.5,
            "view": "test", "kind": kind, "selected": [{"axis": "pol", "index": 1, "name": "1"}]});
        message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(message).unwrap()
    }

    fn drawn(plot: &Plot, columns: u16) -> String {
        let area = Rect::new(0, 0, columns, plot.rows());
        let mut buffer = Buffer::empty(area);
        plot.draw(area, &mut buffer);
        drawing::text(&buffer)
    }

    fn spectrum() -> Message {
        let power = (0..64).map(|n| if n == 48 { Some(0.0) } else { Some(-60.0) });
        let values: Vec<Option<f64>> = power.chain([None]).collect();
        view(
            "lines",
            json!({
                "x": {"name": "frequency", "unit": "Hz", "start": 0.0, "step": 1e6, "len": 65},
                "series": [{"name": "power", "unit": "dBFS", "values": values}],
                "figures": {"rms": {"value": -12.0, "unit": "dBFS"}},
            }),
        )
    }

    fn matrix() -> Message {
        let values: Vec<f64> = (0..16).map(f64::from).collect();
        view(
            "matrix",
            json!({
                "rows": {"name": "antenna", "len": 4}, "columns": {"name": "antenna", "len": 4},
                "series": [{"name": "amplitude", "unit": "dB", "values": values}],
            }),
        )
    }

    #[test]
    fn sky_is_a_table_of_satellites() {
        let series = json!({"series": [
            {"name": "G05", "unit": "", "values": [301.5, 61.25, 47.0, -0.0123, 1.0]},
            {"name": "E11", "unit": "", "values": [null, null, 33.0, null, 0.0]},
        ]});
        let text = drawn(&Plot::new("position.satellites", view("sky", series), false), 80);
        let rows: Vec<Vec<&str>> =
            text.lines().skip(2).map(|row| row.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["G05", "301.5", "61.2", "47.0", "-0.01", "yes"]);
        assert_eq!(rows[1], ["E11", "-", "-", "33.0", "-", "no"]);
    }

    fn points(timestamp: u64, phase: f64) -> Message {
        let series = json!({"series": [{"name": "0-1", "unit": "deg", "values": [phase]}]});
        Message { timestamp, ..view("points", series) }
    }

    #[test]
    fn plot_draws_every_kind_of_view() {
        let mut all = drawn(&Plot::new("source.pol0", spectrum(), false), 80);
        all += &drawn(&Plot::new("x.output", matrix(), false), 80);
        let mut fringe = Plot::new("x.output", points(0, 0.0), false);
        all += &drawn(&fringe, 80);
        (1..20).for_each(|n| fringe.take(points(n * 1000, n as f64 * 18.0 - 180.0)));
        all += &drawn(&fringe, 80);
        insta::assert_snapshot!(all);
    }

    #[test]
    fn plot_of_a_tone_peaks_at_its_frequency() {
        let text = drawn(&Plot::new("source.pol0", spectrum(), false), 80);
        let rows: Vec<&str> = text.lines().collect();
        // The peak reaches the top row, the rest is at the bottom.
        let top = rows[2].chars().position(|c| ('\u{2801}'..='\u{28ff}').contains(&c)).unwrap();
        let axis = rows.iter().find(|row| row.contains('└')).unwrap();
        let left = axis.chars().position(|c| c == '└').unwrap();
        let share = (top - left) as f64 / (axis.chars().count() - left) as f64;
        assert!((share - 48.0 / 64.0).abs() < 0.03, "{text}");
    }

    #[test]
    fn plot_handles_tiny_areas_and_missing_values() {
        let odd = json!({
            "x": {"name": "x", "unit": "", "start": 0.0, "step": 0.0, "len": 2},
            "series": [{"name": "a", "unit": "", "values": [null, null]}, {"name": "b", "unit": "", "values": []}],
        });
        let empty = json!({"rows": {"name": "r", "len": 0}, "columns": {"name": "c", "len": 0},
            "series": [{"name": "a", "unit": "", "values": []}]});
        for view in
            [view("lines", odd), view("matrix", empty), spectrum(), matrix(), points(1, 2.0)]
        {
            let plot = Plot::new("a.b", view, true);
            for (columns, rows) in [(1, 1), (2, 9), (80, 1), (80, 3), (300, 100)] {
                let area = Rect::new(0, 0, columns, rows);
                plot.draw(area, &mut Buffer::empty(area));
            }
        }
    }
}
