//! Snippets to copy: a command line, an HTTP request, and the definition of the tool in each provider's format.

use maud::{Markup, html};
use serde_json::{Map, Value, json};
use toolcrib::catalog::render::{Format, ProjectedTool};
use toolcrib::core::json::parse_exact;
use toolcrib::core::text::sanitize;
use toolcrib::registry::ToolView;

use super::{example, pretty_json};
use crate::console::page::PageContext;

/// Formats with their titles, in the order of the page.
const PROVIDER_FORMATS: [(Format, &str); 5] = [
    (Format::Mcp, "MCP"),
    (Format::Anthropic, "Anthropic"),
    (Format::Openai, "OpenAI"),
    (Format::OpenaiStrict, "OpenAI, strict"),
    (Format::Gemini, "Gemini"),
];

/// Renders all snippets; `host` is the host and port by which the browser reaches the server.
pub(super) fn render_snippets(context: &PageContext<'_>, host: &str, tool: &ToolView, schema: &Value) -> Markup {
    let view = context.catalog_view();
    let name = tool.name.as_str();
    let tool = view.find(name).ok();
    // The same example in both commands.
    let arguments = example::example_arguments(schema);
    // Only where a client on this machine needs one; the token itself is never on the page.
    let token = (!context.app.auth.allows_local_without_token()).then_some("\"Authorization: Bearer $TOKEN\"");
    html! {
        div.snippets {
            (render_snippet("cli", "Command line", &cli_command(name, &arguments), true))
            (render_snippet("curl", "HTTP", &curl_command(host, token, name, &arguments), false))
            @if let Some(tool) = tool { @for (format, title) in PROVIDER_FORMATS {
                @match view.project(&tool, format) {
                    Ok(projected) => { (render_definition(format, title, &projected)) }
                    Err(error) => { details.snippet { summary { (title) } p.message { (error.message) } } }
                }
            } }
        }
    }
}

/// Renders the definition for a provider, or why the provider does not support the tool.
fn render_definition(format: Format, title: &str, projected: &ProjectedTool) -> Markup {
    let text =
        projected.text.as_ref().and_then(|text| parse_exact::<Value>(text).ok()).map(|value| pretty_json(&value));
    html! {
        @match text {
            Some(text) => {
                (render_snippet(format.as_str(), title, &text, false))
            }
            None => {
                details.snippet {
                    summary { (title) }
                    p.message {
                        "Not supported in this format: "
                        (sanitize(projected.unsupported_reason.as_deref().unwrap_or("unknown reason")))
                    }
                }
            }
        }
    }
}

/// The button is hidden until the script shows it, because it needs the clipboard API.
fn render_snippet(id: &str, title: &str, text: &str, open: bool) -> Markup {
    let id = format!("snippet-{id}");
    html! {
        details.snippet name="snippet" open[open] {
            summary { (title) }
            div.copied {
                button.copy hidden data-copy=(id) { "Copy" span.unseen { " " (title) } }
                pre id=(id) tabindex="0" { code { (sanitize(text)) } }
            }
        }
    }
}

/// Builds a `toolcrib call` command.
fn cli_command(name: &str, arguments: &Map<String, Value>) -> String {
    // Such keys would be parsed as an option, or split at the wrong place.
    if arguments.keys().any(|key| key.is_empty() || key.starts_with('-') || key.contains(['=', ':'])) {
        return format!("toolcrib call {name} --args {}", shell_quote(&json!(arguments).to_string()));
    }
    let words = arguments.iter().map(|(key, value)| match value {
        Value::String(text) => format!(" {}", shell_quote(&format!("{key}={text}"))),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            format!(" {}", shell_quote(&format!("{key}:={value}")))
        }
    });
    format!("toolcrib call {name}{}", words.collect::<String>())
}

/// Builds a `curl` command for the REST API. `token` is a complete header in double quotes, so that the shell fills in
/// the variable.
fn curl_command(host: &str, token: Option<&str>, name: &str, arguments: &Map<String, Value>) -> String {
    let url = format!("http://{host}/api/tools/{name}/call");
    let body = json!({ "arguments": arguments }).to_string();
    let token = token.map(|token| format!("  -H {token} \\\n")).unwrap_or_default();
    let content_type = "-H 'Content-Type: application/json'";
    format!("curl {} \\\n{token}  {content_type} \\\n  -d {}", shell_quote(&url), shell_quote(&body))
}

/// Quotes a word for a POSIX shell, if necessary.
fn shell_quote(word: &str) -> String {
    let is_safe = word.chars().all(|character| character.is_ascii_alphanumeric() || "_-=.:/".contains(character));
    if is_safe { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snippet_is_a_single_command_for_any_schema() {
        let properties = json!({ "a'b": { "type": "string", "default": "$(x)" }, "n": { "type": "integer" } });
        let schema = json!({ "required": ["a'b", "n"], "properties": properties });
        assert_eq!(cli_command("s__t", &example::example_arguments(&schema)), r"toolcrib call s__t 'a'\''b=$(x)' n:=1");
        for key in ["--config", "-c", "a=b", "a:", ""] {
            let schema = json!({ "required": [key], "properties": { key: { "type": "string" } } });
            let expected = format!("toolcrib call s__t --args '{{\"{key}\":\"…\"}}'");
            assert_eq!(cli_command("s__t", &example::example_arguments(&schema)), expected);
        }
    }
}
