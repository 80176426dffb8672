//! `tools/list`: what a client is shown, a page at a time, and what is discovered meanwhile.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use serde::Deserialize;
use serde_json::value::RawValue;
use toolcrib::Need;
use toolcrib::core::config::Mode;
use toolcrib::core::freshness::Freshness;
use toolcrib_mcp::Era;
use toolcrib_mcp::server::Request;

use super::Surface;
use super::answer::{Answer, invalid, parameters};
use super::sight::Listed;

/// How many tools stand on a page. Few clients turn pages, so it is large.
const PAGE: usize = 1000;
/// How long a list waits that would otherwise be empty.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Deserialize)]
pub(super) struct Paging {
    #[serde(default)]
    pub(super) cursor: Option<String>,
}

impl Surface {
    pub(super) async fn tools_list(&self, request: &Request) -> Answer {
        let Paging { cursor } = parameters(request.params.as_deref())?;
        if self.mode(&request.peer) == Mode::Search {
            self.registry.ensure_soon();
        } else {
            self.look_around().await;
        }
        let sight = self.sight();
        let listing = sight.listing(self.kind(&request.peer).await).await;
        self.visitors.has_listed(&request.peer, listing.fingerprint);

        let first = match cursor {
            None => 0,
            Some(cursor) => {
                let last =
                    read_cursor(&cursor).ok_or_else(|| invalid("no page has this cursor; list from the start"))?;
                listing.tools.partition_point(|tool| tool.name <= last)
            }
        };
        let page = listing.tools.iter().skip(first).take(PAGE);
        let next = listing.tools.get(first + PAGE - 1).filter(|_| first + PAGE < listing.tools.len());
        let mut text = String::from("{\"tools\":[");
        for (index, tool) in page.enumerate() {
            text.push_str(if index > 0 { "," } else { "" });
            text.push_str(&tool.json);
        }
        text.push(']');
        if let Some(last) = next {
            text.push_str(&format!(",\"nextCursor\":\"{}\"", cursor_after(last)));
        }
        text.push_str(&self.hints(request));
        text.push('}');
        RawValue::from_string(text).map_err(|_| invalid("the list cannot be written"))
    }

    /// The first list or search makes sure that what is missing or stale is being discovered. With nothing to show,
    /// it waits a little; the rest follows by `list_changed`.
    pub(super) async fn look_around(&self) {
        if self.knows_nobody() {
            self.registry.ensure_within(Need::Known, PATIENCE).await;
        }
        self.registry.ensure_soon();
    }

    /// Whether there are sources to discover and none of them has been.
    pub(super) fn knows_nobody(&self) -> bool {
        let sources = self.registry.sources();
        let mut asked = sources.iter().filter(|source| source.enabled && source.transport.is_some()).peekable();
        asked.peek().is_some() && asked.all(|source| source.freshness == Freshness::Missing)
    }

    /// How long the newest version may keep a list: no longer than any of the sources says.
    pub(super) fn hints(&self, request: &Request) -> String {
        match request.peer.era {
            Era::Legacy(_) => String::new(),
            Era::Modern => {
                let hints = self.registry.list_hints();
                let scope = if hints.private { "private" } else { "public" };
                format!(",\"ttlMs\":{},\"cacheScope\":\"{scope}\"", hints.ttl_ms.unwrap_or_default())
            }
        }
    }
}

fn cursor_after(tool: &Listed) -> String {
    BASE64.encode(format!("after {}", tool.name))
}

fn read_cursor(cursor: &str) -> Option<String> {
    let text = String::from_utf8(BASE64.decode(cursor).ok()?).ok()?;
    text.strip_prefix("after ").map(str::to_owned)
}
