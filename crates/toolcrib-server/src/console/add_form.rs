//! The form that adds a source. Its fields are parsed into the keys of a configuration file.
//!
//! ```text
//! kind=command&name=files&command=npx -y server-files .&env=TOKEN=x
//! → { "command": "npx", "args": ["-y", "server-files", "."], "env": { "TOKEN": "x" } }
//! ```
//!
//! All fields of all kinds are in the form; the style sheet hides those of other kinds, so no script is needed. The
//! keys are checked like those of a `POST /api/sources`.

use maud::{Markup, html};
use serde_json::{Map, Value, json};
use toolcrib::{Code, Error, Result};

use super::csrf_field;
use super::form_data::FormData;
use super::page::PageContext;

/// Renders the form inside a disclosure, which is initially open if `open` is set.
pub(super) fn render_form(context: &PageContext<'_>, open: bool) -> Markup {
    html! {
        details.add open[open] data-keep {
            summary { "Add a source" }
            // The id is on the form and not on the disclosure: browsers open a closed disclosure around a link target.
            form.stack id="add" method="post" action="/sources" data-act {
                (csrf_field(context.client))
                fieldset.kinds {
                    legend { "Kind" }
                    (kind_option("command", "MCP server on stdio", true))
                    (kind_option("url", "Remote MCP server", false))
                    (kind_option("openapi", "API with an OpenAPI document", false))
                    (kind_option("workflow", "Workflow (Arazzo)", false))
                }
                (text_input("name", "Name", "github", "Prefix of its tools: name__tool", true))
                (command_fields())
                (remote_fields())
                p { button.primary { "Add and discover" } }
            }
        }
    }
}

/// Fields of an MCP server on stdio.
fn command_fields() -> Markup {
    html! {
        div.for-command {
            (text_input("command", "Command", "npx -y @modelcontextprotocol/server-everything",
                "Program and arguments, as in a shell; quotes group words", false))
            (multiline_input("env", "Environment", "TOKEN=${env:TOKEN}",
                "NAME=VALUE, one per line; a reference keeps a secret out of the store"))
            (text_input("cwd", "Working directory", "", "Default: the working directory of the Toolcrib process", false))
        }
    }
}

/// Fields of the other kinds. The style sheet shows those of the selected kind.
fn remote_fields() -> Markup {
    html! {
        div.for-url {
            (text_input("url", "URL", "https://docs.example.com/mcp", "MCP endpoint of the server", false))
            label {
                span { "Transport" }
                select name="transport" {
                    option value="http" { "Streamable HTTP" }
                    option value="sse" { "SSE (legacy)" }
                }
            }
        }
        div.for-openapi {
            (text_input("openapi", "Document", "https://shop.example.com/openapi.json",
                "File or URL, JSON or YAML", false))
            (text_input("base_url", "Base URL", "", "Overrides the server URL in the document", false))
        }
        div.for-workflow { (text_input("workflow", "Document", "./errands.arazzo.yaml", "File, JSON or YAML", false)) }
        div.for-url.for-openapi {
            (secret_input("bearer", "Bearer token", "${env:DOCS_TOKEN}", "Best as a reference: ${env:NAME} or ${file:PATH}"))
            (multiline_input("headers", "Headers", "X-Team: core", "Name: value, one per line"))
        }
    }
}

/// Renders the radio button of a kind of source; the style sheet shows its fields while it is checked.
fn kind_option(value: &str, label: &str, checked: bool) -> Markup {
    html! { label { input type="radio" name="kind" value=(value) checked[checked]; span { (label) } } }
}

fn text_input(name: &str, label: &str, placeholder: &str, hint: &str, required: bool) -> Markup {
    labelled_input(name, label, hint, |id| {
        html! {
            input name=(name) placeholder=(placeholder) required[required] aria-describedby=(id) autocomplete="off"
                spellcheck="false";
        }
    })
}

/// A password input, so that a token that was typed in is not readable on the screen.
fn secret_input(name: &str, label: &str, placeholder: &str, hint: &str) -> Markup {
    labelled_input(name, label, hint, |id| {
        html! {
            input type="password" name=(name) placeholder=(placeholder) aria-describedby=(id) autocomplete="off"
                spellcheck="false";
        }
    })
}

/// Renders an input for pairs, one per line.
fn multiline_input(name: &str, label: &str, placeholder: &str, hint: &str) -> Markup {
    labelled_input(name, label, hint, |id| {
        html! { textarea name=(name) rows="2" placeholder=(placeholder) spellcheck="false" aria-describedby=(id) {} }
    })
}

/// Renders an input with its label and hint; `control` gets the id of the hint.
fn labelled_input(name: &str, label: &str, hint: &str, control: impl FnOnce(&str) -> Markup) -> Markup {
    let id = format!("add-{name}-hint");
    html! {
        div.field {
            label { span { (label) } (control(&id)) }
            small id=(id) { (hint) }
        }
    }
}

/// Returns the name and the keys that the form describes. Fields of other kinds than the selected one are ignored.
pub(super) fn parse_form(form_data: &FormData) -> Result<(String, Map<String, Value>)> {
    let optional = |key: &str| form_data.get(key).map(str::trim).filter(|text| !text.is_empty());
    let required = |key: &str, label: &str| {
        optional(key).ok_or_else(|| Error::new(Code::BadRequest, format!("{label} is missing")))
    };
    let mut keys = Map::new();
    let kind = optional("kind").unwrap_or("command");
    match kind {
        "command" => {
            let mut command = split_command(required("command", "the command")?)?.into_iter();
            keys.insert("command".into(), json!(command.next()));
            keys.insert("args".into(), command.collect());
            keys.insert("env".into(), parse_pairs(optional("env"), '=')?);
            if let Some(directory) = optional("cwd") {
                keys.insert("cwd".into(), json!(directory));
            }
        }
        "url" => {
            keys.insert("url".into(), json!(required("url", "the URL")?));
            keys.insert("transport".into(), json!(optional("transport").unwrap_or("http")));
        }
        "openapi" => {
            keys.insert("openapi".into(), json!(required("openapi", "the document")?));
            if let Some(base) = optional("base_url") {
                keys.insert("base_url".into(), json!(base));
            }
        }
        "workflow" => {
            keys.insert("workflow".into(), json!(required("workflow", "the document")?));
        }
        _ => {
            return Err(Error::new(
                Code::BadRequest,
                "unknown kind of source; choose a command, a URL, an OpenAPI document or a workflow",
            ));
        }
    }
    // Both kinds send HTTP requests, so they share the fields for credentials.
    if matches!(kind, "url" | "openapi") {
        keys.insert("headers".into(), parse_pairs(optional("headers"), ':')?);
        if let Some(token) = optional("bearer") {
            keys.insert("auth".into(), json!({ "bearer": token }));
        }
    }
    Ok((required("name", "the name")?.to_owned(), keys))
}

/// Parses one pair per line. The error does not repeat the line, which may be a secret.
fn parse_pairs(lines: Option<&str>, separator: char) -> Result<Value> {
    let mut pairs = Map::new();
    for line in lines.unwrap_or_default().lines().filter(|line| !line.trim().is_empty()) {
        let Some((name, value)) = line.split_once(separator).filter(|(name, _)| !name.trim().is_empty()) else {
            return Err(Error::new(Code::BadRequest, format!("malformed line; write `NAME{separator}VALUE`")));
        };
        pairs.insert(name.trim().to_owned(), json!(value.trim()));
    }
    Ok(pairs.into())
}

/// Splits a command line like a POSIX shell: at whitespace, with single and double quotes and backslash escapes.
fn split_command(line: &str) -> Result<Vec<String>> {
    let mut words = Vec::new();
    let mut word = None::<String>;
    let mut quote = None::<char>;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match (quote, character) {
            (Some(open), _) if character == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            // Between single quotes a backslash is an ordinary character.
            (None | Some('"'), '\\') => word.get_or_insert_default().extend(characters.next()),
            (None, _) if character.is_whitespace() => words.extend(word.take()),
            (Some(_) | None, _) => word.get_or_insert_default().push(character),
        }
    }
    if quote.is_some() {
        return Err(Error::new(Code::BadRequest, "unclosed quote in the command"));
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_split_like_in_a_shell() {
        let split = |line: &str| split_command(line).unwrap();
        assert_eq!(split("npx  -y server ."), ["npx", "-y", "server", "."]);
        assert_eq!(split(r#"sh -c 'echo "a b"' "" c\ d"#), ["sh", "-c", "echo \"a b\"", "", "c d"]);
        assert!(split_command("sh 'open").is_err());
    }

    #[test]
    fn a_form_becomes_the_keys_of_a_configuration_file() {
        let form_data = FormData::parse(
            "kind=url&name=docs&url=https%3A%2F%2Fx%2Fmcp&transport=http&headers=X-Team%3A+core%0D%0A&bearer=&command=",
        );
        let (name, keys) = parse_form(&form_data).unwrap();
        assert_eq!(name, "docs");
        assert_eq!(
            Value::Object(keys),
            json!({ "url": "https://x/mcp", "transport": "http", "headers": { "X-Team": "core" } })
        );
        let error = parse_form(&FormData::parse("kind=url&name=docs&url=x&headers=hunter2")).unwrap_err();
        assert!(!error.message.contains("hunter2"), "{}", error.message);
    }
}
