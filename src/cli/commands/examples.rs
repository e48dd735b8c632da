//! `fxgraph examples`

use crate::examples::{self, EXAMPLES};
use crate::failure::Failure;
use crate::table::{Align, Table};
use crate::terminal::Terminal;
use serde_json::json;

/// Lists the example flowgraphs inside the program, or writes one
#[derive(Debug, clap::Args)]
pub struct Examples {
    /// The example to write to standard output, like 02_f_engine
    name: Option<String>,

    /// Writes the list as JSON
    #[arg(long, conflicts_with = "name")]
    json: bool,
}

impl Examples {
    pub fn execute(self, terminal: &mut Terminal) -> Result<(), Failure> {
        if let Some(name) = &self.name {
            let name = examples::name_in(name.as_ref()).unwrap_or(name);
            let example = examples::find(name).map_err(Failure::failed)?;
            return terminal.results(example.text);
        }
        if self.json {
            let entry = |e: &examples::Example| json!({"example": e.name, "summary": e.summary()});
            return terminal.json(&EXAMPLES.iter().map(entry).collect());
        }
        let columns = [("example", Align::Left), ("description", Align::Left)];
        let mut table = Table::new(terminal.coloured_results, &columns);
        for example in EXAMPLES {
            table.row([example.name.to_owned(), example.summary()]);
        }
        terminal.results(&table.finish())?;
        let first = EXAMPLES.first().map_or("", |example| example.name);
        terminal.note(&format!(
            "run one: fxgraph run example:{first}\n\
             copy one: fxgraph generate flowgraph my_flowgraph --from example:{first}"
        ));
        Ok(())
    }
}
