//! Layout of all pages: document head, navigation, account, alerts and content.
//!
//! The ids `main`, `pages`, `live` and `announcements` are used by the script: content, navigation, indicator of the event
//! stream, and the region in which it announces the outcome of an action to screen readers.

use maud::{DOCTYPE, Markup, html};
use toolcrib::SourceId;
use toolcrib::catalog::View;
use toolcrib::registry::{DiscoveryStage, RuleDefinitions, SourceView};

use super::alerts;
use super::assets::{LOGO, SCRIPT, STYLE};
use super::csrf_field;
use super::text::{format_number, now};
use crate::activity::{ActivityEntry, MinuteCounts};
use crate::auth::{AuthenticatedClient, Permission};
use crate::state::AppState;

/// Entries of the navigation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NavItem {
    Overview,
    Sources,
    Tools,
    Activity,
    Access,
}

/// Data that every page needs: the state of the server and the client that views the page.
#[derive(Debug)]
pub(super) struct PageContext<'a> {
    /// The state of the server.
    pub(super) app: &'a AppState,
    /// Decides which actions a page offers.
    pub(super) client: &'a AuthenticatedClient,
}

impl PageContext<'_> {
    /// True when the client has a permission. Pages hide the actions it lacks; the routes check again.
    pub(super) fn is_allowed(&self, permission: Permission) -> bool {
        self.client.principal.role().has_permission(permission)
    }

    /// Returns the view of the catalogue that all pages of the client use, so that their counts agree.
    pub(super) fn catalog_view(&self) -> View {
        self.app.registry.view(&self.client.principal)
    }

    /// Returns the groups, access rules and policies, with the tools that the client may know of.
    pub(super) fn rules(&self) -> RuleDefinitions<'_> {
        self.app.registry.rules_for(&self.client.principal)
    }

    /// Returns the sources that the client may know of.
    pub(super) fn sources(&self) -> Vec<SourceView> {
        self.app.registry.sources().list_for(&self.client.principal)
    }

    /// Returns up to `limit` matching entries of the activity that the client may know of, newest first.
    pub(super) fn recent_entries(&self, matches: impl Fn(&ActivityEntry) -> bool, limit: usize) -> Vec<ActivityEntry> {
        let visibility = self.app.registry.visibility(&self.client.principal);
        self.app.activity.recent_entries(|entry| entry.restrict(&visibility).filter(&matches), limit)
    }

    /// Returns the calls of the last hour that the client may know of, oldest minute first.
    pub(super) fn calls_in_last_hour(&self) -> Vec<MinuteCounts> {
        let visibility = self.app.registry.visibility(&self.client.principal);
        self.app.activity.calls_in_last_hour(now(), &visibility)
    }

    /// Returns the stage of a discovery in progress. Without the number of tools that the source sent, if the client may not
    /// know of all of them.
    pub(super) fn discovery_stage(&self, id: &SourceId) -> Option<DiscoveryStage> {
        let stage = self.app.activity.discovery_stage(id)?;
        let is_restricted = self.app.registry.visibility(&self.client.principal).restricts(id);
        Some(if is_restricted { DiscoveryStage::Contacting } else { stage })
    }

    /// Renders a complete page. `title` may come from a source; maud escapes it.
    pub(super) fn render_page(&self, current: NavItem, title: &str, content: Markup) -> Markup {
        // The counts come from the same view as the pages, so that the navigation agrees with them.
        let source_count = self.sources().len();
        let tool_count = self.catalog_view().listed_tools().count();
        let count = |number: usize| Some(format_number(number as u64));
        let links = [
            (NavItem::Overview, "/", "Overview", None),
            (NavItem::Sources, "/sources", "Sources", count(source_count)),
            (NavItem::Tools, "/tools", "Tools", count(tool_count)),
            (NavItem::Activity, "/activity", "Activity", None),
            (NavItem::Access, "/access", "Access", None),
        ];
        let is_shown = |item: NavItem| item != NavItem::Access || self.is_allowed(Permission::Manage);
        let navigation = html! {
            nav aria-label="Pages" {
                ul id="pages" {
                    @for (item, path, name, count) in links.into_iter().filter(|(item, ..)| is_shown(*item)) {
                        li { a href=(path) aria-current=[(item == current).then_some("page")] {
                            span { (name) }
                            @if let Some(count) = count { span.count { (count) } }
                        } }
                    }
                }
            }
            div.foot {
                p.live id="live" hidden { "Live" }
                (self.render_account())
                p.faint.roomy { "Toolcrib " (env!("CARGO_PKG_VERSION")) }
            }
        };
        let alerts = html! { (alerts::render_store_alert(&self.app.registry)) (alerts::render_config_alert(self)) };
        render_shell(title, navigation, html! { (alerts) (content) })
    }

    /// Renders the name of the signed-in client, or a link to sign in.
    fn render_account(&self) -> Markup {
        html! {
            @if self.client.csrf.is_some() {
                p.roomy { "Signed in as " b { (self.client.principal.name()) } }
                form method="post" action="/logout" { (csrf_field(self.client)) button.quiet { "Sign out" } }
            } @else {
                p.faint {
                    span.roomy { @if self.is_allowed(Permission::Use) { "You can read and call. " } @else { "You can read. " } } a href="/login" { "Sign in" } span.roomy { " to make changes." }
                }
             }
        }
    }
}

/// Renders the document around navigation and content. Needs no client, for error and login pages.
pub(super) fn render_shell(title: &str, navigation: Markup, content: Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · Toolcrib" }
                link rel="icon" type="image/svg+xml" href=(LOGO.path);
                link rel="stylesheet" href=(STYLE.path);
                // A module script runs after the document is parsed, so the script finds all elements.
                script src=(SCRIPT.path) type="module" {}
            }
            body {
                a.skip href="#main" { "Skip to content" }
                header.side { div.inner {
                    a.brand href="/" { img src=(LOGO.path) alt="" width="24" height="24"; "Toolcrib" }
                    (navigation)
                } }
                main id="main" tabindex="-1" { (content) }
                p.unseen id="announcements" role="status" aria-live="polite" {}
            }
        }
    }
}
