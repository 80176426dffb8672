//! `toolcrib call`: calls one tool, with arguments typed by its schema, and prints its result.
//!
//! Arguments come from `--args` and from pairs, which override it. A pair is text or JSON:
//!
//! ```text
//! query=open          "open", or 5, true, null if the schema says so
//! labels:='["bug"]'   the JSON value, whatever the schema says
//! ```
//!
//! Names, policies and validation are those of the library (`toolcrib::call`), the same as for agents.

mod output_file;

use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value};
use toolcrib::call::CallDeadline;
use toolcrib::connector::{NOTES_KEY, PAGINATION_KEY};
use toolcrib::core::json::parse_exact;
use toolcrib::core::text::sanitize;
use toolcrib::schema::parse_typed;
use toolcrib::{CallContext, CallOutput, Code, Error, Registry, Result, ResultPaging};

use crate::arguments::CommonArguments;
use crate::discovery_wait::{DiscoveryArguments, parse_wait_duration};
use crate::exit::CommandOutcome;
use crate::input::read_option_text;
use crate::output;
use crate::session::CliSession;
use output_file::{ContentDestination, write_result};

/// Call a tool and print its result
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib call everything__get_sum a=1 b=2
  toolcrib call github/search_issues query='is:open' labels:='[\"bug\"]'
  toolcrib call files__write_file --args @arguments.json --yes
  toolcrib call shop__download_invoice id=7 --output invoice.pdf
  echo '{\"text\":\"hi\"}' | toolcrib call echo --args -")]
pub(crate) struct Arguments {
    /// `source__tool`, `source/tool`, `source:tool`, or the tool's own name when it is unique
    name: String,
    /// `KEY=VALUE`, typed by the tool's schema, or `KEY:=JSON`
    #[arg(value_name = "KEY=VALUE")]
    pairs: Vec<String>,
    /// All arguments as a JSON object: as text, from a file (`@FILE`), or from stdin (`-`); pairs override them
    #[arg(long, value_name = "JSON|@FILE|-")]
    args: Option<String>,
    /// Timeout of the call, such as `30s` or `2m`; by default the `call_timeout` of the source
    #[arg(long, value_name = "DURATION", value_parser = parse_wait_duration)]
    timeout: Option<Duration>,
    /// Consent to the call of a tool whose policy is `ask`
    #[arg(long)]
    yes: bool,
    /// Write the binary content of the result to a file, or to stdout (`-`); of a result without any, its JSON or text
    #[arg(long, value_name = "FILE|-", value_parser = ContentDestination::parse)]
    output: Option<ContentDestination>,
    #[command(flatten)]
    discovery: DiscoveryArguments,
}

/// Calls the tool. A result that the tool marks as an error is printed like any other, with exit code 1.
pub(crate) async fn run(common: &CommonArguments, arguments: Arguments) -> Result<CommandOutcome> {
    if let Some(destination) = &arguments.output {
        destination.check(common.json)?;
    }
    let session = CliSession::open(common).await?;
    let output = session.run_and_close(async |session| call(session, &arguments).await).await?;
    print_result(common, arguments.output.as_ref(), &output)?;
    if !common.json {
        // Notes go to stderr, so that stdout is the result alone.
        for note in toolcrib_notes(&output) {
            output::print_stderr_line(&format!("note: {}", sanitize(&note)));
        }
        if let Some(line) = pagination_line(&output) {
            output::print_stderr_line(&sanitize(&line));
        }
    }
    Ok(if output.is_error() { CommandOutcome::Failure } else { CommandOutcome::Success })
}

/// Prints the result, or writes its content to `destination`. The result of a failed call is for reading, not for a file.
fn print_result(common: &CommonArguments, destination: Option<&ContentDestination>, output: &CallOutput) -> Result<()> {
    match destination {
        Some(destination) if !output.is_error() => {
            let written = write_result(destination, output)?;
            match destination {
                ContentDestination::Stdout => output::print_stderr_line(&written.description),
                ContentDestination::File(_) if common.json => output::print_json(&written.result)?,
                ContentDestination::File(_) => output::print_line(&written.description)?,
            }
        }
        Some(ContentDestination::Stdout) => output::print_stderr_line(&render_output(output)),
        Some(ContentDestination::File(_)) | None if common.json => output::print_json(output)?,
        Some(ContentDestination::File(_)) | None => output::print_line(&render_output(output))?,
    }
    Ok(())
}

/// Discovers the source of the tool if needed, builds the arguments and calls. `--timeout` covers discovery and call
/// together; with `--wait` the discovery has a limit of its own, and without either option each of them has the
/// source's `call_timeout`.
async fn call(session: &CliSession, arguments: &Arguments) -> Result<CallOutput> {
    let registry = &session.registry;
    let deadline = arguments.timeout.map(CallDeadline::after);
    let required = arguments.discovery.required_freshness();
    // Discover only the source of this tool, within the time limit of the call.
    if let Some(source) = registry.sources().find_by_tool_name(&arguments.name)? {
        let own = registry.sources().effective(&source).map(|source| source.settings.call_timeout());
        // `--wait`, else `--timeout`, else the source's own `call_timeout`.
        let limit = arguments.discovery.wait.or(arguments.timeout).or(own).unwrap_or_default();
        session.ensure_for_call(required, source, limit).await;
    }
    // Before the call: a stale schema may explain why the source rejects the arguments.
    session.hint_stale_tool(&arguments.name);
    let json_arguments = read_json_arguments(arguments)?;
    let input = Value::Object(merge_pairs(registry, &arguments.name, json_arguments, &arguments.pairs)?);
    let context =
        CallContext { caller: CliSession::caller(), deadline, consent: arguments.yes, ..CallContext::default() };
    // Discovery was done above. A person or a pipe reads the complete result; only agents get it in pages.
    let call = registry.call(&arguments.name, input).without_discovery().paging(ResultPaging::Whole);
    call.context(context).await
}

/// Reads the value of `--args`: JSON text, `@FILE`, or `-` for stdin. It must be an object; without `--args` it is
/// empty.
fn read_json_arguments(arguments: &Arguments) -> Result<Map<String, Value>> {
    let Some(value) = arguments.args.as_deref() else { return Ok(Map::new()) };
    let text = read_option_text(value)?;
    parse_exact(&text).map_err(|error| Error::new(Code::BadRequest, format!("`--args` must be a JSON object: {error}")))
}

/// Adds `KEY=VALUE` pairs to the arguments, converting values to the types in the tool's input schema.
fn merge_pairs(
    registry: &Registry,
    name: &str,
    mut input: Map<String, Value>,
    pairs: &[String],
) -> Result<Map<String, Value>> {
    if pairs.is_empty() {
        return Ok(input);
    }
    // The call itself reports an unknown tool, with similar names.
    let tool = registry.tool_for(&CliSession::caller(), name).ok();
    let schema = tool.and_then(|tool| serde_json::from_str(tool.tool.listing.input_schema.get()).ok());
    // Without a schema (unknown tool) all values stay strings.
    let schema: Value = schema.unwrap_or_default();
    // A repeated key is an error: neither the last value nor a list would be the obvious meaning.
    let mut seen_keys = std::collections::BTreeSet::new();
    for pair in pairs {
        let (key, text) = pair.split_once('=').ok_or_else(|| {
            let or_args = if pair.trim_start().starts_with('{') { ", or pass the object with `--args`" } else { "" };
            let message = format!("`{}` is no argument; write KEY=VALUE or KEY:=JSON{or_args}", sanitize(pair));
            Error::new(Code::BadRequest, message)
        })?;
        // `KEY:=JSON` is JSON, `KEY=VALUE` text that the schema types.
        let value = match key.strip_suffix(':') {
            Some(_) => parse_exact(text)
                .map_err(|error| Error::new(Code::BadRequest, format!("`{}` is not JSON: {error}", sanitize(pair))))?,
            None => parse_typed(&schema, key, text),
        };
        let key = key.strip_suffix(':').unwrap_or(key);
        if !seen_keys.insert(key) {
            let message = format!("`{0}` is given twice; a list is `{0}:='[…]'`", sanitize(key));
            return Err(Error::new(Code::BadRequest, message));
        }
        input.insert(key.to_owned(), value);
    }
    Ok(input)
}

/// Returns the notes that Toolcrib itself added to the result, e.g. that arguments were not validated.
fn toolcrib_notes(output: &CallOutput) -> Vec<String> {
    let meta: Value = output.meta().and_then(|meta| serde_json::from_str(meta).ok()).unwrap_or_default();
    let notes = meta.get(NOTES_KEY).and_then(Value::as_array).into_iter().flatten();
    notes.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Returns the line about the next page of a list, which Toolcrib appends to the content of an API's response.
fn pagination_line(output: &CallOutput) -> Option<String> {
    let meta: Value = serde_json::from_str(output.meta()?).ok()?;
    meta.get(PAGINATION_KEY)?;
    let blocks: Vec<Value> = serde_json::from_str(output.content()).ok()?;
    blocks.last()?.get("text")?.as_str().map(str::to_owned)
}

/// Renders the result for a terminal: text without control characters, and a description of binary content. `--json`
/// prints the result unchanged.
pub(crate) fn render_output(output: &CallOutput) -> String {
    let mut blocks: Vec<Value> = serde_json::from_str(output.content()).unwrap_or_default();
    // That line goes to stderr, so that stdout is what the API sent.
    if pagination_line(output).is_some() {
        blocks.pop();
    }
    let mut lines: Vec<String> = blocks.iter().map(render_content_block).collect();
    // Structured content without a text block, as some servers send it.
    if lines.is_empty()
        && let Some(structured) = output.structured()
    {
        lines.push(sanitize(structured));
    }
    lines.join("\n")
}

/// Renders one MCP content block.
fn render_content_block(block: &Value) -> String {
    let field = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default();
    match field("type") {
        // Control characters could manipulate the terminal.
        "text" => sanitize(field("text")),
        kind @ ("image" | "audio") => {
            format!(
                "[{kind} {}, {} bytes of base64; `--output FILE` writes it]",
                sanitize(field("mimeType")),
                field("data").len()
            )
        }
        "resource" => {
            let resource = block.get("resource").cloned().unwrap_or_default();
            match resource.get("text").and_then(Value::as_str) {
                Some(text) => sanitize(text),
                None => {
                    let uri = sanitize(resource.get("uri").and_then(Value::as_str).unwrap_or("?"));
                    format!("[resource {uri}; `--output FILE` writes it]")
                }
            }
        }
        "resource_link" => format!("[resource {}]", sanitize(field("uri"))),
        _ => sanitize(&block.to_string()),
    }
}
