//! The form that adds a source, and what is read out of it: the keys that would stand in a configuration file.

use maud::{Markup, html};
use serde_json::{Map, Value, json};
use toolcrib::{Code, Error, Result};

use super::csrf_field;
use super::form_data::FormData;
use super::page::PageContext;

pub(super) fn render_form(context: &PageContext<'_>, open: bool) -> Markup {
    html! {
        details.add open[open] data-keep {
            summary { "Add a source" }
            // What an address leads to opens what it is in.
            form.stack id="add" method="post" action="/sources" data-act {
                (csrf_field(context.principal))
                fieldset.kinds {
                    legend { "What it is" }
                    (kind_option("command", "MCP server, started here", true))
                    (kind_option("url", "MCP server, elsewhere", false))
                    (kind_option("openapi", "API with an OpenAPI document", false))
                    (kind_option("workflow", "Workflow (Arazzo)", false))
                }
                (text_input("name", "Name", "github", "Becomes the prefix of its tools: name__tool", true))
                (command_fields())
                (remote_fields())
                p { button.primary { "Add and discover" } }
            }
        }
    }
}

fn command_fields() -> Markup {
    html! {
        div.for-command {
            (text_input("command", "Command", "npx -y @modelcontextprotocol/server-everything",
                "Program and arguments, as in a shell; quotes hold words together", false))
            (multiline_input("env", "Environment", "TOKEN=${env:TOKEN}",
                "NAME=VALUE, one a line; a reference keeps a secret out of the store"))
            (text_input("cwd", "Directory", "", "Where it starts; by itself, beside the configuration", false))
        }
    }
}

fn remote_fields() -> Markup {
    html! {
        div.for-url {
            (text_input("url", "Address", "https://docs.example.com/mcp", "Where it answers", false))
            label {
                span { "Transport" }
                select name="transport" {
                    option value="http" { "Streamable HTTP" }
                    option value="sse" { "SSE (older)" }
                }
            }
        }
        div.for-openapi {
            (text_input("openapi", "Document", "https://shop.example.com/openapi.json",
                "A file or an address, JSON or YAML", false))
            (text_input("base_url", "Base address", "", "Where requests go, whatever the document says", false))
        }
        div.for-workflow { (text_input("workflow", "Document", "./errands.arazzo.yaml", "A file", false)) }
        div.for-url.for-openapi {
            (secret_input("bearer", "Bearer token", "${env:DOCS_TOKEN}", "Best as a reference: ${env:NAME} or ${file:PATH}"))
            (multiline_input("headers", "Headers", "X-Team: core", "Name: value, one a line"))
        }
    }
}

fn kind_option(value: &str, words: &str, checked: bool) -> Markup {
    html! { label { input type="radio" name="kind" value=(value) checked[checked]; span { (words) } } }
}

fn text_input(name: &str, label: &str, placeholder: &str, hint: &str, required: bool) -> Markup {
    labelled_input(name, label, hint, |id| {
        html! {
            input name=(name) placeholder=(placeholder) required[required] aria-describedby=(id) autocomplete="off"
                spellcheck="false";
        }
    })
}

fn secret_input(name: &str, label: &str, placeholder: &str, hint: &str) -> Markup {
    labelled_input(name, label, hint, |id| {
        html! {
            input type="password" name=(name) placeholder=(placeholder) aria-describedby=(id) autocomplete="off"
                spellcheck="false";
        }
    })
}

fn multiline_input(name: &str, label: &str, placeholder: &str, hint: &str) -> Markup {
    labelled_input(name, label, hint, |id| {
        html! { textarea name=(name) rows="2" placeholder=(placeholder) spellcheck="false" aria-describedby=(id) {} }
    })
}

/// What is typed into, between its label and its hint.
fn labelled_input(name: &str, label: &str, hint: &str, control: impl FnOnce(&str) -> Markup) -> Markup {
    let id = format!("add-{name}-hint");
    html! {
        div.field {
            label { span { (label) } (control(&id)) }
            small id=(id) { (hint) }
        }
    }
}

/// The name and the keys that somebody filled in.
pub(super) fn parse_form(fields: &FormData) -> Result<(String, Map<String, Value>)> {
    let given = |key: &str| fields.get(key).map(str::trim).filter(|text| !text.is_empty());
    let needed =
        |key: &str, words: &str| given(key).ok_or_else(|| Error::new(Code::BadRequest, format!("{words} is missing")));
    let mut keys = Map::new();
    let kind = given("kind").unwrap_or("command");
    match kind {
        "command" => {
            let mut command = split_command(needed("command", "the command")?)?.into_iter();
            keys.insert("command".into(), json!(command.next()));
            keys.insert("args".into(), command.collect());
            keys.insert("env".into(), parse_pairs(given("env"), '=')?);
            if let Some(directory) = given("cwd") {
                keys.insert("cwd".into(), json!(directory));
            }
        }
        "url" => {
            keys.insert("url".into(), json!(needed("url", "the address")?));
            keys.insert("transport".into(), json!(given("transport").unwrap_or("http")));
        }
        "openapi" => {
            keys.insert("openapi".into(), json!(needed("openapi", "the document")?));
            if let Some(base) = given("base_url") {
                keys.insert("base_url".into(), json!(base));
            }
        }
        "workflow" => {
            keys.insert("workflow".into(), json!(needed("workflow", "the document")?));
        }
        _ => {
            return Err(Error::new(
                Code::BadRequest,
                "a source is a command, an address, an OpenAPI document or a workflow",
            ));
        }
    }
    if matches!(kind, "url" | "openapi") {
        keys.insert("headers".into(), parse_pairs(given("headers"), ':')?);
        if let Some(token) = given("bearer") {
            keys.insert("auth".into(), json!({ "bearer": token }));
        }
    }
    Ok((needed("name", "the name")?.to_owned(), keys))
}

/// What was written wrongly is not repeated: it may be a secret.
fn parse_pairs(lines: Option<&str>, separator: char) -> Result<Value> {
    let mut pairs = Map::new();
    for line in lines.unwrap_or_default().lines().filter(|line| !line.trim().is_empty()) {
        let Some((name, value)) = line.split_once(separator).filter(|(name, _)| !name.trim().is_empty()) else {
            return Err(Error::new(Code::BadRequest, format!("a line is not of the form `NAME{separator}VALUE`")));
        };
        pairs.insert(name.trim().to_owned(), json!(value.trim()));
    }
    Ok(pairs.into())
}

/// A command line as words: blanks part them, quotes hold them together, a backslash takes the next as it is.
fn split_command(line: &str) -> Result<Vec<String>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None::<char>);
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match (quote, character) {
            (Some(open), _) if character == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => word.get_or_insert_default().extend(characters.next()),
            (None, _) if character.is_whitespace() => words.extend(word.take()),
            (Some(_) | None, _) => word.get_or_insert_default().push(character),
        }
    }
    if quote.is_some() {
        return Err(Error::new(Code::BadRequest, "a quote in the command is not closed"));
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_read_as_a_shell_would() {
        let read = |line: &str| split_command(line).unwrap();
        assert_eq!(read("npx  -y server ."), ["npx", "-y", "server", "."]);
        assert_eq!(read(r#"sh -c 'echo "a b"' "" c\ d"#), ["sh", "-c", "echo \"a b\"", "", "c d"]);
        assert!(split_command("sh 'open").is_err());
    }

    #[test]
    fn a_filled_form_is_what_a_file_would_say() {
        let fields = FormData::parse(
            "kind=url&name=docs&url=https%3A%2F%2Fx%2Fmcp&transport=http&headers=X-Team%3A+core%0D%0A&bearer=&command=",
        );
        let (name, keys) = parse_form(&fields).unwrap();
        assert_eq!(name, "docs");
        assert_eq!(
            Value::Object(keys),
            json!({ "url": "https://x/mcp", "transport": "http", "headers": { "X-Team": "core" } })
        );
        let wrong = parse_form(&FormData::parse("kind=url&name=docs&url=x&headers=hunter2")).unwrap_err();
        assert!(!wrong.message.contains("hunter2"), "{}", wrong.message);
    }
}
