//! What every page has: head, navigation, who is looking, and a place for its own content.

use maud::{DOCTYPE, Markup, html};
use toolcrib::Caller;
use toolcrib::core::catalog::View;

use super::alerts;
use super::assets::{LOGO, SCRIPT, STYLE};
use super::csrf_field;
use super::text::format_number;
use crate::auth::{Permission, Principal};
use crate::state::AppState;

/// Where in the navigation a page stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NavItem {
    Overview,
    Sources,
    Tools,
    Activity,
}

/// Who looks at which page.
#[derive(Debug)]
pub(super) struct PageContext<'a> {
    pub(super) app: &'a AppState,
    pub(super) principal: &'a Principal,
}

impl PageContext<'_> {
    pub(super) fn is_allowed(&self, needs: Permission) -> bool {
        self.principal.role.has_permission(needs)
    }

    /// The catalogue as pages show it: what is listed here is what is counted everywhere.
    pub(super) fn catalog_view(&self) -> View {
        self.app.registry.view(&Caller { name: "console".into() })
    }

    /// A whole page; `title` is text from anywhere.
    pub(super) fn render_page(&self, here: NavItem, title: &str, content: Markup) -> Markup {
        let (sources, tools) = (self.app.registry.sources().len(), self.catalog_view().listed_tools().count());
        let counts = |number: usize| Some(format_number(number as u64));
        let links = [
            (NavItem::Overview, "/", "Overview", None),
            (NavItem::Sources, "/sources", "Sources", counts(sources)),
            (NavItem::Tools, "/tools", "Tools", counts(tools)),
            (NavItem::Activity, "/activity", "Activity", None),
        ];
        let navigation = html! {
            nav aria-label="Pages" {
                ul id="pages" {
                    @for (place, path, name, count) in links {
                        li { a href=(path) aria-current=[(place == here).then_some("page")] {
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
        render_shell(title, navigation, html! { (alerts::render_store_alert(&self.app.registry)) (content) })
    }

    fn render_account(&self) -> Markup {
        html! {
            @if self.principal.csrf.is_some() {
                p.roomy { "Signed in as " b { (self.principal.name) } }
                form method="post" action="/logout" { (csrf_field(self.principal)) button.quiet { "Sign out" } }
            } @else {
                p.faint {
                    span.roomy { @if self.is_allowed(Permission::Use) { "Looking and calling. " } @else { "Viewing only. " } } a href="/login" { "Sign in" } span.roomy { " to make changes." }
                }
             }
        }
    }
}

/// A page for somebody we know nothing of.
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
                script src=(SCRIPT.path) type="module" {}
            }
            body {
                a.skip href="#main" { "Skip to content" }
                header.side { div.inner {
                    a.brand href="/" { img src=(LOGO.path) alt="" width="24" height="24"; "Toolcrib" }
                    (navigation)
                } }
                main id="main" tabindex="-1" { (content) }
                p.unseen id="told" role="status" aria-live="polite" {}
            }
        }
    }
}
