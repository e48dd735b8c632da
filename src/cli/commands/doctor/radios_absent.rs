//! In place of the check of radios, in a program that cannot use them.

use super::Check;
use fxgraph::diagnostic::build_with;

/// Says that the program has no drivers of radios.
pub fn checks() -> Vec<Check> {
    let found = format!("this program was built without `sdr`; {}", build_with("sdr"));
    vec![Check::good("radios", found)]
}
