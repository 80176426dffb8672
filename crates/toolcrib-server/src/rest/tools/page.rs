//! Parses the query of `GET /api/tools` and renders the page.

use toolcrib::catalog::render::{Format, RenderedPage};
use toolcrib::catalog::{ToolRef, View};
use toolcrib::core::text::sanitize_truncated;
use toolcrib::{Code, Error, Registry, Result, SourceId};

use super::removed;
use crate::page_cursor::{decode_cursor, encode_cursor};
use crate::rest::cache::{ContentScope, RenderedBody};
use crate::rest::query::QueryParams;

/// Upper bound of `limit`.
pub(super) const MAX_TOOLS_PER_PAGE: u64 = 1_000;
/// In a provider's format all tools are the default: the array is meant to be passed on as it is.
const DEFAULT_TOOLS_PER_PAGE: usize = 100;
/// Values of the parameter `state`. The catalogue has active and disabled tools only; deprecated ones come from the
/// inventory. `held`, for approval, is reserved: no tool is in this state yet.
pub(super) const STATES: [&str; 4] = ["active", "disabled", "deprecated", "held"];

/// Parsed query of a tool list.
#[derive(Debug)]
pub(super) struct ToolListQuery {
    source: Option<SourceId>,
    format: Format,
    /// One of [`STATES`].
    state: Option<&'static str>,
    /// Name of the last tool of the previous page, from the cursor.
    after_name: Option<String>,
    limit: Option<usize>,
    /// The query without the cursor, for the `Link` to the next page.
    base_query: String,
}

impl ToolListQuery {
    /// Parses and checks the query parameters.
    pub(super) fn parse(registry: &Registry, params: &QueryParams) -> Result<ToolListQuery> {
        params.reject_group()?;
        let text = |name: &str| params.text(name).map(|value| (name.to_owned(), value.to_owned()));
        // In a fixed order, so that the `Link` of equal queries is equal.
        let pairs = ["source", "format", "state", "limit"].into_iter().filter_map(text);
        let base_query = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
        Ok(ToolListQuery {
            source: params.source(registry)?,
            format: Format::parse(params.text("format").unwrap_or("json"))?,
            state: params.text("state").map(parse_state).transpose()?,
            after_name: params.text("cursor").map(parse_cursor).transpose()?,
            limit: params.number("limit", 1..=MAX_TOOLS_PER_PAGE)?.map(|limit| limit as usize),
            base_query,
        })
    }

    /// Renders the page. Provider formats are a plain array, so their next page is in the `Link` header.
    pub(super) fn render(&self, registry: &Registry, view: &View) -> Result<RenderedBody> {
        let limit = self.limit.unwrap_or(if self.format == Format::Json { DEFAULT_TOOLS_PER_PAGE } else { usize::MAX });
        let mut scope = ContentScope::for_list(view, self.source.as_ref());
        let page = match (self.state, self.format) {
            (Some("deprecated"), Format::Json) => {
                // Removed tools are in the inventory and not in the view.
                scope = ContentScope::Registry;
                removed::render_page(registry, self.source.as_ref(), self.after_name.as_deref(), limit)?
            }
            // In a provider's format, filtering for deprecated tools gives an empty list: they have no schema to offer.
            _ => view.render_page(self.format, |tool| self.matches(tool), self.after_name.as_deref(), limit)?,
        };
        let next = page.last.as_ref().map(|last| encode_cursor(last.as_str()));
        if self.format != Format::Json {
            let separator = if self.base_query.is_empty() { "" } else { "&" };
            let link = |next| format!("</api/tools?{}{separator}cursor={next}>; rel=\"next\"", self.base_query);
            return Ok(RenderedBody { body: page.array.into(), link: next.map(link), scope });
        }
        let body = render_envelope(&page, &view.hash().to_string(), next).into();
        Ok(RenderedBody { body, link: None, scope })
    }

    /// True when a tool of the catalogue passes the filters.
    fn matches(&self, tool: &ToolRef<'_>) -> bool {
        self.state.is_none_or(|state| state == tool.status().as_str())
            && self.source.as_ref().is_none_or(|source| source == tool.source())
    }
}

/// Fails for an unknown state, with the known ones in the message.
fn parse_state(text: &str) -> Result<&'static str> {
    STATES.into_iter().find(|state| *state == text).ok_or_else(|| {
        let message = format!("`state` is one of {}, not `{}`", STATES.join(", "), sanitize_truncated(text, 40));
        Error::new(Code::BadRequest, message)
    })
}

/// Wraps the rendered array of tools. Written by hand to avoid parsing the array; the hash and the cursor need no escaping.
fn render_envelope(page: &RenderedPage, hash: &str, next: Option<String>) -> String {
    let next = next.map_or_else(|| "null".to_owned(), |next| format!("\"{next}\""));
    format!("{{\"tools\":{},\"inventory_hash\":\"{hash}\",\"next_cursor\":{next}}}", page.array)
}

/// Returns the tool name in a cursor.
fn parse_cursor(cursor: &str) -> Result<String> {
    decode_cursor(cursor).ok_or_else(|| Error::new(Code::BadRequest, "unknown or expired `cursor`; start without one"))
}
