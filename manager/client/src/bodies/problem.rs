//! Problems as HTTP says them: problem details, RFC 9457.

use crate::types::{Owner, Problem, ProblemCode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The body of every answer that is no success, `application/problem+json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProblemBody {
    /// Where the manager says what the kind of problem means and what to do: `/v1/problems/` and
    /// its code.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind in a few words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// The kind, for programs.
    pub code: ProblemCode,
    /// What is wrong with which thing, and what to do.
    pub detail: String,
    /// The field, parameter or header that is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What stood in the way, one for each constraint.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// Who holds what was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// Whether it may pass by itself in a moment, so that the same request is worth repeating.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub transient: bool,
}

/// Seconds after which a request that met status 503 is worth sending again, as `Retry-After` says.
pub const RETRY_AFTER_S: u16 = 1;

/// Where the manager has a kind of problem.
fn address(code: ProblemCode) -> String {
    format!("/v1/problems/{code}")
}

/// A kind of problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProblemKind {
    /// Where this is, as `type` of a problem has it.
    #[serde(rename = "type")]
    pub kind: String,
    /// It, for programs.
    pub code: ProblemCode,
    /// It in a few words.
    pub title: String,
    /// The HTTP status that it comes with.
    pub status: u16,
    /// What it means.
    pub meaning: String,
    /// What to do about it.
    pub advice: String,
}

impl From<ProblemCode> for ProblemKind {
    fn from(code: ProblemCode) -> Self {
        Self {
            kind: address(code),
            code,
            title: code.title().to_owned(),
            status: code.status(),
            meaning: code.meaning().to_owned(),
            advice: code.advice().to_owned(),
        }
    }
}

impl From<Problem> for ProblemBody {
    fn from(problem: Problem) -> Self {
        let Problem { code, detail, field, reasons, owner, transient } = problem;
        let kind = address(code);
        let title = code.title().to_owned();
        let status = code.status();
        Self { kind, title, status, code, detail, field, reasons, owner, transient }
    }
}

impl From<ProblemBody> for Problem {
    fn from(body: ProblemBody) -> Self {
        let ProblemBody { code, detail, field, reasons, owner, transient, .. } = body;
        Self { code, detail, field, reasons, owner, transient }
    }
}

#[cfg(feature = "axum")]
impl axum::response::IntoResponse for Problem {
    fn into_response(self) -> axum::response::Response {
        use axum::http::{StatusCode, header};
        let status = StatusCode::from_u16(self.code.status()).expect("codes have HTTP statuses");
        let kind = [(header::CONTENT_TYPE, "application/problem+json")];
        let code = self.code;
        let later = status == StatusCode::SERVICE_UNAVAILABLE;
        let mut answer = (status, kind, axum::Json(ProblemBody::from(self))).into_response();
        if later {
            answer.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER_S.into());
        }
        // For whoever logs answers.
        answer.extensions_mut().insert(code);
        answer
    }
}
