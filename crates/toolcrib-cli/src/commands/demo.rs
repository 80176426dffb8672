//! `toolcrib demo`: everything once, on a server that is part of this binary, in a directory that is gone afterwards.

pub(crate) mod server;
mod serving;
mod shop;
mod stage;

use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};
use toolcrib::core::render::Format;
use toolcrib::core::search::{Hit, Query};
use toolcrib::core::summary::Budget;
use toolcrib::refresh::Refreshed;
use toolcrib::{CallOptions, Code, Error, Need, Outcome, Registry, Result};

use crate::arguments::Common;
use crate::commands::{call, describe, serve, sources};
use crate::desk::Desk;
use crate::exit::{Done, Leave};
use crate::wording::counted;
use crate::{output, paint, progress};

use shop::Shop;
use stage::Stage;

/// See it work, without any configuration: discovers, finds, calls, and starts again from the cache
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib demo
  toolcrib demo --serve                        look around in the console
  toolcrib demo --api                          serve the demo's REST API, to try `toolcrib add --openapi` on

Nothing is left behind: no file, no process.")]
pub(crate) struct Arguments {
    /// Serve the bundled REST API alone, until Ctrl-C
    #[arg(long, group = "standing")]
    api: bool,
    /// Serve the demo's tools with the console, until Ctrl-C
    #[arg(long, group = "standing")]
    serve: bool,
    /// Where to serve; port 0 takes any that is free
    #[arg(long, value_name = "ADDRESS", requires = "standing", default_value = "127.0.0.1:0")]
    listen: String,
}

impl Arguments {
    /// Whether it goes on until somebody asks it to leave.
    pub(crate) fn stays(&self) -> bool {
        self.api || self.serve
    }
}

const TOOL: &str = "library__borrow_book";
const QUERY: &str = "lend somebody a book";
const OPERATION: &str = "shop__list_products";

pub(crate) async fn run(common: &Common, arguments: Arguments) -> Result<Done> {
    if arguments.api {
        return serve_api(common, &arguments.listen).await;
    }
    if arguments.serve {
        return serving::run(common, &arguments.listen).await;
    }
    let shop = Shop::open(serve::address("127.0.0.1:0").await?).await?;
    let stage = Stage::set(common, &shop.document())?;
    let report = perform(&stage).await;
    shop.close().await;
    let report = report?;
    if common.json {
        output::json(&report)?;
    }
    Ok(Done::Well)
}

async fn serve_api(common: &Common, listen: &str) -> Result<Done> {
    let mut leave = Leave::listen();
    let shop = Shop::open(serve::address(listen).await?).await?;
    let (url, document) = (shop.url(), shop.document());
    if common.json {
        output::json(&json!({ "listening": url, "document": document }))?;
    } else {
        output::line(&format!("listening on {url}"))?;
        output::line(&format!(
            "now try, elsewhere:\n  toolcrib add shop --openapi {document}\n  \
             toolcrib add shop --openapi {document} --bearer {}    cancels orders, too",
            shop::TOKEN
        ))?;
    }
    leave.asked().await;
    shop.close().await;
    Ok(Done::Well)
}

async fn discover(stage: &Stage, registry: &Registry) -> Result<Vec<Outcome>> {
    let outcomes = progress::shown(registry, stage.quiet, registry.ensure(Need::Known, None, false)).await;
    if let Some(error) = outcomes.iter().find(|outcome| outcome.status == Refreshed::Failed) {
        let reason = error.error.as_ref().map_or("no reason is known", |failure| failure.message.as_str());
        return Err(Error::new(Code::ToolUnavailable, format!("the demo's own server failed: {reason}")));
    }
    Ok(outcomes)
}

async fn perform(stage: &Stage) -> Result<Value> {
    stage.say(&format!(
        "{}\nA small lending library stands in for your MCP servers, a corner shop for your REST APIs. Everything happens\n\
         on this machine and in a directory that is removed at the end.",
        paint::bold("Toolcrib in a minute")
    ))?;
    stage.step(1, "Declare where tools come from", "cat toolcrib.yaml")?;
    stage.show(&stage.text)?;

    let registry = stage.open().await?;
    stage.step(
        2,
        "Discover them: each server is started once, asked, and put to sleep; an API's document is read",
        "toolcrib sources",
    )?;
    let outcomes = discover(stage, &registry).await?;
    let discovered_ms: u64 = outcomes.iter().map(|outcome| outcome.elapsed_ms).max().unwrap_or(0);
    let discovered_starts = stage.starts();
    stage.show(&sources::table(&registry.sources()).render())?;
    stage.note(&format!("discovered in {discovered_ms} ms, {} started", counted(discovered_starts, "process")))?;

    stage.step(3, "See what an agent is spared", "toolcrib context")?;
    registry.count_tokens().await;
    let view = registry.view(&Desk::caller());
    let summary = view.summary(Budget::default());
    stage.show(&summary.text)?;
    stage.note(&format!(
        "{} tokens in the prompt instead of {} for {} with their schemas, counted just now",
        summary.tokens,
        summary.tokens_full,
        counted(summary.tools, "tool")
    ))?;

    stage.step(4, "Find the right tool", &format!("toolcrib search {QUERY:?}"))?;
    let hits = view.search(&Query::new(QUERY).limited(3)).hits;
    stage.show(&hits.iter().map(Hit::line).collect::<Vec<_>>().join("\n"))?;

    stage.step(5, "Look at it", &format!("toolcrib describe {TOOL}"))?;
    stage.show(&describe::readable(&registry.tool_detail(TOOL)?, false))?;

    stage.step(6, "Call it: the server wakes for this", &format!("toolcrib call {TOOL} book=dune member=ada"))?;
    let input = json!({"book": "dune", "member": "ada"});
    let called = registry.call(&Desk::caller(), TOOL, input, CallOptions::default()).await?;
    stage.show(&call::readable(&called))?;
    stage.note(&format!("answered in {} ms", called.elapsed_ms))?;

    let command = format!("toolcrib call {OPERATION} category=fruit filter:='{{\"max_price\":0.5}}'");
    stage.step(7, "Call an API: its OpenAPI document says how", &command)?;
    let input = json!({"category": ["fruit"], "filter": {"max_price": 0.5}});
    let requested = registry.call(&Desk::caller(), OPERATION, input, CallOptions::default()).await?;
    stage.show(&call::readable(&requested))?;
    stage.note(&format!("answered in {} ms", requested.elapsed_ms))?;
    let list = view.render(Format::Mcp)?;
    registry.close().await;

    stage.step(8, "Start again: everything is still known", "toolcrib tools")?;
    let before = stage.starts();
    let began = Instant::now();
    let again = stage.open().await?;
    again.ensure(Need::Known, None, false).await;
    let same = again.view(&Desk::caller()).render(Format::Mcp)? == list;
    let took = began.elapsed();
    again.close().await;
    let started = stage.starts() - before;
    stage.note(&format!(
        "{} from the cache in {}, {} started{}",
        counted(summary.tools, "tool"),
        in_words(took),
        counted(started, "process"),
        if same { "; the same list, byte for byte" } else { "; the list has changed" }
    ))?;

    stage.say(&format!(
        "\n{}
   toolcrib add time -- uvx mcp-server-time    declare a server of your own
   toolcrib add shop --openapi URL             or an API, by its OpenAPI document
   toolcrib import --from claude-desktop       or bring those of another client
   toolcrib mcp                                what an MCP client starts; see docs/clients.md
   toolcrib doctor                             what is wrong, and how to put it right",
        paint::bold("Now yours")
    ))?;
    Ok(json!({
        "tools": summary.tools,
        "tokens": summary.tokens,
        "tokens_full": summary.tokens_full,
        "hits": hits.iter().map(|hit| hit.name.as_str()).collect::<Vec<_>>(),
        "discovered_ms": discovered_ms,
        "discovered_processes": discovered_starts,
        "call": called,
        "api_call": requested,
        "second_start_us": u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
        "second_start_processes": started,
    }))
}

fn in_words(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1000.0)
}
