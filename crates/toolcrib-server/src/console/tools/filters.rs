//! What a list of tools is asked for: words, filters, an order, a page. It stands in the address, to be passed on.

use std::collections::BTreeSet;

use maud::{Markup, html};
use toolcrib::SourceId;
use toolcrib::core::catalog::ToolRef;
use url::form_urlencoded;

use super::row::tool_hints;
use crate::console::text::kind_name;

#[derive(Debug, Clone, Default)]
pub(super) struct ToolFilters {
    pub(super) query: String,
    pub(super) source: Option<SourceId>,
    kind: String,
    state: String,
    hint: String,
    pub(super) usage: UsageFilter,
    pub(super) order: SortOrder,
    /// From one.
    pub(super) page: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum UsageFilter {
    #[default]
    Any,
    Ever,
    Never,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum SortOrder {
    /// By name, or what a search finds best.
    #[default]
    Best,
    Cost,
    Calls,
    LastUsed,
}

const STATE_OPTIONS: [(&str, &str); 3] = [("", "any state"), ("active", "active"), ("disabled", "disabled")];
const USAGE_OPTIONS: [(&str, &str); 3] = [("", "used or not"), ("ever", "used"), ("never", "never used")];
const EFFECT_OPTIONS: [(&str, &str); 3] =
    [("", "any effect"), ("read-only", "read-only"), ("destructive", "destructive")];
const SORT_OPTIONS: [(&str, &str); 4] = [
    ("", "best or by name"),
    ("cost", "most tokens first"),
    ("calls", "most calls first"),
    ("used", "last used first"),
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
    /// What is not understood is left out: an address that somebody edited still shows tools.
    pub(super) fn parse(query: &str) -> ToolFilters {
        let mut asked = ToolFilters { page: 1, ..ToolFilters::default() };
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            let value = value.trim();
            match &*key {
                "q" => asked.query = value.chars().take(500).collect(),
                "source" => asked.source = SourceId::from_name(value).ok(),
                "kind" => asked.kind = value.to_owned(),
                "state" => asked.state = value.to_owned(),
                "hint" => asked.hint = value.to_owned(),
                "used" => {
                    asked.usage = match value {
                        "ever" => UsageFilter::Ever,
                        "never" => UsageFilter::Never,
                        _ => UsageFilter::Any,
                    }
                }
                "order" => {
                    asked.order = match value {
                        "cost" => SortOrder::Cost,
                        "calls" => SortOrder::Calls,
                        "used" => SortOrder::LastUsed,
                        _ => SortOrder::Best,
                    }
                }
                "page" => asked.page = value.parse().unwrap_or(1).clamp(1, 1_000_000),
                _ => {}
            }
        }
        asked
    }

    pub(super) fn matches(&self, tool: &ToolRef<'_>) -> bool {
        self.source.as_ref().is_none_or(|source| source == tool.source())
            && (self.kind.is_empty() || self.kind == tool.catalog_source.options.kind)
            && (self.state.is_empty() || self.state == tool.status().as_str())
            && match self.hint.as_str() {
                "read-only" => tool_hints(tool).read_only,
                "destructive" => tool_hints(tool).destructive,
                _ => true,
            }
    }

    pub(super) fn shows_disabled(&self) -> bool {
        self.state == "disabled"
    }

    /// Whether every word of the query is part of a tool's name.
    pub(super) fn matches_name(&self, tool: &ToolRef<'_>) -> bool {
        let name = format!("{} {}", tool.name(), tool.original_name()).to_lowercase();
        self.query.to_lowercase().split_whitespace().all(|word| name.contains(word))
    }

    /// Whether there are filters that a search knows nothing of.
    pub(super) fn has_post_search_filters(&self) -> bool {
        self.usage != UsageFilter::Any || [&self.kind, &self.state, &self.hint].iter().any(|text| !text.is_empty())
    }

    pub(super) fn has_filters(&self) -> bool {
        self.source.is_some()
            || self.usage != UsageFilter::Any
            || [&self.query, &self.kind, &self.state, &self.hint].iter().any(|text| !text.is_empty())
    }

    pub(super) fn page_url(&self, page: usize) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        let source = self.source.as_ref().map(SourceId::as_str).unwrap_or_default();
        let page = if page > 1 { page.to_string() } else { String::new() };
        let given = [
            ("q", &*self.query),
            ("source", source),
            ("kind", &self.kind),
            ("state", &self.state),
            ("hint", &self.hint),
            ("used", self.usage_value()),
            ("order", self.order_value()),
            ("page", &page),
        ];
        given.into_iter().filter(|(_, value)| !value.is_empty()).for_each(|(key, value)| {
            query.append_pair(key, value);
        });
        format!("/tools?{}", query.finish())
    }

    fn usage_value(&self) -> &'static str {
        match self.usage {
            UsageFilter::Any => "",
            UsageFilter::Ever => "ever",
            UsageFilter::Never => "never",
        }
    }

    fn order_value(&self) -> &'static str {
        match self.order {
            SortOrder::Best => "",
            SortOrder::Cost => "cost",
            SortOrder::Calls => "calls",
            SortOrder::LastUsed => "used",
        }
    }

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
                        placeholder="What should the tool do? Or its name";
                }
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

fn render_select(name: &str, label: &str, choices: &[(&str, &str)], chosen: &str) -> Markup {
    html! {
        label { span.unseen { (label) }
            select name=(name) {
                @for (value, words) in choices { option value=(value) selected[*value == chosen] { (words) } }
            }
        }
    }
}
