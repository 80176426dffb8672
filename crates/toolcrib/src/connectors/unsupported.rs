//! Connector of a source whose kind this program was built without: everything fails with the name of the missing cargo
//! feature, so that such a source is listed and explained like any other that cannot be reached.

use async_trait::async_trait;
use serde_json::value::RawValue;
use toolcrib_connector::{CallFailure, Connector, Discovered, Discovery, SourceRequest, ToolCall, ToolResult};
use toolcrib_core::{Code, Error, Result};

/// Connector that names the cargo feature it needs.
#[derive(Debug)]
pub(super) struct UnsupportedConnector {
    /// Feature of the crate `toolcrib`.
    pub(super) feature: &'static str,
}

#[async_trait]
impl Connector for UnsupportedConnector {
    async fn discover(&self, _: Discovery) -> Result<Discovered> {
        Err(missing_feature_error(self.feature))
    }

    async fn call(&self, _: &ToolCall<'_>) -> Result<ToolResult, CallFailure> {
        Err(CallFailure::Rejected(missing_feature_error(self.feature)))
    }

    async fn request(&self, _: &SourceRequest<'_>) -> Result<Box<RawValue>, CallFailure> {
        Err(CallFailure::Rejected(missing_feature_error(self.feature)))
    }
}

/// Error for what needs a cargo feature of the crate `toolcrib` that this program was built without.
pub(super) fn missing_feature_error(feature: &str) -> Error {
    let message = format!("this program was built without support for this kind of source (feature `{feature}`)");
    Error::new(Code::ConfigInvalid, message)
}
