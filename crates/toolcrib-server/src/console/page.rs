//! What every page has: head, navigation, who is looking, and a place for its own content.

use maud::{DOCTYPE, Markup, html};
use toolcrib::Caller;
use toolcrib::core::catalog::View;

use super::assets::{MARK, SCRIPT, STYLE};
use super::attention;
use super::guarded;
use super::words::grouped;
use crate::access::{Needs, Visitor};
use crate::house::House;

/// Where in the navigation a page stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Here {
    Overview,
    Sources,
    Tools,
    Activity,
}

/// Who looks at which page.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    pub(super) house: &'a House,
    pub(super) visitor: &'a Visitor,
}

impl Frame<'_> {
    pub(super) fn may(&self, needs: Needs) -> bool {
        self.visitor.role.may(needs)
    }

    /// The catalogue as pages show it: what is listed here is what is counted everywhere.
    pub(super) fn view(&self) -> View {
        self.house.registry.view(&Caller { name: "console".into() })
    }

    /// A whole page; `title` is text from anywhere.
    pub(super) fn page(&self, here: Here, title: &str, content: Markup) -> Markup {
        let (sources, tools) = (self.house.registry.sources().len(), self.view().listed().count());
        let counts = |number: usize| Some(grouped(number as u64));
        let links = [
            (Here::Overview, "/", "Overview", None),
            (Here::Sources, "/sources", "Sources", counts(sources)),
            (Here::Tools, "/tools", "Tools", counts(tools)),
            (Here::Activity, "/activity", "Activity", None),
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
                (self.who())
                p.faint.roomy { "Toolcrib " (env!("CARGO_PKG_VERSION")) }
            }
        };
        shell(title, navigation, html! { (attention::store(&self.house.registry)) (content) })
    }

    fn who(&self) -> Markup {
        html! {
            @if self.visitor.csrf.is_some() {
                p.roomy { "Signed in as " b { (self.visitor.name) } }
                form method="post" action="/logout" { (guarded(self.visitor)) button.quiet { "Sign out" } }
            } @else {
                p.faint {
                    span.roomy { @if self.may(Needs::Using) { "Looking and calling. " } @else { "Viewing only. " } } a href="/login" { "Sign in" } span.roomy { " to make changes." }
                }
             }
        }
    }
}

/// A page for somebody we know nothing of.
pub(super) fn shell(title: &str, navigation: Markup, content: Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · Toolcrib" }
                link rel="icon" type="image/svg+xml" href=(MARK.path);
                link rel="stylesheet" href=(STYLE.path);
                script src=(SCRIPT.path) type="module" {}
            }
            body {
                a.skip href="#main" { "Skip to content" }
                header.side { div.inner {
                    a.brand href="/" { img src=(MARK.path) alt="" width="24" height="24"; "Toolcrib" }
                    (navigation)
                } }
                main id="main" tabindex="-1" { (content) }
                p.unseen id="told" role="status" aria-live="polite" {}
            }
        }
    }
}
