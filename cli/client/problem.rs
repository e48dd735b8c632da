//! Problem documents (RFC 9457) as the errors that they are.

use super::with_help;
use crate::failure::Failure;
use serde::Deserialize;
use ureq::http::StatusCode;

/// Why a request was refused.
#[derive(Deserialize)]
struct Problem {
    detail: String,
    #[serde(default)]
    help: Vec<String>,
    /// All that is wrong with a change.
    #[serde(default)]
    diagnostics: Vec<Diagnostic>,
}

#[derive(Deserialize)]
struct Diagnostic {
    code: String,
    message: String,
    #[serde(default)]
    help: Vec<String>,
}

/// What an answer of this status that is no success says.
pub(super) fn failure(status: StatusCode, body: &[u8]) -> Failure {
    let Ok(problem) = serde_json::from_slice::<Problem>(body) else {
        let help = "`--connect` leads to a server that is no flowgraph of this version";
        return Failure::failed(with_help(&format!("the answer is {status}"), [help]));
    };
    if status == StatusCode::UNAUTHORIZED {
        let help = "give `--token-file FILE`, the file that `fxgraph run` was given";
        return Failure::failed(with_help(&problem.detail, [help]));
    }
    if problem.diagnostics.is_empty() {
        let help = problem.help.iter().map(String::as_str);
        return Failure::failed(with_help(&problem.detail, help));
    }
    let told = problem.diagnostics.iter().map(|one| {
        let help = one.help.iter().chain(&problem.help).map(String::as_str);
        with_help(&format!("{} ({})", one.message, one.code), help)
    });
    Failure::Failed(told.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn said(status: u16, body: serde_json::Value) -> Vec<String> {
        let status = StatusCode::from_u16(status).unwrap();
        match failure(status, body.to_string().as_bytes()) {
            Failure::Failed(said) => said,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_diagnostic_of_a_refused_change_is_told_with_its_help() {
        let one = json!({"code": "E0106", "message": "`pfb` has no parameter `tap`",
            "place": {"line": 1}, "help": ["did you mean `taps`?"]});
        let two = json!({"code": "E0107", "message": "`taps` is too small", "help": []});
        let body = json!({"detail": "x", "help": [], "diagnostics": [one, two]});
        let expected = [
            "`pfb` has no parameter `tap` (E0106)\n   = help: did you mean `taps`?",
            "`taps` is too small (E0107)",
        ];
        assert_eq!(said(422, body), expected);
    }

    #[test]
    fn what_is_no_problem_document_is_still_told() {
        assert!(said(502, json!("<html>"))[0].starts_with("the answer is 502 Bad Gateway"));
    }
}
