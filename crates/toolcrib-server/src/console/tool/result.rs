//! What a call answered: text as text, JSON in lines, pictures of a few plain kinds, errors with their code.

use maud::{Markup, html};
use serde_json::Value;
use toolcrib::core::text::{shown as clean, shown_short};
use toolcrib::{Error, Output};

use super::{pretty, took};
use crate::console::guarded;
use crate::console::happened::tool_path;
use crate::console::page::Frame;
use crate::console::words::{Tone, state};

/// Kinds that a browser draws and runs nothing of.
const PICTURES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/// What a page can carry of one picture, as base64.
const LARGEST_PICTURE: usize = 4 * 1024 * 1024;
const LONGEST_TEXT: usize = 100_000;

/// The field that asks for more of a large result.
pub(super) const PAGE: &str = "page";

/// Before anything was called: what says aloud how a call ended has to be there already.
pub(super) fn none() -> Markup {
    outcome(html! {})
}

fn outcome(words: Markup) -> Markup {
    html! { div id="outcome" role="status" { (words) } }
}

pub(super) fn shown(frame: &Frame<'_>, tool: &str, answered: &Result<Output, Error>) -> Markup {
    match answered {
        Ok(output) => html! {
            (outcome(html! { h3 {
                @if output.is_error() {
                    (state(Tone::Bad, "the tool says that it failed"))
                } @else {
                    (state(Tone::Good, "done"))
                }
                " "
                small.faint { (took(output.elapsed_ms)) }
            } }))
            @for block in blocks(output.content()) { (one(&block)) }
            @if let Some(structured) = output.structured() { h4 { "Structured" } (text(structured)) }
            @if let Some(page) = &output.page {
                p.faint { "Page " (page.number) " of " (page.of) " of a large result." }
                @if let Some(next) = &page.next {
                    form method="post" action=(format!("{}/call#try", tool_path(tool))) data-call {
                        (guarded(frame.visitor))
                        input type="hidden" name=(PAGE) value=(next);
                        button { "Next page" }
                    }
                }
            }
        },
        Err(error) => html! {
            (outcome(html! { h3 { (state(Tone::Bad, error.code.as_str())) } }))
            pre.message tabindex="0" role="group" aria-label="What it said" { (clean(&error.message)) }
            @if let Some(details) = &error.details {
                details { summary { "Details" } pre tabindex="0" { code { (clean(&pretty(details))) } } }
            }
        },
    }
}

fn blocks(content: &str) -> Vec<Value> {
    serde_json::from_str(content).unwrap_or_default()
}

fn one(block: &Value) -> Markup {
    let said = |key: &str| block.get(key).and_then(Value::as_str);
    match said("type") {
        Some("text") => text(said("text").unwrap_or_default()),
        Some("image") => picture(said("mimeType"), said("data")).unwrap_or_else(|| text(&without_data(block))),
        _ => text(&without_data(block)),
    }
}

/// A picture, where it is of a known kind and nothing but base64.
fn picture(kind: Option<&str>, data: Option<&str>) -> Option<Markup> {
    let (kind, data) = (PICTURES.into_iter().find(|known| Some(*known) == kind)?, data?);
    let plain = data.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'='));
    let fits = plain && data.len() <= LARGEST_PICTURE;
    fits.then(|| {
        html! {
            figure {
                img src=(format!("data:{kind};base64,{data}")) alt="The picture that the tool answered with";
                figcaption.faint { (kind) }
            }
        }
    })
}

/// A block that is shown as JSON; of what it carries as base64 only the beginning.
fn without_data(block: &Value) -> String {
    let mut block = block.clone();
    for key in ["data", "blob"] {
        if let Some(Value::String(data)) = block.get_mut(key) {
            *data = shown_short(data, 60);
        }
    }
    pretty(&block)
}

fn text(text: &str) -> Markup {
    let parsed: Option<Value> =
        serde_json::from_str(text).ok().filter(|value: &Value| value.is_object() || value.is_array());
    let text = parsed.map_or_else(|| text.to_owned(), |value| pretty(&value));
    let cut = text.floor_char_boundary(LONGEST_TEXT);
    html! {
        pre.answer tabindex="0" { code { (clean(&text[..cut])) } }
        @if cut < text.len() { p.faint { "The rest (" (text.len() - cut) " bytes) is left out here." } }
    }
}
