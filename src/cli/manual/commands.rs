//! The page of the commands.

use clap::Command;
use std::fmt::Write as _;

/// Headings of options that several commands share: the first command has them in full.
const SHARED: [&str; 2] = ["Connection", "Serving"];

/// Help of all commands, without the options that every command has.
pub fn page() -> String {
    let mut program = crate::command_line().term_width(100);
    program.build();
    let mut page = format!(
        "# Commands\n\nEvery command of the program, as `fxgraph help COMMAND` shows it, without the options that all \
         commands have.\n\n```text\n{}\n```\n",
        program.render_help().to_string().trim_end()
    );
    let mut described = Vec::new();
    for command in inner(&program) {
        section("##", command, command.get_name(), &mut described, &mut page);
        for each in inner(command) {
            let name = format!("{} {}", command.get_name(), each.get_name());
            section("###", each, &name, &mut described, &mut page);
        }
    }
    page
}

/// The commands of a command, without `help`.
fn inner(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|command| command.get_name() != "help")
}

/// Adds the section of a command. `described` has the shared headings so far, with the command of each.
fn section(
    level: &str,
    command: &Command,
    name: &str,
    described: &mut Vec<(&'static str, String)>,
    page: &mut String,
) {
    let mut notes = String::new();
    let mut hidden = Vec::new();
    for heading in SHARED {
        if !command.get_arguments().any(|each| each.get_help_heading() == Some(heading)) {
            continue;
        }
        match described.iter().find(|(known, _)| *known == heading) {
            Some((_, first)) => {
                hidden.push(heading);
                let _ = write!(notes, "\n\n{heading}: as of `fxgraph {first}`");
            }
            None => described.push((heading, name.to_owned())),
        }
    }
    let mut own = command.clone().mut_args(|each| {
        let is_everywhere = each.is_global_set() || each.get_id() == "help";
        let is_described = each.get_help_heading().is_some_and(|heading| hidden.contains(&heading));
        if is_everywhere || is_described { each.hide(true) } else { each }
    });
    let has_explained_values = own.get_arguments().any(|each| {
        !each.is_hide_set()
            && each.get_possible_values().iter().any(|value| value.get_help().is_some())
    });
    // The short form has no empty lines between options, and no meanings of values.
    if let Some(about) = own.get_long_about().cloned() {
        own = own.about(about);
    }
    let help = if has_explained_values { own.render_long_help() } else { own.render_help() };
    let help = help.to_string();
    let _ = write!(page, "\n{level} {name}\n\n```text\n{}{notes}\n```\n", help.trim_end());
}
