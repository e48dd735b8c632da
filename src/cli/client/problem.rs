//! Problem documents (RFC 9457) as errors of the terminal.

use super::with_help;
use crate::failure::Failure;
use fxgraph_api::problem::Problem;
use serde_json::Value;
use ureq::http::StatusCode;

/// Converts an error response to a failure.
pub(super) fn failure(status: StatusCode, body: &[u8]) -> Failure {
    let Ok(problem) = serde_json::from_slice::<Problem>(body) else {
        let help = "check `--connect`: the server is not fxgraph, or of another version";
        return Failure::failed(with_help(
            &format!("the server responded with status {status}"),
            [help],
        ));
    };
    if status == StatusCode::UNAUTHORIZED {
        let help = "give the token file of `fxgraph run` with `--token-file FILE`";
        return Failure::failed(with_help(&problem.detail, [help]));
    }
    if problem.diagnostics.is_empty() {
        let help = problem.help.iter().map(String::as_str);
        return Failure::failed(with_help(&problem.detail, help));
    }
    let told = problem.diagnostics.iter().map(|one| {
        let text = |key: &str| one[key].as_str().unwrap_or_default();
        let own = one["help"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let help = own.chain(problem.help.iter().map(String::as_str));
        with_help(&format!("{} ({})", text("message"), text("code")), help)
    });
    Failure::Failed(told.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn said(status: u16, body: Value) -> Vec<String> {
        let status = StatusCode::from_u16(status).unwrap();
        match failure(status, body.to_string().as_bytes()) {
            Failure::Failed(said) => said,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn failure_lists_every_diagnostic_with_its_help() {
        let one = json!({"code": "E0106", "message": "`pfb` has no parameter `tap`",
            "place": {"line": 1}, "help": ["did you mean `taps`?"]});
        let two = json!({"code": "E0107", "message": "`taps` is too small", "help": []});
        let body = json!({"title": "Unprocessable Entity", "status": 422, "detail": "x", "help": [],
            "diagnostics": [one, two]});
        let expected = [
            "`pfb` has no parameter `tap` (E0106)\n   = help: did you mean `taps`?",
            "`taps` is too small (E0107)",
        ];
        assert_eq!(said(422, body), expected);
    }

    #[test]
    fn failure_without_problem_document_names_the_status() {
        assert!(
            said(502, json!("<html>"))[0]
                .starts_with("the server responded with status 502 Bad Gateway")
        );
    }
}
