//! What every page has: head, navigation, and a place for its own content.

use maud::{DOCTYPE, Markup, html};

pub(super) fn page(title: &str, content: Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) " · Toolcrib" }
            }
            body { main { h1 { (title) } (content) } }
        }
    }
}
