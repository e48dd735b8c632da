//! Tests of the screen and its keys.

use super::*;
use crate::drawing;
use fxgraph_api::blocks::BlockSummary;
use fxgraph_api::events::{EventInfo, EventList};
use fxgraph_api::flowgraph::FlowgraphPage;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use std::path::Path;

/// Responses of `13_live.yaml` with `--set antennas=2`.
fn recorded() -> Look {
    #[derive(serde::Deserialize)]
    struct Recorded {
        flowgraph: FlowgraphPage,
        blocks: Vec<BlockSummary>,
        events: EventList,
    }
    let Recorded { flowgraph, blocks, events } =
        serde_json::from_str(include_str!("recorded.json")).unwrap();
    Look::of(flowgraph, blocks, events.events)
}

fn screen() -> Screen {
    Screen::new(recorded(), "http://127.0.0.1:8080", false, false)
}

fn drawn(screen: &mut Screen, columns: u16, rows: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal.draw(|frame| screen.draw(frame)).unwrap();
    drawing::text(terminal.backend().buffer())
}

fn press(screen: &mut Screen, code: KeyCode) -> bool {
    screen.press(KeyEvent::new(code, KeyModifiers::NONE))
}

#[test]
fn readme_shows_the_screen() {
    let look = drawn(&mut screen(), 80, 24);
    let readme =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/tutorials/watch_and_change.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    assert!(
        readme.contains(&format!("<!-- top -->\n```text\n{look}```\n")),
        "it should read:\n{look}"
    );
}

#[test]
fn screen_shows_blocks_help_and_errors() {
    let mut all = drawn(&mut screen(), 120, 30);
    let mut asked = screen();
    press(&mut asked, KeyCode::Char('?'));
    all += &drawn(&mut asked, 80, 24);
    let mut alone = screen();
    alone.take(Err("no flowgraph answers at http://127.0.0.1:8080: connection refused".to_owned()));
    all += &drawn(&mut alone, 80, 12);
    insta::assert_snapshot!(all);
}

#[test]
fn screen_fits_any_size() {
    for (columns, rows) in [(1, 1), (10, 3), (20, 5), (300, 2), (3, 100)] {
        let mut screen = screen();
        drawn(&mut screen, columns, rows);
        press(&mut screen, KeyCode::Char('?'));
        drawn(&mut screen, columns, rows);
    }
}

#[test]
fn keys_sort_blocks_and_filter_events() {
    let mut screen = screen();
    let name = |screen: &Screen| screen.selected().unwrap().0;
    assert_eq!(name(&screen), screen.look.rows[0].name);
    press(&mut screen, KeyCode::Char('s'));
    let busy = |screen: &Screen| {
        let selected = name(screen);
        let row = screen.look.rows.iter().find(|row| row.name == selected).unwrap();
        row.busy_fraction.unwrap()
    };
    let busiest = screen.look.rows.iter().filter_map(|row| row.busy_fraction).fold(0.0, f64::max);
    assert!(busy(&screen) >= busiest);
    press(&mut screen, KeyCode::End);
    drawn(&mut screen, 80, 24);
    press(&mut screen, KeyCode::Down);
    let last = name(&screen);
    assert!(busy(&screen) < busiest);

    let event = EventInfo {
        sequence: 9,
        part_sequence: None,
        unix_time_seconds: 0.0,
        block: Some(last.clone()),
        kind: "fault".to_owned(),
        text: "it failed on purpose".to_owned(),
    };
    screen.look.events.push(event);
    press(&mut screen, KeyCode::Enter);
    let shown = drawn(&mut screen, 80, 24);
    assert!(
        shown.contains(&format!("events of {last}")) && shown.contains("on purpose"),
        "{shown}"
    );
    assert!(!shown.contains("started"), "{shown}");
}

#[test]
fn replicas_are_folded_with_the_worst_below_and_share_their_events() {
    let mut screen = screen();
    let third = Row { name: "f[2].align".to_owned(), losses: 7, ..screen.look.rows[6].clone() };
    assert_eq!(third.kind, "pol_aligner");
    screen.look.rows.push(third);
    let folded = drawn(&mut screen, 80, 24);
    let rows: Vec<&str> = folded.lines().collect();
    let at = rows.iter().position(|row| row.starts_with("f[0..2].align ")).unwrap();
    assert!(rows[at].ends_with("0..7") && rows[at].contains("25.9..27.9"), "{folded}");
    assert!(rows[at + 1].starts_with("\u{2514} f[2].align ") && rows[at + 1].ends_with(" 7"));
    for _ in 0..2 {
        press(&mut screen, KeyCode::Down);
    }
    let (name, blocks) = screen.selected().unwrap();
    assert_eq!((name.as_str(), blocks.len()), ("f[0..2].align", 3));
    press(&mut screen, KeyCode::Char('a'));
    let all = drawn(&mut screen, 120, 40);
    assert!(all.contains("f[0].align") && !all.contains(".."), "{all}");
}

#[test]
fn paused_screen_does_not_change_and_keys_quit() {
    let mut screen = screen();
    press(&mut screen, KeyCode::Char(' '));
    let before = drawn(&mut screen, 80, 24);
    screen.take(Err("gone".to_owned()));
    assert_eq!(drawn(&mut screen, 80, 24), before);
    assert!(before.contains("paused; press space to resume"));
    press(&mut screen, KeyCode::Char(' '));
    screen.take(Err("gone".to_owned()));
    assert!(drawn(&mut screen, 80, 24).contains("gone"));
    assert!(press(&mut screen, KeyCode::Char('q')) && press(&mut screen, KeyCode::Esc));
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert!(screen.press(interrupt));
    assert!(!press(&mut screen, KeyCode::Char('c')));
}

#[test]
fn screen_has_colours_only_if_requested() {
    let coloured = |is_coloured: bool| {
        let mut screen = Screen::new(recorded(), "", false, is_coloured);
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let cells = terminal.backend().buffer().content().iter();
        cells.filter(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset).count()
    };
    assert!(coloured(true) > 0);
    assert_eq!(coloured(false), 0);
}
