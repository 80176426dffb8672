//! What a list of tools is asked for: words, filters, an order, a page. It stands in the address, to be passed on.

use std::collections::BTreeSet;

use maud::{Markup, html};
use toolcrib::SourceId;
use toolcrib::core::catalog::ToolRef;
use url::form_urlencoded;

use super::row::hints;
use crate::console::words::kind;

#[derive(Debug, Clone, Default)]
pub(super) struct Asked {
    pub(super) query: String,
    pub(super) source: Option<SourceId>,
    kind: String,
    state: String,
    hint: String,
    pub(super) used: Used,
    pub(super) order: Order,
    /// From one.
    pub(super) page: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Used {
    #[default]
    Any,
    Ever,
    Never,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Order {
    /// By name, or what a search finds best.
    #[default]
    Best,
    Cost,
    Calls,
    Used,
}

const STATES: [(&str, &str); 3] = [("", "any state"), ("active", "active"), ("disabled", "disabled")];
const USES: [(&str, &str); 3] = [("", "used or not"), ("ever", "used"), ("never", "never used")];
const HINTS: [(&str, &str); 3] = [("", "any effect"), ("read-only", "read-only"), ("destructive", "destructive")];
const ORDERS: [(&str, &str); 4] = [
    ("", "best or by name"),
    ("cost", "most tokens first"),
    ("calls", "most calls first"),
    ("used", "last used first"),
];

impl Used {
    pub(super) fn fits(self, called: bool) -> bool {
        match self {
            Used::Any => true,
            Used::Ever => called,
            Used::Never => !called,
        }
    }
}

impl Asked {
    /// What is not understood is left out: an address that somebody edited still shows tools.
    pub(super) fn read(query: &str) -> Asked {
        let mut asked = Asked { page: 1, ..Asked::default() };
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            let value = value.trim();
            match &*key {
                "q" => asked.query = value.chars().take(500).collect(),
                "source" => asked.source = SourceId::from_name(value).ok(),
                "kind" => asked.kind = value.to_owned(),
                "state" => asked.state = value.to_owned(),
                "hint" => asked.hint = value.to_owned(),
                "used" => {
                    asked.used = match value {
                        "ever" => Used::Ever,
                        "never" => Used::Never,
                        _ => Used::Any,
                    }
                }
                "order" => {
                    asked.order = match value {
                        "cost" => Order::Cost,
                        "calls" => Order::Calls,
                        "used" => Order::Used,
                        _ => Order::Best,
                    }
                }
                "page" => asked.page = value.parse().unwrap_or(1).clamp(1, 1_000_000),
                _ => {}
            }
        }
        asked
    }

    pub(super) fn fits(&self, tool: &ToolRef<'_>) -> bool {
        self.source.as_ref().is_none_or(|source| source == tool.source())
            && (self.kind.is_empty() || self.kind == tool.part.manner.kind)
            && (self.state.is_empty() || self.state == tool.state().as_str())
            && match self.hint.as_str() {
                "read-only" => hints(tool).read_only,
                "destructive" => hints(tool).destructive,
                _ => true,
            }
    }

    pub(super) fn among_disabled(&self) -> bool {
        self.state == "disabled"
    }

    /// Whether every word of the query is part of a tool's name.
    pub(super) fn is_named(&self, tool: &ToolRef<'_>) -> bool {
        let name = format!("{} {}", tool.name(), tool.original()).to_lowercase();
        self.query.to_lowercase().split_whitespace().all(|word| name.contains(word))
    }

    /// Whether there are filters that a search knows nothing of.
    pub(super) fn narrows_more(&self) -> bool {
        self.used != Used::Any || [&self.kind, &self.state, &self.hint].iter().any(|text| !text.is_empty())
    }

    pub(super) fn narrows(&self) -> bool {
        self.source.is_some()
            || self.used != Used::Any
            || [&self.query, &self.kind, &self.state, &self.hint].iter().any(|text| !text.is_empty())
    }

    pub(super) fn address(&self, page: usize) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        let source = self.source.as_ref().map(SourceId::as_str).unwrap_or_default();
        let page = if page > 1 { page.to_string() } else { String::new() };
        let given = [
            ("q", &*self.query),
            ("source", source),
            ("kind", &self.kind),
            ("state", &self.state),
            ("hint", &self.hint),
            ("used", self.used_word()),
            ("order", self.order_word()),
            ("page", &page),
        ];
        given.into_iter().filter(|(_, value)| !value.is_empty()).for_each(|(key, value)| {
            query.append_pair(key, value);
        });
        format!("/tools?{}", query.finish())
    }

    fn used_word(&self) -> &'static str {
        match self.used {
            Used::Any => "",
            Used::Ever => "ever",
            Used::Never => "never",
        }
    }

    fn order_word(&self) -> &'static str {
        match self.order {
            Order::Best => "",
            Order::Cost => "cost",
            Order::Calls => "calls",
            Order::Used => "used",
        }
    }

    pub(super) fn form(&self, sources: &[&str], kinds: &BTreeSet<&str>) -> Markup {
        let source = self.source.as_ref().map(SourceId::as_str).unwrap_or_default();
        let sources: Vec<(&str, &str)> =
            std::iter::once(("", "all sources")).chain(sources.iter().map(|id| (*id, *id))).collect();
        let kinds: Vec<(&str, &str)> =
            std::iter::once(("", "any kind")).chain(kinds.iter().map(|name| (*name, kind(name)))).collect();
        html! {
            form.filters role="search" method="get" action="/tools" data-search {
                label.wide {
                    span.unseen { "Search" }
                    input type="search" name="q" value=(self.query) autocomplete="off" spellcheck="false"
                        placeholder="What should the tool do? Or its name";
                }
                (select("source", "Source", &sources, source))
                (select("kind", "Kind", &kinds, &self.kind))
                (select("state", "State", &STATES, &self.state))
                (select("used", "Use", &USES, self.used_word()))
                (select("hint", "Effect", &HINTS, &self.hint))
                (select("order", "Order", &ORDERS, self.order_word()))
                button.no-script { "Search" }
            }
        }
    }
}

fn select(name: &str, label: &str, choices: &[(&str, &str)], chosen: &str) -> Markup {
    html! {
        label { span.unseen { (label) }
            select name=(name) {
                @for (value, words) in choices { option value=(value) selected[*value == chosen] { (words) } }
            }
        }
    }
}
