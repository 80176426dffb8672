//! What a form sent: names and values, in their order.

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};

use toolcrib::{Code, Error};

use crate::api::Fault;

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
    type Rejection = Fault;

    async fn from_request(request: Request, state: &S) -> Result<Fields, Fault> {
        let body = Bytes::from_request(request, state).await;
        let body =
            body.map_err(|_| Fault(Error::new(Code::BadRequest, "the form is too large, or did not arrive whole")))?;
        let text =
            std::str::from_utf8(&body).map_err(|_| Fault(Error::new(Code::BadRequest, "the form is not UTF-8")))?;
        Ok(Fields::parse(text))
    }
}
