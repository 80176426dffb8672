//! Prompts of the sources, under `source__prompt`, and completions for their arguments.

use serde_json::value::RawValue;
use toolcrib::call::Offering;
use toolcrib::core::json::Fields;
use toolcrib::core::tool::{Asked, SEPARATOR, parse_name};
use toolcrib::{CallOptions, SourceId};
use toolcrib_mcp::RpcError;
use toolcrib_mcp::server::Request;

use super::Surface;
use super::answer::{Answer, invalid, raw, rpc_error};
use super::call::{asking, relay};
use super::shelf::{Shelf, put_text, text, unknown, within};

const PROMPTS: Shelf = Shelf { offering: Offering::Prompts, method: "prompts/list", items: "prompts", key: "name" };

impl Surface {
    pub(super) async fn prompts_list(&self, request: &Request) -> Answer {
        let mut prompts = self.gather(&PROMPTS, request).await;
        if self.prefixed() {
            for prompt in &mut prompts {
                let name = format!("{}{SEPARATOR}{}", prompt.source, prompt.own);
                put_text(&mut prompt.fields, "name", &name);
            }
        }
        self.shelved(&PROMPTS, prompts, request)
    }

    pub(super) async fn prompts_get(&self, request: Request) -> Answer {
        let mut params = fields(request.params.as_deref())?;
        let name = text(&params, "name").ok_or_else(|| invalid("`name` is missing"))?;
        let found = self.prompt(&name, &request).await?;
        let (source, own) = found.ok_or_else(|| rpc_error(&unknown("prompt", &name)))?;
        put_text(&mut params, "name", &own);
        self.forward(&source, params, &request).await
    }

    pub(super) async fn complete(&self, request: Request) -> Answer {
        let mut params = fields(request.params.as_deref())?;
        let mut reference = params.get("ref").and_then(Fields::parse).ok_or_else(|| invalid("`ref` is missing"))?;
        let source = match (text(&reference, "name"), text(&reference, "uri")) {
            (Some(name), _) => self.prompt(&name, &request).await?.map(|found| (found, "name")),
            (None, Some(uri)) => self.resource(&uri, &request).await?.map(|found| (found, "uri")),
            (None, None) => None,
        };
        let ((source, own), key) = source.ok_or_else(|| invalid("`ref` names no prompt and no resource known here"))?;
        put_text(&mut reference, key, &own);
        params.put("ref", raw(&reference));
        self.forward(&source, params, &request).await
    }

    /// The source of a prompt and its name there.
    async fn prompt(&self, name: &str, request: &Request) -> Result<Option<(SourceId, String)>, RpcError> {
        if let Ok(Asked::Qualified { source, tool }) = parse_name(name) {
            let source = self.registry.offering(Offering::Prompts).into_iter().find(|id| id.as_str() == source);
            if let Some(source) = source {
                return Ok(Some((source, tool.to_owned())));
            }
        }
        let owner = self.owner(&PROMPTS, name, request, |source| format!("{source}{SEPARATOR}{name}")).await?;
        Ok(owner.map(|source| (source, name.to_owned())))
    }

    pub(super) async fn forward(&self, source: &SourceId, params: Fields, request: &Request) -> Answer {
        let params = Some(raw(&params));
        // The answers to what was asked before are among the parameters.
        let options =
            CallOptions { back: Some(asking(request.outlet.clone())), relay: relay(request), ..within(request, None) };
        let asked = self.registry.ask(source, &request.method, params, options).await;
        asked.map_err(|error| rpc_error(&error))
    }
}

/// The fields of a request's parameters.
pub(super) fn fields(params: Option<&RawValue>) -> Result<Fields, RpcError> {
    let parsed = params.map_or_else(|| Some(Fields::default()), Fields::parse);
    parsed.ok_or_else(|| invalid("the parameters are no object"))
}
