//! Resources of the sources, under `toolcrib://source/` and their own address; without prefixes, under that alone.

use serde_json::value::RawValue;
use toolcrib::SourceId;
use toolcrib::call::Offering;
use toolcrib::core::json::Fields;
use toolcrib_mcp::RpcError;
use toolcrib_mcp::server::Request;

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
        let result = self.forward(&source, params, &request).await?;
        Ok(self.readdressed(&source, &result).unwrap_or(result))
    }

    pub(super) async fn subscribe(&self, request: Request) -> Answer {
        let (source, uri, params) = self.routed(&request).await?;
        let answer = self.forward(&source, params, &request).await?;
        self.visitors.watch(&request.peer, &shown_uri(self, &source, &uri));
        Ok(answer)
    }

    pub(super) async fn unsubscribe(&self, request: Request) -> Answer {
        let (source, uri, params) = self.routed(&request).await?;
        if self.visitors.unwatch(&request.peer, &shown_uri(self, &source, &uri)) {
            return self.forward(&source, params, &request).await;
        }
        super::answer::empty()
    }

    /// Where a request about a resource goes, the address there, and the parameters with it.
    async fn routed(&self, request: &Request) -> Result<(SourceId, String, Fields), RpcError> {
        let mut params = fields(request.params.as_deref())?;
        let uri = text(&params, "uri").ok_or_else(|| invalid("`uri` is missing"))?;
        let (source, own) = self.resource(&uri, request).await.ok_or_else(|| not_found(&uri))?;
        put_text(&mut params, "uri", &own);
        Ok((source, own, params))
    }

    /// The source of a resource and its address there. A result may hold an address without its prefix.
    pub(super) async fn resource(&self, uri: &str, request: &Request) -> Option<(SourceId, String)> {
        if let Some((source, own)) = uri.strip_prefix(SCHEME).and_then(|rest| rest.split_once('/')) {
            let source = self.registry.offering(Offering::Resources).into_iter().find(|id| id.as_str() == source)?;
            return Some((source, own.to_owned()));
        }
        Some((self.owner(&RESOURCES, uri, request).await?, uri.to_owned()))
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

fn not_found(uri: &str) -> RpcError {
    let uri = toolcrib::core::text::shown_short(uri, 200);
    let data = Some(raw(&serde_json::json!({ "uri": uri })));
    RpcError { code: RESOURCE_NOT_FOUND, message: format!("no resource at `{uri}`"), data }
}
