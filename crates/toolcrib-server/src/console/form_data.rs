//! Extractor for submitted forms.

use axum::extract::{FromRequest, Request};
use axum::response::{IntoResponse, Response};
use toolcrib::{Code, Error};

use crate::rest::{ApiError, read_body};

/// Names and values of a form, in their order. A name may occur more than once.
#[derive(Debug, Default)]
pub(super) struct FormData(Vec<(String, String)>);

impl FormData {
    /// Parses form-encoded text, such as a body or a query.
    pub(super) fn parse(text: &str) -> FormData {
        FormData(url::form_urlencoded::parse(text.as_bytes()).into_owned().collect())
    }

    /// Returns the first value of a field.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Returns all values of a field, such as those of checkboxes.
    pub(super) fn get_all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Returns the value of a field without surrounding space; `None` if nothing is left.
    pub(super) fn get_text(&self, name: &str) -> Option<&str> {
        self.get(name).map(str::trim).filter(|text| !text.is_empty())
    }

    /// Whether there is a field whose name begins with a prefix.
    pub(super) fn has_prefix(&self, prefix: &str) -> bool {
        self.0.iter().any(|(key, _)| key.starts_with(prefix))
    }
}

impl<S: Send + Sync> FromRequest<S> for FormData {
    type Rejection = Response;

    /// The body is limited in size and time like that of any other route.
    async fn from_request(request: Request, _state: &S) -> Result<FormData, Response> {
        let (parts, body) = request.into_parts();
        let bytes = read_body(&parts.headers, body).await?;
        // A form may have megabytes: too much for an async worker.
        let parsed = tokio::task::spawn_blocking(move || std::str::from_utf8(&bytes).map(FormData::parse)).await;
        let failed = |error| Error::new(Code::Internal, "reading the form failed").with_cause(error);
        let invalid = |_| Error::new(Code::BadRequest, "the form is not UTF-8");
        let form_data = parsed.map_err(failed).and_then(|parsed| parsed.map_err(invalid));
        form_data.map_err(|error| ApiError(error).into_response())
    }
}
