//! What a form sent: names and values, in their order.

use axum::extract::{FromRequest, Request};
use axum::response::{IntoResponse, Response};
use toolcrib::{Code, Error};

use crate::api::{Fault, whole};

#[derive(Debug, Default)]
pub(super) struct Fields(Vec<(String, String)>);

impl Fields {
    pub(super) fn parse(text: &str) -> Fields {
        Fields(url::form_urlencoded::parse(text.as_bytes()).into_owned().collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

impl<S: Send + Sync> FromRequest<S> for Fields {
    type Rejection = Response;

    async fn from_request(request: Request, _state: &S) -> Result<Fields, Response> {
        let (parts, body) = request.into_parts();
        let bytes = whole(&parts.headers, body).await?;
        let wrong = |_| Fault(Error::new(Code::BadRequest, "the form is not UTF-8")).into_response();
        std::str::from_utf8(&bytes).map(Fields::parse).map_err(wrong)
    }
}
