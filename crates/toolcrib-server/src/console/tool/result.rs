//! Renders the result of a call: text, indented JSON, images of a few safe types, and errors.
//!
//! Results are untrusted. Nothing in them becomes markup: text is escaped and sanitised, and images are embedded as
//! data, so that a page never loads anything from an address that a tool chose.

use maud::{Markup, html};
use serde_json::Value;
use toolcrib::core::json::parse_exact;
use toolcrib::core::text::{sanitize, sanitize_truncated};
use toolcrib::{CallOutput, Error};

use super::{elapsed_text, pretty_json};
use crate::console::activity_list::tool_path;
use crate::console::csrf_field;
use crate::console::page::PageContext;
use crate::console::text::{Tone, state_badge};

/// Image types without active content; SVG is not among them.
const IMAGE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/// Maximum size of an image, as base64. A larger one is shown as JSON with its data cut off.
const MAX_IMAGE_LEN: usize = 4 * 1024 * 1024;
/// Maximum size of a rendered text, in bytes. The page says how much is left out.
const MAX_TEXT_LEN: usize = 100_000;

/// Form field with the cursor of the next page of a large result.
pub(super) const PAGE_FIELD_NAME: &str = "page";

/// Renders the empty result area. The live region must exist before a call, or screen readers do not announce the outcome.
pub(super) fn render_empty() -> Markup {
    render_outcome(html! {})
}

/// Renders the live region. It keeps its id across calls, so that the script updates it in place.
fn render_outcome(content: Markup) -> Markup {
    html! { div id="outcome" role="status" { (content) } }
}

/// Renders the output or the error of a call.
pub(super) fn render_result(context: &PageContext<'_>, tool: &str, result: &Result<CallOutput, Error>) -> Markup {
    match result {
        Ok(output) => html! {
            (render_outcome(html! { h3 {
                @if output.is_error() {
                    (state_badge(Tone::Bad, "error reported by the tool"))
                } @else {
                    (state_badge(Tone::Good, "done"))
                }
                " "
                small.faint { (elapsed_text(output.elapsed_ms)) }
            } }))
            @for block in parse_blocks(output.content()) { (render_block(&block)) }
            @if let Some(structured) = output.structured() { h4 { "Structured content" } (render_text(structured)) }
            @if let Some(page) = &output.page {
                p.faint { "Page " (page.number) " of " (page.page_count) " of a large result." }
                @if let Some(next) = &page.next {
                    form method="post" action=(format!("{}/call#try", tool_path(tool))) data-call {
                        (csrf_field(context.client))
                        input type="hidden" name=(PAGE_FIELD_NAME) value=(next);
                        button { "Next page" }
                    }
                }
            }
        },
        Err(error) => html! {
            (render_outcome(html! { h3 { (state_badge(Tone::Bad, error.code.as_str())) } }))
            pre.message tabindex="0" role="group" aria-label="Error details" { (sanitize(&error.message)) }
            @if let Some(details) = &error.details {
                details { summary { "Details" } pre tabindex="0" { code { (sanitize(&pretty_json(details))) } } }
            }
        },
    }
}

/// Content that is not a list of blocks shows as nothing.
fn parse_blocks(content: &str) -> Vec<Value> {
    serde_json::from_str(content).unwrap_or_default()
}

/// Renders one content block; types other than text and image as JSON.
fn render_block(block: &Value) -> Markup {
    let field = |key: &str| block.get(key).and_then(Value::as_str);
    match field("type") {
        Some("text") => render_text(field("text").unwrap_or_default()),
        Some("image") => {
            render_image(field("mimeType"), field("data")).unwrap_or_else(|| render_text(&block_json(block)))
        }
        _ => render_text(&block_json(block)),
    }
}

/// Renders an image as a data URL, if its type is safe and its data is base64.
fn render_image(mime_type: Option<&str>, data: Option<&str>) -> Option<Markup> {
    let mime_type = IMAGE_TYPES.into_iter().find(|known| Some(*known) == mime_type)?;
    let data = data?;
    let is_base64 = data.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'='));
    let is_valid = is_base64 && data.len() <= MAX_IMAGE_LEN;
    is_valid.then(|| {
        html! {
            figure {
                img src=(format!("data:{mime_type};base64,{data}")) alt="Image returned by the tool";
                figcaption.faint { (mime_type) }
            }
        }
    })
}

/// Formats a block as JSON, with its base64 data truncated.
fn block_json(block: &Value) -> String {
    let mut block = block.clone();
    for key in ["data", "blob"] {
        if let Some(Value::String(data)) = block.get_mut(key) {
            *data = sanitize_truncated(data, 60);
        }
    }
    pretty_json(&block)
}

/// Renders a text; JSON objects and arrays are indented.
fn render_text(text: &str) -> Markup {
    let parsed: Option<Value> = parse_exact(text).ok().filter(|value: &Value| value.is_object() || value.is_array());
    let text = parsed.map_or_else(|| text.to_owned(), |value| pretty_json(&value));
    let end = text.floor_char_boundary(MAX_TEXT_LEN);
    html! {
        pre.answer tabindex="0" { code { (sanitize(&text[..end])) } }
        @if end < text.len() { p.faint { "The rest (" (text.len() - end) " bytes) is not shown." } }
    }
}
