//! Parses the query of `GET /api/tools` and renders the page.

use std::collections::HashMap;

use toolcrib::catalog::View;
use toolcrib::catalog::filter::{ListOrder, StateFilter, ToolFilter, ToolOrder};
use toolcrib::catalog::render::{Format, ListPosition, RenderedPage};
use toolcrib::registry::RemovedToolsQuery;
use toolcrib::{Code, Error, Principal, Registry, Result, SourceId};

use crate::page_cursor::{decode_cursor, encode_cursor};
use crate::rest::cache::{ContentScope, RenderedBody};
use crate::rest::query::QueryParams;
use crate::rest::response::TaggedResponse;

/// Upper bound of `limit`.
pub(super) const MAX_TOOLS_PER_PAGE: u64 = 1_000;
/// In a provider's format all tools are the default: the array is meant to be passed on as it is.
const DEFAULT_TOOLS_PER_PAGE: usize = 100;
/// Maximum number of globs in `names`. Each is compared with the names of every tool.
const MAX_NAME_GLOBS: usize = 100;

/// Parsed query of a tool list.
#[derive(Debug)]
pub(super) struct ToolListQuery {
    filter: ToolFilter,
    order: ToolOrder,
    format: Format,
    /// Position of the last tool of the previous page, from the cursor.
    after: Option<ListPosition>,
    limit: Option<usize>,
    /// The query without the cursor, for the `Link` to the next page.
    base_query: String,
}

impl ToolListQuery {
    /// Parses and checks the query parameters.
    pub(super) fn parse(registry: &Registry, principal: &Principal, params: &QueryParams) -> Result<ToolListQuery> {
        let text = |name: &str| params.text(name).map(|value| (name.to_owned(), value.to_owned()));
        // In a fixed order, so that the `Link` of equal queries is equal.
        let pairs = ["source", "group", "kind", "tag", "state", "names", "order", "format", "limit"].into_iter();
        let pairs = pairs.filter_map(text);
        let base_query = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
        let names = params.list("names");
        if names.is_empty() && params.value("names").is_some() {
            return Err(Error::new(
                Code::BadRequest,
                "`names` is empty; give globs such as `github__*`, or leave it out",
            ));
        }
        if names.len() > MAX_NAME_GLOBS {
            let message = format!("`names` has {} entries; at most {MAX_NAME_GLOBS} are accepted", names.len());
            return Err(Error::new(Code::BadRequest, message));
        }
        let order = params.text("order").map(ToolOrder::from_name).transpose()?.unwrap_or_default();
        Ok(ToolListQuery {
            filter: ToolFilter {
                source: params.source(registry, principal)?,
                kind: params.text("kind").map(ToolFilter::parse_kind).transpose()?,
                tag: params.text("tag").map(str::to_owned),
                state: params.text("state").map(StateFilter::from_name).transpose()?,
                names,
            },
            order,
            format: Format::parse(params.text("format").unwrap_or("json"))?,
            after: params.text("cursor").map(|cursor| parse_cursor(order, cursor)).transpose()?,
            limit: params.number("limit", 1..=MAX_TOOLS_PER_PAGE)?.map(|limit| limit as usize),
            base_query,
        })
    }

    /// True for the list of removed tools. In a provider's format it is empty: they cannot be called.
    pub(super) fn lists_removed(&self) -> bool {
        self.filter.state == Some(StateFilter::Deprecated) && self.format == Format::Json
    }

    /// Returns the calls of tools by name, if the order needs them.
    pub(super) fn count_calls(&self, registry: &Registry) -> HashMap<String, u64> {
        if self.order != ToolOrder::Calls {
            return HashMap::new();
        }
        registry.statistics().totals().tools.into_iter().map(|tool| (tool.name, tool.calls)).collect()
    }

    /// Source whose tools are listed.
    pub(super) fn source(&self) -> Option<&SourceId> {
        self.filter.source.as_ref()
    }

    /// Renders the page. Provider formats are a plain array, so their next page is in the `Link` header. `scope` is
    /// what the list depends on, apart from its order.
    pub(super) fn render(
        &self,
        view: &View,
        calls: &HashMap<String, u64>,
        scope: ContentScope,
    ) -> Result<RenderedBody> {
        let order = match self.order {
            ToolOrder::Name => ListOrder::Name,
            ToolOrder::Tokens => ListOrder::Tokens,
            ToolOrder::Calls => ListOrder::Calls(calls),
        };
        let scope = match self.order {
            ToolOrder::Name | ToolOrder::Tokens => scope,
            // Every call may change the order.
            ToolOrder::Calls => ContentScope::Registry,
        };
        let page =
            view.render_page(self.format, |tool| self.filter.accepts(tool), &order, self.after.as_ref(), self.limit())?;
        let next = page.last.as_ref().map(|last| format_cursor(self.order, last));
        if self.format != Format::Json {
            let separator = if self.base_query.is_empty() { "" } else { "&" };
            let link = |next| format!("</api/tools?{}{separator}cursor={next}>; rel=\"next\"", self.base_query);
            return Ok(RenderedBody { body: page.array.into(), link: next.map(link), scope });
        }
        let body = render_envelope(&page, &view.hash().to_string(), next).into();
        Ok(RenderedBody { body, link: None, scope })
    }

    /// Renders a page of removed tools, and returns its position. Tagged by its content.
    pub(super) async fn render_removed(
        &self,
        registry: &Registry,
        principal: &Principal,
    ) -> Result<(TaggedResponse, u64)> {
        let query = RemovedToolsQuery {
            principal,
            filter: &self.filter,
            order: self.order,
            after: self.after.as_ref(),
            limit: self.limit(),
        };
        let removed = registry.history().removed_tools(&query).await?;
        let entries = removed.tools.iter().map(|tool| Ok(tool.to_list_json()?.get().to_owned()));
        let entries: Vec<String> = entries.collect::<Result<_>>()?;
        let next = removed.last.as_ref().map(|last| format_cursor(self.order, last));
        let page = RenderedPage { array: format!("[{}]", entries.join(",")), last: removed.last };
        let body = render_envelope(&page, &removed.inventory_hash.to_string(), next);
        Ok((TaggedResponse::from_body(body.into()), removed.position))
    }

    fn limit(&self) -> usize {
        self.limit.unwrap_or(if self.format == Format::Json { DEFAULT_TOOLS_PER_PAGE } else { usize::MAX })
    }
}

/// Wraps the rendered array of tools. Written by hand to avoid parsing the array; the hash and the cursor need no
/// escaping.
fn render_envelope(page: &RenderedPage, hash: &str, next: Option<String>) -> String {
    let next = next.map_or_else(|| "null".to_owned(), |next| format!("\"{next}\""));
    format!("{{\"tools\":{},\"inventory_hash\":\"{hash}\",\"next_cursor\":{next}}}", page.array)
}

/// Returns the cursor of the page behind a position. In other orders than by name it has the order and the rank too:
/// both are needed to find the position again when counts have changed.
fn format_cursor(order: ToolOrder, last: &ListPosition) -> String {
    match order {
        ToolOrder::Name => encode_cursor(&last.name),
        ToolOrder::Tokens | ToolOrder::Calls => {
            encode_cursor(&format!("{} {} {}", order.as_str(), last.rank, last.name))
        }
    }
}

/// Returns the position in a cursor, which must be of a list in the same order.
fn parse_cursor(order: ToolOrder, cursor: &str) -> Result<ListPosition> {
    let parse = |text: &str| match (order, &text.split(' ').collect::<Vec<_>>()[..]) {
        (ToolOrder::Name, [name]) => Some(ListPosition { rank: 0, name: (*name).to_owned() }),
        (ToolOrder::Tokens | ToolOrder::Calls, [kind, rank, name]) if *kind == order.as_str() => {
            Some(ListPosition { rank: rank.parse().ok()?, name: (*name).to_owned() })
        }
        _ => None,
    };
    let unknown = || Error::new(Code::BadRequest, "unknown or expired `cursor`; start without one");
    decode_cursor(cursor).as_deref().and_then(parse).ok_or_else(unknown)
}
