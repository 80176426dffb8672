//! Search text, filters, sort order and page of the tool list. They are in the URL, so that a list can be bookmarked and
//! shared.

use std::collections::BTreeSet;

use maud::{Markup, html};
use toolcrib::SourceId;
use toolcrib::catalog::ToolRef;
use url::form_urlencoded;

use super::row::tool_hints;
use crate::console::text::kind_name;

/// Parsed query of the tool list; empty strings match everything.
#[derive(Debug, Clone, Default)]
pub(super) struct ToolFilters {
    pub(super) query: String,
    pub(super) source: Option<SourceId>,
    /// Kind of source, such as `mcp`.
    kind: String,
    /// Tag of a tool or its source.
    tag: String,
    /// `active` or `disabled`; anything else matches no tool.
    state: String,
    /// `read-only` or `destructive`, by the hints of the source.
    hint: String,
    pub(super) usage: UsageFilter,
    pub(super) order: SortOrder,
    /// Number of the page, starting at 1.
    pub(super) page: usize,
}

/// Filter by whether a tool was ever called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum UsageFilter {
    #[default]
    Any,
    Ever,
    Never,
}

/// Sort order of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum SortOrder {
    /// By relevance with a search text, else by name.
    #[default]
    Best,
    Cost,
    Calls,
    LastUsed,
}

/// Values and labels of the filters. The empty value stands for no filter.
const STATE_OPTIONS: [(&str, &str); 3] = [("", "any state"), ("active", "active"), ("disabled", "disabled")];
const USAGE_OPTIONS: [(&str, &str); 3] = [("", "used or not"), ("ever", "used"), ("never", "never used")];
const EFFECT_OPTIONS: [(&str, &str); 3] =
    [("", "any effect"), ("read-only", "read-only"), ("destructive", "destructive")];
const SORT_OPTIONS: [(&str, &str); 4] = [
    ("", "by relevance or name"),
    ("cost", "most tokens first"),
    ("calls", "most calls first"),
    ("used", "recently used first"),
];

impl UsageFilter {
    pub(super) fn matches(self, called: bool) -> bool {
        match self {
            UsageFilter::Any => true,
            UsageFilter::Ever => called,
            UsageFilter::Never => !called,
        }
    }
}

impl ToolFilters {
    /// Parses a query. Unknown parameters and invalid values are ignored, so that an edited URL still shows tools.
    pub(super) fn parse(query: &str) -> ToolFilters {
        let mut filters = ToolFilters { page: 1, ..ToolFilters::default() };
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            let value = value.trim();
            match &*key {
                "q" => filters.query = value.chars().take(500).collect(),
                "source" => filters.source = SourceId::from_name(value).ok(),
                "kind" => filters.kind = value.to_owned(),
                "tag" => filters.tag = value.chars().take(200).collect(),
                "state" => filters.state = value.to_owned(),
                "hint" => filters.hint = value.to_owned(),
                "used" => {
                    filters.usage = match value {
                        "ever" => UsageFilter::Ever,
                        "never" => UsageFilter::Never,
                        _ => UsageFilter::Any,
                    }
                }
                "order" => {
                    filters.order = match value {
                        "cost" => SortOrder::Cost,
                        "calls" => SortOrder::Calls,
                        "used" => SortOrder::LastUsed,
                        _ => SortOrder::Best,
                    }
                }
                // Bounded, so that the offset cannot overflow.
                "page" => filters.page = value.parse().unwrap_or(1).clamp(1, 1_000_000),
                _ => {}
            }
        }
        filters
    }

    /// True when a tool passes all filters except usage and search text.
    pub(super) fn matches(&self, tool: &ToolRef<'_>) -> bool {
        self.source.as_ref().is_none_or(|source| source == tool.source())
            && (self.kind.is_empty() || self.kind == tool.catalog_source.options.kind)
            && (self.state.is_empty() || self.state == tool.status().as_str())
            && (self.tag.is_empty() || tool.tags().any(|tag| tag == self.tag))
            && match self.hint.as_str() {
                "read-only" => tool_hints(tool).read_only,
                "destructive" => tool_hints(tool).destructive,
                _ => true,
            }
    }

    /// True when the list is about disabled tools, which the search index does not contain.
    pub(super) fn shows_disabled(&self) -> bool {
        self.state == "disabled"
    }

    /// True when every word of the search text is part of a tool's name.
    pub(super) fn matches_name(&self, tool: &ToolRef<'_>) -> bool {
        let name = format!("{} {}", tool.name(), tool.original_name()).to_lowercase();
        self.query.to_lowercase().split_whitespace().all(|word| name.contains(word))
    }

    /// True when there are filters that the search itself does not support, so that they apply to its results.
    pub(super) fn has_post_search_filters(&self) -> bool {
        self.usage != UsageFilter::Any
            || [&self.kind, &self.tag, &self.state, &self.hint].iter().any(|text| !text.is_empty())
    }

    /// True when any filter or search text is set.
    pub(super) fn has_filters(&self) -> bool {
        self.source.is_some()
            || self.usage != UsageFilter::Any
            || [&self.query, &self.kind, &self.tag, &self.state, &self.hint].iter().any(|text| !text.is_empty())
    }

    /// Returns the URL of another page with the same filters. Parameters with their default are left out, so that URLs
    /// stay short.
    pub(super) fn page_url(&self, page: usize) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        let source = self.source.as_ref().map(SourceId::as_str).unwrap_or_default();
        let page = if page > 1 { page.to_string() } else { String::new() };
        let params = [
            ("q", &*self.query),
            ("source", source),
            ("kind", &self.kind),
            ("tag", &self.tag),
            ("state", &self.state),
            ("hint", &self.hint),
            ("used", self.usage_value()),
            ("order", self.order_value()),
            ("page", &page),
        ];
        params.into_iter().filter(|(_, value)| !value.is_empty()).for_each(|(key, value)| {
            query.append_pair(key, value);
        });
        format!("/tools?{}", query.finish())
    }

    /// Value of the parameter `used`; the inverse of [`ToolFilters::parse`].
    fn usage_value(&self) -> &'static str {
        match self.usage {
            UsageFilter::Any => "",
            UsageFilter::Ever => "ever",
            UsageFilter::Never => "never",
        }
    }

    /// Value of the parameter `order`; the inverse of [`ToolFilters::parse`].
    fn order_value(&self) -> &'static str {
        match self.order {
            SortOrder::Best => "",
            SortOrder::Cost => "cost",
            SortOrder::Calls => "calls",
            SortOrder::LastUsed => "used",
        }
    }

    /// Renders the search and filter form.
    pub(super) fn render_form(&self, sources: &[&str], kinds: &BTreeSet<&str>) -> Markup {
        let source = self.source.as_ref().map(SourceId::as_str).unwrap_or_default();
        let sources: Vec<(&str, &str)> =
            std::iter::once(("", "all sources")).chain(sources.iter().map(|id| (*id, *id))).collect();
        let kinds: Vec<(&str, &str)> =
            std::iter::once(("", "any kind")).chain(kinds.iter().map(|name| (*name, kind_name(name)))).collect();
        html! {
            form.filters role="search" method="get" action="/tools" data-search {
                label.wide {
                    span.unseen { "Search" }
                    input type="search" name="q" value=(self.query) autocomplete="off" spellcheck="false"
                        placeholder="Purpose or name of a tool";
                }
                @if !self.tag.is_empty() { input type="hidden" name="tag" value=(self.tag); }
                (render_select("source", "Source", &sources, source))
                (render_select("kind", "Kind", &kinds, &self.kind))
                (render_select("state", "State", &STATE_OPTIONS, &self.state))
                (render_select("used", "Use", &USAGE_OPTIONS, self.usage_value()))
                (render_select("hint", "Effect", &EFFECT_OPTIONS, &self.hint))
                (render_select("order", "Order", &SORT_OPTIONS, self.order_value()))
                button.no-script { "Search" }
            }
        }
    }
}

/// Renders a select with a label for screen readers.
fn render_select(name: &str, label: &str, choices: &[(&str, &str)], selected: &str) -> Markup {
    html! {
        label { span.unseen { (label) }
            select name=(name) {
                @for (value, text) in choices { option value=(value) selected[*value == selected] { (text) } }
            }
        }
    }
}
