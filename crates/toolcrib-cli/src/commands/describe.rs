//! `toolcrib describe`: what a tool is, what it takes, and who may call it.

use clap::Args;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use toolcrib::core::catalog::State;
use toolcrib::core::manifest::SetAside;
use toolcrib::core::outline;
use toolcrib::core::render::{Format, Loss, Projected};
use toolcrib::core::text::{shown, shown_short};
use toolcrib::core::tool::Note;
use toolcrib::core::{Error, ResultExt};
use toolcrib::registry::ToolDetail;
use toolcrib::{Code, Result};

use crate::arguments::Common;
use crate::commands::sources::ago;
use crate::commands::tools::{NeedArguments, hint_set_aside};
use crate::desk::Desk;
use crate::exit::Done;

use crate::pretty::pretty;
use crate::{output, paint, progress};

/// Show what a tool is and which arguments it takes
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib describe github__create_issue
  toolcrib describe github/create_issue files:read_file --json
  toolcrib describe create_issue --full
  toolcrib describe create_issue --format anthropic
  toolcrib describe create_issue --format gemini --explain")]
pub(crate) struct Arguments {
    /// `source__tool`, `source/tool`, `source:tool`, or the tool's own name when it is unique
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
    /// Add the complete schemas, and the definition as the source gave it
    #[arg(long)]
    full: bool,
    /// Print an array as that provider takes it
    #[arg(long, value_name = "FORMAT", value_parser = ["mcp", "anthropic", "openai", "openai-strict", "gemini"])]
    format: Option<String>,
    /// With `--format`: list every edit that loses something, instead of the tool
    #[arg(long, requires = "format")]
    explain: bool,
    #[command(flatten)]
    need: NeedArguments,
}

pub(crate) async fn run(common: &Common, arguments: Arguments) -> Result<Done> {
    let desk = Desk::open(common).await?;
    let mut found: Vec<(&str, Result<ToolDetail>)> = Vec::new();
    for name in &arguments.names {
        found.push((name, look_up(&desk, name, &arguments.need).await));
    }
    let formatted = match arguments.format.as_deref() {
        Some(format) => projected(&desk, format, &found).map(Some),
        None => Ok(None),
    };
    desk.close().await;
    if common.json && found.iter().all(|(_, found)| found.is_err()) {
        let first = found.into_iter().find_map(|(_, found)| found.err());
        return first.map_or(Ok(Done::Well), Err);
    }
    match formatted? {
        Some((format, tools)) if arguments.explain => explain(common, format, tools)?,
        Some((format, tools)) => provided(common, format, &tools)?,
        None if common.json => return as_json(found, arguments.full),
        None => {
            let texts: Vec<String> = found
                .iter()
                .filter_map(|(_, found)| found.as_ref().ok())
                .map(|detail| readable(detail, arguments.full))
                .collect();
            if !texts.is_empty() {
                output::line(&texts.join("\n"))?;
            }
        }
    }
    let mut done = Done::Well;
    for error in found.iter().filter_map(|(_, found)| found.as_ref().err()) {
        output::complain(&format!("error: {}", error.message));
        done = Done::Failed;
    }
    Ok(done)
}

async fn look_up(desk: &Desk, name: &str, need: &NeedArguments) -> Result<ToolDetail> {
    let work = desk.registry.discover_for(name, need.need(), false);
    let outcomes = progress::shown(&desk.registry, desk.common.quiet, work).await?;
    desk.hint_stale_tool(name);
    let found = desk.registry.tool_detail(name).await;
    // When the tool is there, other sources' troubles are not what was asked about.
    if found.is_err() {
        progress::report_failures(&outcomes, desk.common.quiet);
    }
    found
}

/// A tool in a provider's format, and what it is called.
type Named = (String, Projected);

fn projected(desk: &Desk, format: &str, found: &[(&str, Result<ToolDetail>)]) -> Result<(Format, Vec<Named>)> {
    let format = Format::parse(format)?;
    let view = desk.registry.view(&Desk::caller());
    let mut tools = Vec::new();
    for detail in found.iter().filter_map(|(_, found)| found.as_ref().ok()) {
        let tool = view.catalog.find(detail.view.name.as_str())?;
        tools.push((tool.name().to_string(), view.project(&tool, format)?.into_owned()));
    }
    Ok((format, tools))
}

/// The array that a provider takes.
fn provided(common: &Common, format: Format, tools: &[Named]) -> Result<()> {
    let texts: Vec<&str> = tools.iter().filter_map(|(_, tool)| tool.text.as_deref()).collect();
    output::line(&format!("[{}]", texts.join(",")))?;
    let refused = |(name, tool): &Named| tool.set_aside.clone().map(|reason| SetAside { name: name.clone(), reason });
    hint_set_aside(common, format, &tools.iter().filter_map(refused).collect::<Vec<_>>());
    Ok(())
}

/// What a format loses of each tool.
#[derive(serde::Serialize)]
struct Explained {
    tool: String,
    losses: Vec<Loss>,
    set_aside: Option<String>,
}

fn explain(common: &Common, format: Format, tools: Vec<Named>) -> Result<()> {
    let explained =
        tools.into_iter().map(|(tool, Projected { losses, set_aside, .. })| Explained { tool, losses, set_aside });
    let mut explained: Vec<Explained> = explained.collect();
    if common.json {
        return match explained.len() {
            1 => output::json(&explained.swap_remove(0)),
            _ => output::json(&json!({ "tools": explained })),
        };
    }
    for Explained { tool, losses, set_aside } in &explained {
        output::line(&paint::bold(tool))?;
        for Loss { path, edit } in losses {
            output::line(&format!("  {}: {}", shown_short(path, 200), edit))?;
        }
        let format = format.as_str();
        match set_aside {
            Some(reason) => output::line(&format!("  cannot be had as `{format}`: {reason}"))?,
            None if losses.is_empty() => output::line(&format!("  nothing is lost as `{format}`"))?,
            None => {}
        }
    }
    Ok(())
}

/// One name gives its tool or its error; several give `tools`, and `errors` for those that are not there.
fn as_json(mut found: Vec<(&str, Result<ToolDetail>)>, full: bool) -> Result<Done> {
    if found.len() == 1
        && let Some((_, found)) = found.pop()
    {
        output::json(&object(&found?, full)?)?;
        return Ok(Done::Well);
    }
    let (mut tools, mut errors) = (Vec::new(), Vec::new());
    for (name, found) in &found {
        match found {
            Ok(detail) => tools.push(object(detail, full)?),
            Err(error) => errors.push(named(name, error)),
        }
    }
    #[derive(serde::Serialize)]
    struct Several {
        tools: Vec<Box<RawValue>>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        errors: Vec<Value>,
    }
    let done = if errors.is_empty() { Done::Well } else { Done::Failed };
    for error in &errors {
        output::complain(&format!("error: {}", error["message"].as_str().unwrap_or_default()));
    }
    output::json(&Several { tools, errors })?;
    Ok(done)
}

fn named(name: &str, error: &Error) -> Value {
    let mut inside = error.envelope()["error"].take();
    inside["name"] = json!(name);
    inside
}

fn object(detail: &ToolDetail, full: bool) -> Result<Box<RawValue>> {
    let object = detail.json()?;
    if !full {
        return Ok(object);
    }
    let definition = serde_json::to_string(&detail.definition).context(Code::Internal, "write a definition")?;
    let open = object.get().strip_suffix('}').unwrap_or(object.get());
    RawValue::from_string(format!("{open},\"definition\":{definition}}}")).context(Code::Internal, "write a tool")
}

/// A tool as people read it.
pub(crate) fn readable(detail: &ToolDetail, full: bool) -> String {
    let view = &detail.view;
    let mut text = paint::bold(view.name.as_str());
    if let Some(title) = &view.title {
        text.push_str(&format!(" — {}", shown_short(title, 120)));
    }
    text.push('\n');
    let mut row = |label: &str, value: String| {
        if !value.is_empty() {
            text.push_str(&format!("  {}{value}\n", paint::dim(&format!("{label:<10}"))));
        }
    };
    let own = shown(&view.original_name);
    let own = if view.name.as_str().ends_with(&own) { String::new() } else { format!(", which calls it `{own}`") };
    row("source", format!("{} ({}){own}", view.source, detail.kind));
    row("policy", standing(detail));
    row("hints", hints(view.annotations.as_deref()).join(", "));
    row("tags", detail.tags.join(", "));
    row("calls", calls(detail));
    let description: Vec<String> = shown(&view.description).lines().map(|line| wrapped(line, 2).join("\n")).collect();
    text.push_str(&format!("\n{}\n", indented(&description.join("\n"), "  ")));
    let schema: Value = serde_json::from_str(view.input_schema.get()).unwrap_or_default();
    text.push_str(&format!("\n  {}\n", paint::bold("Arguments")));
    text.push_str(&listed(&schema, view.notes.contains(&Note::NoSchema)));
    let notes: Vec<String> = view.notes.iter().map(|note| format!("  note: {}\n", in_words(*note))).collect();
    if !notes.is_empty() {
        text.push_str(&format!("\n{}", notes.concat()));
    }
    if full {
        let definition = serde_json::to_string(&detail.definition).unwrap_or_default();
        let parts = [
            ("Input schema", Some(view.input_schema.get())),
            ("Output schema", view.output_schema.as_ref().map(|raw| raw.get())),
            ("As the source gave it", Some(definition.as_str())),
        ];
        for (title, raw) in parts {
            let raw = raw.map_or_else(|| "none".to_owned(), |raw| shown(&pretty(raw)));
            text.push_str(&format!("\n  {}\n{}\n", paint::bold(title), indented(&raw, "    ")));
        }
    }
    text
}

fn standing(detail: &ToolDetail) -> String {
    let policy = detail.view.policy.as_str();
    match detail.view.state {
        State::Active => format!("{policy}, {}", detail.view.state.as_str()),
        State::Disabled => {
            format!("{policy}, but disabled; `toolcrib enable {}` turns it on", detail.view.name)
        }
    }
}

/// What the source claims about the tool. Only a plain boolean counts.
fn hints(annotations: Option<&RawValue>) -> Vec<&'static str> {
    let annotations: Value = annotations.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    let said = |name: &str| annotations.get(name).and_then(Value::as_bool);
    let words = [
        (said("readOnlyHint"), "only reads", "changes things"),
        (said("destructiveHint"), "may destroy", "destroys nothing"),
        (said("idempotentHint"), "doing it twice does it once", "doing it twice does it twice"),
        (said("openWorldHint"), "reaches beyond its source", "stays within its source"),
    ];
    words.into_iter().filter_map(|(said, yes, no)| said.map(|said| if said { yes } else { no })).collect()
}

fn calls(detail: &ToolDetail) -> String {
    let Some(last) = detail.last_called else { return String::new() };
    let mut text = format!("{}, {} failed, the last {}", detail.calls, detail.errors, ago(last));
    if let Some(failure) = &detail.last_error {
        text.push_str(&format!("; last error: {}", shown_short(&failure.message, 200)));
    }
    text
}

fn listed(schema: &Value, unknown: bool) -> String {
    let arguments = outline::arguments(schema);
    if arguments.is_empty() {
        let several = ["anyOf", "oneOf"].iter().any(|key| schema.get(key).is_some());
        return match (unknown, several) {
            (true, _) => "    not known\n".into(),
            (false, true) => "    one of several forms; `--full` shows them\n".into(),
            (false, false) => "    none\n".into(),
        };
    }
    let mut rows = Vec::new();
    flatten(&arguments, 0, &mut rows);
    let widest = |column: usize| rows.iter().map(|row| console::measure_text_width(&row[column])).max().unwrap_or(0);
    let (names, kinds) = (widest(0).min(32), widest(1).min(28));
    let mut text = String::new();
    for [name, kind, said] in &rows {
        let left = format!("    {}  {}  ", padded(name, names), padded(kind, kinds));
        let margin = console::measure_text_width(&left);
        let said = wrapped(said, margin).join(&format!("\n{}", " ".repeat(margin)));
        text.push_str(format!("{left}{said}").trim_end());
        text.push('\n');
    }
    if rows.iter().any(|[name, ..]| name.ends_with('*')) {
        text.push_str(&format!("    {}\n", paint::dim("* required")));
    }
    text
}

fn flatten(arguments: &outline::Arguments, depth: usize, rows: &mut Vec<[String; 3]>) {
    let indented = |text: &str| format!("{}{text}", "  ".repeat(depth));
    for argument in &arguments.told {
        let mark = if argument.required { "*" } else { "" };
        let mut said = argument.description.clone();
        let mut add = |text: String| {
            said.push_str(if said.is_empty() { "" } else { " " });
            said.push_str(&text);
        };
        if !argument.choices.is_empty() {
            add(format!("[one of {}]", argument.choices.join(", ")));
        }
        if let Some(default) = &argument.default {
            add(format!("[default {default}]"));
        }
        rows.push([indented(&format!("{}{mark}", argument.name)), argument.kind.clone(), said]);
        flatten(&argument.nested, depth + 1, rows);
    }
    rows.extend(arguments.ending().map(|ending| [indented(&ending), String::new(), String::new()]));
}

fn padded(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(console::measure_text_width(text))))
}

/// A line broken where the terminal ends, for text that begins at `margin`; elsewhere it stays whole.
fn wrapped(line: &str, margin: usize) -> Vec<String> {
    const NARROWEST: usize = 30;
    let columns = console::Term::stdout().size_checked().map_or(usize::MAX, |(_, columns)| usize::from(columns));
    let width = columns.saturating_sub(margin).max(NARROWEST);
    if console::measure_text_width(line) <= width {
        return vec![line.to_owned()];
    }
    let mut lines = vec![String::new()];
    for word in line.split(' ') {
        match lines.last_mut() {
            Some(last) if last.is_empty() => last.push_str(word),
            Some(last) if console::measure_text_width(last) + 1 + console::measure_text_width(word) <= width => {
                last.push_str(&format!(" {word}"));
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn in_words(note: Note) -> &'static str {
    match note {
        Note::NoSchema => "the source gave no schema, so any arguments are passed on as they are",
        Note::NoDescription => "the source gave no description",
        Note::TextCleaned => "characters that hide or steer were removed from its text; `--full` has the original",
        Note::OutputSchemaIgnored => "its output schema cannot be used and is left out",
        Note::AnnotationsIgnored => "its annotations are not an object and were left out",
    }
}

fn indented(text: &str, by: &str) -> String {
    let lines: Vec<String> = text.lines().map(|line| format!("{by}{line}").trim_end().to_owned()).collect();
    lines.join("\n")
}
