//! `fxgraph set`

use crate::assignment::Assignment;
use crate::client::{Connection, typed, with_help};
use crate::failure::Failure;
use crate::terminal::Terminal;
use crate::units;
use fxgraph_api::changes::LiveUpdate;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use ureq::http::Method;

/// Sets live parameters of a running flowgraph, all at the same timestamp or none
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples: fxgraph set 'f[0].postproc.gains=0.4' 'f[1].postproc.gains=0.4'\n          \
                  fxgraph set 'source.signals=cw(0.1, 1e8)' --at 8000000000"
)]
pub struct Set {
    /// Parameters and their new values, in YAML
    #[arg(required = true, value_name = "BLOCK.PARAMETER=VALUE", value_parser = Assignment::parse)]
    parameters: Vec<Assignment>,

    /// Timestamp from which the values apply, in ADC samples since the sync time (default: the earliest
    /// possible)
    #[arg(long, value_name = "TIMESTAMP")]
    at: Option<u64>,

    /// Writes the answer as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    connection: Connection,
}

impl Set {
    pub fn execute(self, terminal: &mut Terminal) -> Result<(), Failure> {
        let client = self.connection.client()?;
        let mut path = "/api/v1/blocks".to_owned();
        if let Some(at) = self.at {
            path += &format!("?at={at}");
        }
        let body = by_block(&self.parameters)?;
        let answer: Value = client.send(Method::PATCH, &path, Some(&body))?;
        if self.json {
            return terminal.json(&answer);
        }
        let made: LiveUpdate = typed(answer)?;
        if made.is_late {
            terminal.note("the requested timestamp had passed");
        }
        let from = match made.effective_timestamp {
            0 => "the first sample on".to_owned(),
            at => format!("timestamp {at}"),
        };
        // A timestamp that was given by mistake may be years ahead.
        let ahead = made.seconds_ahead.filter(|ahead| self.at.is_some() && *ahead > 0.0);
        let ahead = ahead.map_or(String::new(), |ahead| format!(", in {}", units::long(ahead)));
        let mut text = format!("effective from {from}, config {}{ahead}", made.config_id);
        for (block, parameters) in &made.understood {
            for (parameter, inputs) in parameters {
                pieces(&format!("{block}.{parameter}"), inputs, &mut text);
            }
        }
        terminal.results(&text)
    }
}

/// Adds a line for each piece of the delay models `inputs`.
fn pieces(name: &str, inputs: &Value, text: &mut String) {
    let of_inputs = inputs.as_array().into_iter().flatten().enumerate();
    let all = of_inputs.flat_map(|(input, pieces)| {
        pieces.as_array().into_iter().flatten().map(move |piece| (input, piece))
    });
    for (input, piece) in all {
        let number = |key: &str| piece[key].as_u64().unwrap_or_default();
        let utc = |key: &str| piece[key].as_str().unwrap_or("unknown").to_owned();
        let expired = match piece["has_expired"].as_bool() {
            Some(true) => {
                "; it is from before a restart of the sender, so its rates are not applied"
            }
            _ => "",
        };
        let _ = write!(
            text,
            "\n{name}[{input}]: piece of {} (timestamp {}), in force from {} ({}){expired}",
            utc("start_utc"),
            number("start_samples"),
            utc("in_force_from_utc"),
            number("in_force_from"),
        );
    }
}

/// `{"block": {"parameter": value}}`
fn by_block(parameters: &[Assignment]) -> Result<Value, Failure> {
    let mut blocks: Map<String, Value> = Map::new();
    for Assignment { name, value } in parameters {
        let Some((block, parameter)) = name.rsplit_once('.') else {
            let help = format!("give {name}.PARAMETER=VALUE; `fxgraph top` lists the blocks");
            let what = format!("expected BLOCK.PARAMETER, got `{name}`");
            return Err(Failure::failed(with_help(&what, [help.as_str()])));
        };
        let entry = blocks.entry(block).or_insert_with(|| json!({}));
        if entry.get(parameter).is_some() {
            return Err(Failure::failed(format!("`{name}` is given twice")));
        }
        entry[parameter] = value.clone();
    }
    Ok(blocks.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(words: &[&str]) -> Result<Value, Failure> {
        by_block(&words.iter().map(|word| Assignment::parse(word).unwrap()).collect::<Vec<_>>())
    }

    #[test]
    fn by_block_groups_parameters_and_rejects_duplicates() {
        let expected = json!({"f[0].pfb": {"a": 1, "b": [2]}, "x": {"a": "hello"}});
        assert_eq!(body(&["f[0].pfb.a=1", "x.a=hello", "f[0].pfb.b=[2]"]).unwrap(), expected);
        assert!(body(&["gain=1"]).is_err());
        assert!(body(&["x.a=1", "x.a=2"]).is_err());
    }
}
