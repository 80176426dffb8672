//! Resources of the sources, under `toolcrib://source/` and their own address; without prefixes, under that alone.

use serde_json::value::RawValue;
use toolcrib::SourceId;
use toolcrib::call::Offering;
use toolcrib::core::json::Fields;
use toolcrib_mcp::server::Request;
use toolcrib_mcp::{Era, RpcError};

use super::Surface;
use super::answer::{Answer, invalid, raw};
use super::prompts::fields;
use super::shelf::{Item, Shelf, put_text, text};

const RESOURCES: Shelf =
    Shelf { offering: Offering::Resources, method: "resources/list", items: "resources", key: "uri" };
const TEMPLATES: Shelf = Shelf {
    offering: Offering::Resources,
    method: "resources/templates/list",
    items: "resourceTemplates",
    key: "uriTemplate",
};
const SCHEME: &str = "toolcrib://";
/// The protocol's own code until 2026.
const RESOURCE_NOT_FOUND: i64 = -32002;

impl Surface {
    pub(super) async fn resources_list(&self, request: &Request) -> Answer {
        let items = self.gather(&RESOURCES, request).await;
        self.shelved(&RESOURCES, self.addressed(&RESOURCES, items), request)
    }

    pub(super) async fn templates_list(&self, request: &Request) -> Answer {
        let items = self.gather(&TEMPLATES, request).await;
        self.shelved(&TEMPLATES, self.addressed(&TEMPLATES, items), request)
    }

    fn addressed(&self, shelf: &Shelf, mut items: Vec<Item>) -> Vec<Item> {
        for item in &mut items {
            put_text(&mut item.fields, shelf.key, &shown_uri(self, &item.source, &item.own));
            if let Some(name) = text(&item.fields, "name").filter(|_| self.prefixed()) {
                put_text(&mut item.fields, "name", &format!("{}__{name}", item.source));
            }
        }
        items
    }

    pub(super) async fn resources_read(&self, request: Request) -> Answer {
        let (source, _, params) = self.routed(&request).await?;
        let result = self.forward(&source, params, &request).await.map_err(|error| in_its_words(error, &request))?;
        let result = self.readdressed(&source, &result).unwrap_or(result);
        Ok(with_hints(&result, &request).unwrap_or(result))
    }

    pub(super) async fn subscribe(&self, request: Request) -> Answer {
        let (source, uri, params) = self.routed(&request).await?;
        let uri = shown_uri(self, &source, &uri);
        // Before the source is asked, which may have something to say at once.
        let new = self.visitors.watch(&request.peer, &uri);
        let answer = self.forward(&source, params, &request).await;
        if new && answer.is_err() {
            self.visitors.unwatch(&request.peer, &uri);
        }
        answer
    }

    pub(super) async fn unsubscribe(&self, request: Request) -> Answer {
        let (source, uri, params) = self.routed(&request).await?;
        self.visitors.unwatch(&request.peer, &shown_uri(self, &source, &uri));
        self.forward(&source, params, &request).await
    }

    /// Where a request about a resource goes, the address there, and the parameters with it.
    async fn routed(&self, request: &Request) -> Result<(SourceId, String, Fields), RpcError> {
        let mut params = fields(request.params.as_deref())?;
        let uri = text(&params, "uri").ok_or_else(|| invalid("`uri` is missing"))?;
        let found = self.resource(&uri, request).await?;
        let (source, own) = found.ok_or_else(|| in_its_words(not_found(&uri), request))?;
        put_text(&mut params, "uri", &own);
        Ok((source, own, params))
    }

    /// The source of a resource and its address there. A result may hold an address without its prefix.
    pub(super) async fn resource(&self, uri: &str, request: &Request) -> Result<Option<(SourceId, String)>, RpcError> {
        if let Some((source, own)) = uri.strip_prefix(SCHEME).and_then(|rest| rest.split_once('/')) {
            let source = self.registry.offering(Offering::Resources).into_iter().find(|id| id.as_str() == source);
            return Ok(source.map(|source| (source, own.to_owned())));
        }
        let owner = self.owner(&RESOURCES, uri, request, |source| format!("{SCHEME}{source}/{uri}")).await?;
        Ok(owner.map(|source| (source, uri.to_owned())))
    }

    /// The contents under the address they were asked for by.
    fn readdressed(&self, source: &SourceId, result: &RawValue) -> Option<Box<RawValue>> {
        if !self.prefixed() {
            return None;
        }
        let mut result = Fields::parse(result)?;
        let contents: Vec<Box<RawValue>> = serde_json::from_str(result.get("contents")?.get()).ok()?;
        let contents = contents.iter().map(|content| {
            let mut content = Fields::parse(content)?;
            let uri = text(&content, "uri")?;
            put_text(&mut content, "uri", &shown_uri(self, source, &uri));
            Some(content)
        });
        let contents: Option<Vec<Fields>> = contents.collect();
        result.put("contents", raw(&contents?));
        Some(raw(&result))
    }
}

pub(super) fn shown_uri(surface: &Surface, source: &SourceId, own: &str) -> String {
    if surface.prefixed() { format!("{SCHEME}{source}/{own}") } else { own.to_owned() }
}

/// The newest version wants to know how long a text may be kept; a source of an older one does not say.
fn with_hints(result: &RawValue, request: &Request) -> Option<Box<RawValue>> {
    let mut fields = Fields::parse(result).filter(|_| request.peer.era == Era::Modern)?;
    if fields.get("contents").is_none() || fields.get("ttlMs").is_some() {
        return None;
    }
    fields.put("ttlMs", raw(&0));
    fields.put("cacheScope", raw(&"private"));
    Some(raw(&fields))
}

/// The newest version has no code of its own for a resource that is not there.
fn in_its_words(error: RpcError, request: &Request) -> RpcError {
    match (request.peer.era, error.code) {
        (Era::Modern, RESOURCE_NOT_FOUND) => RpcError { code: RpcError::INVALID_PARAMS, ..error },
        _ => error,
    }
}

fn not_found(uri: &str) -> RpcError {
    let uri = toolcrib::core::text::shown_short(uri, 200);
    let data = Some(raw(&serde_json::json!({ "uri": uri })));
    RpcError { code: RESOURCE_NOT_FOUND, message: format!("no resource at `{uri}`"), data }
}
