//! The commands, one file each.

pub mod apply;
mod array;
mod bench;
mod compare;
mod completions;
mod conformance;
mod dashboard;
mod deploy;
mod doctor;
mod events;
mod examples;
mod explain;
pub mod fleet;
mod generate;
mod graph;
mod health;
mod kernels;
mod list;
mod manual;
mod plan;
mod record;
pub mod run;
mod schema;
mod set;
mod shadow;
mod stop;
mod swap;
mod takeover;
mod tap;
mod test;
mod top;
mod tune;
mod validate;
mod watch;

use crate::failure::Failure;
use crate::terminal::Terminal;

/// A command with its options.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    Run(run::Run),
    Validate(validate::Validate),
    Test(test::Test),
    Plan(plan::Plan),
    Graph(graph::Graph),
    Top(top::Top),
    Health(health::Health),
    Tap(tap::Tap),
    Set(set::Set),
    Swap(swap::Swap),
    Apply(apply::Apply),
    Shadow(shadow::Shadow),
    Watch(watch::Watch),
    Takeover(takeover::Takeover),
    Record(record::Record),
    Compare(compare::Compare),
    Events(events::Events),
    Stop(stop::Stop),
    Abort(stop::Abort),
    Deploy(deploy::Deploy),
    Array(array::Array),
    Fleet(fleet::Fleet),
    Dashboard(dashboard::Dashboard),
    Examples(examples::Examples),
    List(list::List),
    Schema(schema::Schema),
    Explain(explain::Explain),
    Manual(manual::Manual),
    Generate(generate::Generate),
    Bench(bench::Bench),
    Tune(tune::Tune),
    Kernels(kernels::Kernels),
    Conformance(conformance::Conformance),
    Doctor(doctor::Doctor),
    Completions(completions::Completions),
}

impl Command {
    /// Executes the command.
    pub fn execute(self, terminal: &mut Terminal) -> Result<(), Failure> {
        match self {
            Self::Run(command) => command.execute(terminal),
            Self::Validate(command) => command.execute(terminal),
            Self::Test(command) => command.execute(terminal),
            Self::Plan(command) => command.execute(terminal),
            Self::Graph(command) => command.execute(terminal),
            Self::Top(command) => command.execute(terminal),
            Self::Health(command) => command.execute(terminal),
            Self::Tap(command) => command.execute(terminal),
            Self::Set(command) => command.execute(terminal),
            Self::Takeover(command) => command.execute(terminal),
            Self::Swap(command) => command.execute(terminal),
            Self::Apply(command) => command.execute(terminal),
            Self::Shadow(command) => command.execute(terminal),
            Self::Watch(command) => command.execute(terminal),
            Self::Record(command) => command.execute(terminal),
            Self::Compare(command) => command.execute(terminal),
            Self::Events(command) => command.execute(terminal),
            Self::Stop(command) => command.execute(terminal),
            Self::Abort(command) => command.execute(terminal),
            Self::Deploy(command) => command.execute(terminal),
            Self::Array(command) => command.execute(terminal),
            Self::Fleet(command) => command.execute(terminal),
            Self::Dashboard(command) => command.execute(terminal),
            Self::Examples(command) => command.execute(terminal),
            Self::List(command) => command.execute(terminal),
            Self::Schema(command) => command.execute(terminal),
            Self::Explain(command) => command.execute(terminal),
            Self::Manual(command) => command.execute(terminal),
            Self::Generate(command) => command.execute(terminal),
            Self::Bench(command) => command.execute(terminal),
            Self::Tune(command) => command.execute(terminal),
            Self::Kernels(command) => command.execute(terminal),
            Self::Conformance(command) => command.execute(terminal),
            Self::Doctor(command) => command.execute(terminal),
            Self::Completions(command) => command.execute(terminal),
        }
    }
}
