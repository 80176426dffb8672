//! What sources keep besides tools: prompts, resources and templates, asked for when a client lists them.
//! Names and addresses carry their source, as those of tools do.

use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use serde_json::json;
use serde_json::value::RawValue;
use toolcrib::call::{ClientId, Offering};
use toolcrib::core::json::{Fields, string};
use toolcrib::core::text::{is_plain, shown, shown_short};
use toolcrib::{CallOptions, Error, Result, SourceId};
use toolcrib_mcp::RpcError;
use toolcrib_mcp::server::Request;

use super::Surface;
use super::answer::{Answer, invalid, raw};

/// One kind of thing that sources list.
pub(super) struct Shelf {
    pub(super) offering: Offering,
    pub(super) method: &'static str,
    /// The array in the result.
    pub(super) items: &'static str,
    /// The field that tells one from another.
    pub(super) key: &'static str,
}

pub(super) struct Item {
    pub(super) source: SourceId,
    pub(super) fields: Fields,
    /// The source's own key.
    pub(super) own: String,
}

/// One slow source holds no list up for longer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Servers may have to be started for this.
const AT_ONCE: usize = 8;
const PAGES: usize = 50;
const MOST: usize = 10_000;

impl Surface {
    /// Everything on a shelf, of every source that answers.
    pub(super) async fn gather(&self, shelf: &Shelf, request: &Request) -> Vec<Item> {
        let mut asking = Vec::new();
        for source in self.registry.offering(shelf.offering) {
            asking.push(async move { (self.of_source(shelf, &source, request).await, source) });
        }
        let mut answers = stream::iter(asking).buffered(AT_ONCE);
        let mut items = Vec::new();
        while let Some((found, source)) = answers.next().await {
            match found {
                Ok(found) => items.extend(found),
                Err(error) => tracing::warn!(server_name = %source, %error, "left out of `{}`", shelf.method),
            }
        }
        items.truncate(MOST);
        items
    }

    async fn of_source(&self, shelf: &Shelf, source: &SourceId, request: &Request) -> Result<Vec<Item>> {
        let (mut items, mut cursor) = (Vec::new(), None);
        for _ in 0..PAGES {
            let params = cursor.take().map(|cursor: String| raw(&json!({ "cursor": cursor })));
            let result = self.registry.ask(source, shelf.method, params, within(request, Some(PATIENCE))).await?;
            let mut page = Fields::parse(&result).unwrap_or_default();
            let listed = page.take(shelf.items);
            let listed: Vec<Box<RawValue>> =
                listed.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
            for raw in listed {
                // One that is malformed is left out; its siblings stay.
                let Some(mut fields) = Fields::parse(&raw) else { continue };
                let Some(own) = text(&fields, shelf.key) else { continue };
                clean(&mut fields);
                items.push(Item { source: source.clone(), fields, own });
            }
            cursor = text(&page, "nextCursor");
            if cursor.is_none() || items.len() >= MOST {
                break;
            }
        }
        Ok(items)
    }

    /// Whose thing it is, by its own key: the only source that offers any, or the only one that lists it. Where several
    /// do, they are told, with the names in full.
    pub(super) async fn owner(
        &self,
        shelf: &Shelf,
        own: &str,
        request: &Request,
        full: impl Fn(&SourceId) -> String,
    ) -> Result<Option<SourceId>, RpcError> {
        let offering = self.registry.offering(shelf.offering);
        if offering.len() < 2 {
            return Ok(offering.into_iter().next());
        }
        let listed = self.gather(shelf, request).await.into_iter().filter(|item| item.own == own);
        let mut owners: Vec<SourceId> = listed.map(|item| item.source).collect();
        owners.dedup();
        if owners.len() < 2 {
            return Ok(owners.into_iter().next());
        }
        let names: Vec<String> = owners.iter().map(|source| format!("`{}`", full(source))).collect();
        Err(invalid(&format!("`{}` is offered by several sources: {}", shown_short(own, 200), names.join(", "))))
    }

    /// A list as the protocol has it, in the order of the keys.
    pub(super) fn shelved(&self, shelf: &Shelf, mut items: Vec<Item>, request: &Request) -> Answer {
        items.sort_by(|one, other| {
            (one.fields.get(shelf.key).map(RawValue::get)).cmp(&other.fields.get(shelf.key).map(RawValue::get))
        });
        let mut list = format!("{{\"{}\":[", shelf.items);
        for (index, item) in items.iter().enumerate() {
            list.push_str(if index > 0 { "," } else { "" });
            list.push_str(raw(&item.fields).get());
        }
        list.push(']');
        list.push_str(&self.hints(request));
        list.push('}');
        RawValue::from_string(list).map_err(|_| invalid("the list cannot be written"))
    }

    pub(super) fn prefixed(&self) -> bool {
        self.expose.borrow().prefix
    }
}

/// What people and agents read is as harmless as that of tools.
fn clean(fields: &mut Fields) {
    for key in ["title", "description"] {
        if let Some(said) = text(fields, key).filter(|said| !is_plain(said)) {
            put_text(fields, key, &shown(&said));
        }
    }
}

pub(super) fn text(fields: &Fields, key: &str) -> Option<String> {
    fields.get(key).and_then(|raw| serde_json::from_str(raw.get()).ok())
}

pub(super) fn put_text(fields: &mut Fields, key: &str, value: &str) {
    fields.put(key, string(value));
}

/// For whom a source is asked, and for how long.
pub(super) fn within(request: &Request, timeout: Option<Duration>) -> CallOptions {
    CallOptions {
        timeout,
        cancel: request.cancel.clone(),
        client: Some(ClientId(request.peer.id)),
        fleeting: request.peer.fleeting,
        ..CallOptions::default()
    }
}

pub(super) fn unknown(what: &str, name: &str) -> Error {
    let name = shown_short(name, 200);
    Error::new(toolcrib::Code::NotFound, format!("no {what} named `{name}`"))
}
