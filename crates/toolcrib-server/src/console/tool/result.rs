//! What a call answered: text as text, JSON in lines, pictures of a few plain kinds, errors with their code.

use maud::{Markup, html};
use serde_json::Value;
use toolcrib::core::text::{sanitize as clean, sanitize_truncated};
use toolcrib::{CallOutput, Error};

use super::{elapsed_text, pretty_json};
use crate::console::activity_list::tool_path;
use crate::console::csrf_field;
use crate::console::page::PageContext;
use crate::console::text::{Tone, state_badge};

/// Kinds that a browser draws and runs nothing of.
const IMAGE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/// What a page can carry of one picture, as base64.
const MAX_IMAGE_LEN: usize = 4 * 1024 * 1024;
const MAX_TEXT_LEN: usize = 100_000;

/// The field that asks for more of a large result.
pub(super) const PAGE_FIELD_NAME: &str = "page";

/// Before anything was called: what says aloud how a call ended has to be there already.
pub(super) fn render_empty() -> Markup {
    render_outcome(html! {})
}

fn render_outcome(words: Markup) -> Markup {
    html! { div id="outcome" role="status" { (words) } }
}

pub(super) fn render_result(context: &PageContext<'_>, tool: &str, answered: &Result<CallOutput, Error>) -> Markup {
    match answered {
        Ok(output) => html! {
            (render_outcome(html! { h3 {
                @if output.is_error() {
                    (state_badge(Tone::Bad, "the tool says that it failed"))
                } @else {
                    (state_badge(Tone::Good, "done"))
                }
                " "
                small.faint { (elapsed_text(output.elapsed_ms)) }
            } }))
            @for block in parse_blocks(output.content()) { (render_block(&block)) }
            @if let Some(structured) = output.structured() { h4 { "Structured" } (render_text(structured)) }
            @if let Some(page) = &output.page {
                p.faint { "Page " (page.number) " of " (page.page_count) " of a large result." }
                @if let Some(next) = &page.next {
                    form method="post" action=(format!("{}/call#try", tool_path(tool))) data-call {
                        (csrf_field(context.principal))
                        input type="hidden" name=(PAGE_FIELD_NAME) value=(next);
                        button { "Next page" }
                    }
                }
            }
        },
        Err(error) => html! {
            (render_outcome(html! { h3 { (state_badge(Tone::Bad, error.code.as_str())) } }))
            pre.message tabindex="0" role="group" aria-label="What it said" { (clean(&error.message)) }
            @if let Some(details) = &error.details {
                details { summary { "Details" } pre tabindex="0" { code { (clean(&pretty_json(details))) } } }
            }
        },
    }
}

fn parse_blocks(content: &str) -> Vec<Value> {
    serde_json::from_str(content).unwrap_or_default()
}

fn render_block(block: &Value) -> Markup {
    let said = |key: &str| block.get(key).and_then(Value::as_str);
    match said("type") {
        Some("text") => render_text(said("text").unwrap_or_default()),
        Some("image") => {
            render_image(said("mimeType"), said("data")).unwrap_or_else(|| render_text(&block_json(block)))
        }
        _ => render_text(&block_json(block)),
    }
}

/// A picture, where it is of a known kind and nothing but base64.
fn render_image(kind: Option<&str>, data: Option<&str>) -> Option<Markup> {
    let (kind, data) = (IMAGE_TYPES.into_iter().find(|known| Some(*known) == kind)?, data?);
    let plain = data.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'='));
    let fits = plain && data.len() <= MAX_IMAGE_LEN;
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
fn block_json(block: &Value) -> String {
    let mut block = block.clone();
    for key in ["data", "blob"] {
        if let Some(Value::String(data)) = block.get_mut(key) {
            *data = sanitize_truncated(data, 60);
        }
    }
    pretty_json(&block)
}

fn render_text(text: &str) -> Markup {
    let parsed: Option<Value> =
        serde_json::from_str(text).ok().filter(|value: &Value| value.is_object() || value.is_array());
    let text = parsed.map_or_else(|| text.to_owned(), |value| pretty_json(&value));
    let cut = text.floor_char_boundary(MAX_TEXT_LEN);
    html! {
        pre.answer tabindex="0" { code { (clean(&text[..cut])) } }
        @if cut < text.len() { p.faint { "The rest (" (text.len() - cut) " bytes) is left out here." } }
    }
}
