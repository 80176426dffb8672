//! `toolcrib demo`: a guided tour (declare, discover, search, call, restart from the cache) with a bundled MCP server
//! and a bundled REST API, in a temporary directory that is removed at the end.
//!
//! The tour uses the library as the commands do and prints what they would print, so that each step can be repeated
//! with the command that is shown. The samples, and the sandbox with a configuration of its own, are `toolcrib-demo`.

mod serve;

use std::time::Instant;

use clap::Args;
use serde_json::{Value, json};
use toolcrib::catalog::render::Format;
use toolcrib::catalog::search::{Hit, Query};
use toolcrib::catalog::summary::SummaryBudget;
use toolcrib::refresh::RefreshStatus;
use toolcrib::{Code, Error, RefreshOutcome, Registry, Requester, RequiredFreshness, Result};
use toolcrib_demo::rest_api::{STAFF_TOKEN, ShopApi};
use toolcrib_demo::sandbox::DemoSandbox;

use crate::arguments::CommonArguments;
use crate::commands::serve::resolve_address;
use crate::commands::{call, describe, sources};
use crate::exit::ShutdownSignals;
use crate::plural::pluralize;
use crate::session::CliSession;
use crate::{color, output, progress};

/// Run a guided tour with sample sources: discover, search, call, restart from the cache
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib demo
  toolcrib demo --serve      serve the sample tools, to look around in the console
  toolcrib demo --api        serve the sample REST API, to try `toolcrib add --openapi`

The demo needs no configuration and leaves no file and no process behind.")]
pub(crate) struct Arguments {
    /// Instead of the tour, serve the sample REST API until Ctrl-C
    #[arg(long, group = "standing")]
    api: bool,
    /// Instead of the tour, serve the sample tools (MCP, REST, console) until Ctrl-C
    #[arg(long, group = "standing")]
    serve: bool,
    /// Address and port for `--api` or `--serve`; port 0 selects a free port
    #[arg(long, value_name = "ADDRESS", requires = "standing", default_value = "127.0.0.1:0")]
    listen: String,
}

impl Arguments {
    /// Returns whether the demo serves until a shutdown signal, instead of running the tour once.
    pub(crate) fn is_long_running(&self) -> bool {
        self.api || self.serve
    }
}

// The tool, search query and API operation that the tour shows.
const DEMO_TOOL: &str = "library__borrow_book";
const DEMO_QUERY: &str = "lend somebody a book";
const DEMO_OPERATION: &str = "shop__list_products";

/// Runs the tour, or serves with `--api` or `--serve`.
pub(crate) async fn run(common: &CommonArguments, arguments: Arguments) -> Result<()> {
    // Both modes serve until a shutdown signal and are long-running commands; the tour is a one-shot command.
    if arguments.api {
        return serve_api(common, &arguments.listen).await;
    }
    if arguments.serve {
        return serve::run(common, &arguments.listen).await;
    }
    // The API gets any free port; its URL goes into the sandbox's configuration.
    let shop = ShopApi::start(resolve_address("127.0.0.1:0").await?).await?;
    let demo = Demo::create(common, &shop.document_url())?;
    // Close the API before reporting an error of the tour.
    let report = demo.run_walkthrough().await;
    shop.close().await;
    let report = report?;
    if common.json { output::print_json(&report) } else { Ok(()) }
}

/// Serves the bundled REST API alone (`--api`).
async fn serve_api(common: &CommonArguments, listen: &str) -> Result<()> {
    // Listen for signals before printing the address: a script may end the demo as soon as it has read it.
    let mut shutdown_signals = ShutdownSignals::listen();
    let shop = ShopApi::start(resolve_address(listen).await?).await?;
    let url = shop.url();
    let document = shop.document_url();
    common.print(&json!({ "listening": url, "document": document }), || {
        format!(
            "listening on {url}\nnow try, elsewhere:\n  toolcrib add shop --openapi {document}\n  \
             toolcrib add shop --openapi {document} --bearer {STAFF_TOKEN}    cancels orders, too"
        )
    })?;
    shutdown_signals.wait().await;
    shop.close().await;
    Ok(())
}

/// One run of the demo. Its sandbox is removed on drop, also after an error.
struct Demo {
    sandbox: DemoSandbox,
    /// `--json`: print no steps.
    silent: bool,
    /// Show no progress.
    quiet: bool,
}

impl Demo {
    /// Creates the sandbox; `document` is the URL of the shop's OpenAPI document.
    fn create(common: &CommonArguments, document: &str) -> Result<Demo> {
        let sandbox = DemoSandbox::create(document)?;
        Ok(Demo { sandbox, silent: common.json, quiet: common.quiet || common.json })
    }

    /// Discovers the sources of the demo with progress. Any failure ends the demo with `TOOL_UNAVAILABLE`: the samples are
    /// bundled, so the cause is this machine (no loopback, no processes).
    async fn discover(&self, registry: &Registry) -> Result<Vec<RefreshOutcome>> {
        let outcomes = progress::show_progress(
            registry,
            self.quiet,
            registry.refresher().ensure_freshness(RequiredFreshness::Discovered, None, Requester::default()),
        )
        .await;
        if let Some(failed) = outcomes.iter().find(|outcome| outcome.status == RefreshStatus::Failed) {
            let reason = failed.error.as_ref().map_or("unknown reason", |failure| failure.message.as_str());
            return Err(Error::new(Code::ToolUnavailable, format!("the demo's own server failed: {reason}")));
        }
        Ok(outcomes)
    }

    /// Runs and prints the steps of the tour; returns its measurements for `--json`.
    async fn run_walkthrough(&self) -> Result<Value> {
        self.print(&format!(
            "{}\nTwo samples stand in for your own sources: the MCP server of a lending library and the REST API of a shop. All runs on\n\
             this machine and in a directory that is removed at the end.",
            color::bold("Toolcrib in a minute")
        ))?;
        self.print_step(1, "Declare where tools come from", "cat toolcrib.yaml")?;
        self.print_output(&self.sandbox.config_text)?;

        let registry = self.sandbox.open_registry().await?;
        self.print_step(
            2,
            "Discover them: each server is started once, asked for its tools, and stopped; an API's document is read",
            "toolcrib sources",
        )?;
        let outcomes = self.discover(&registry).await?;
        // Discoveries run in parallel, so the slowest one determines the time.
        let discovered_ms: u64 = outcomes.iter().map(|outcome| outcome.elapsed_ms).max().unwrap_or(0);
        // Counted by the server itself, so that the claim "0 processes started" after the restart is measured, too.
        let discovered_starts = self.sandbox.server_starts();
        self.print_output(&sources::sources_table(&registry.sources().list()).render())?;
        self.print_note(&format!(
            "discovered in {discovered_ms} ms, {} started",
            pluralize(discovered_starts, "process")
        ))?;

        self.print_step(3, "See how many tokens an agent saves", "toolcrib context")?;
        // Counted explicitly: neither a start nor a discovery counts tokens, because loading the tokenizer takes long.
        registry.statistics().count_tokens().await;
        let view = registry.view(&CliSession::caller());
        let summary = view.summary(SummaryBudget::default());
        self.print_output(&summary.text)?;
        self.print_note(&format!(
            "{} tokens in the prompt instead of {} for {} with their schemas, counted just now",
            summary.tokens,
            summary.tokens_full,
            pluralize(summary.tools, "tool")
        ))?;

        self.print_step(4, "Find the right tool", &format!("toolcrib search {DEMO_QUERY:?}"))?;
        let hits = view.search(&Query::new(DEMO_QUERY).with_limit(3)).hits;
        self.print_output(&hits.iter().map(Hit::to_line).collect::<Vec<_>>().join("\n"))?;

        self.print_step(5, "Look at it", &format!("toolcrib describe {DEMO_TOOL}"))?;
        self.print_output(&describe::render_tool(&registry.tool(DEMO_TOOL)?, false))?;

        self.print_step(
            6,
            "Call it: the server is started on demand",
            &format!("toolcrib call {DEMO_TOOL} book=dune member=ada"),
        )?;
        // The same arguments as in the printed command; here as JSON, because the tour calls the library.
        let input = json!({"book": "dune", "member": "ada"});
        let called = registry.call(DEMO_TOOL, input).caller(CliSession::caller()).await?;
        self.print_output(&call::render_output(&called))?;
        self.print_note(&format!("answered in {} ms", called.elapsed_ms))?;

        let command = format!("toolcrib call {DEMO_OPERATION} category=fruit filter:='{{\"max_price\":0.5}}'");
        self.print_step(7, "Call an API: its OpenAPI document says how", &command)?;
        let input = json!({"category": ["fruit"], "filter": {"max_price": 0.5}});
        let requested = registry.call(DEMO_OPERATION, input).caller(CliSession::caller()).await?;
        self.print_output(&call::render_output(&requested))?;
        self.print_note(&format!("answered in {} ms", requested.elapsed_ms))?;
        // Rendered before closing, to compare with the list after the restart.
        let list = view.render(Format::Mcp)?;
        registry.close().await;

        self.print_step(8, "Start again: everything is cached", "toolcrib tools")?;
        // A new registry on the same store stands for a restart of Toolcrib.
        let before = self.sandbox.server_starts();
        let started_at = Instant::now();
        let reopened = self.sandbox.open_registry().await?;
        reopened.refresher().ensure_freshness(RequiredFreshness::Discovered, None, Requester::default()).await;
        // The same catalogue renders to the same bytes, across a restart, too.
        let is_identical = reopened.view(&CliSession::caller()).render(Format::Mcp)? == list;
        let elapsed = started_at.elapsed();
        reopened.close().await;
        let started = self.sandbox.server_starts() - before;
        self.print_note(&format!(
            "{} from the cache in {:.1} ms, {} started{}",
            pluralize(summary.tools, "tool"),
            elapsed.as_secs_f64() * 1000.0,
            pluralize(started, "process"),
            if is_identical { "; the same list, byte for byte" } else { "; the list has changed" }
        ))?;

        self.print(&format!(
            "\n{}
   toolcrib add time -- uvx mcp-server-time    declare a server of your own
   toolcrib add shop --openapi URL             or an API, by its OpenAPI document
   toolcrib import --from claude-desktop       or bring those of another client
   toolcrib mcp                                what an MCP client starts; see docs/clients.md
   toolcrib doctor                             what is wrong, and how to put it right",
            color::bold("Now yours")
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
            "second_start_us": u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX),
            "second_start_processes": started,
        }))
    }

    /// Prints the heading of a step and the command that would do the same.
    fn print_step(&self, number: usize, title: &str, command: &str) -> Result<()> {
        self.print(&format!(
            "\n{}\n   {}",
            color::bold(&format!("{number}. {title}")),
            color::dim(&format!("$ {command}"))
        ))
    }

    /// Prints what the command of the step would print, indented.
    fn print_output(&self, text: &str) -> Result<()> {
        let lines: Vec<String> =
            text.trim_end().lines().map(|line| format!("   {line}").trim_end().to_owned()).collect();
        self.print(&lines.join("\n"))
    }

    /// Prints a remark on the result of a step.
    fn print_note(&self, text: &str) -> Result<()> {
        self.print(&format!("   {}", color::success(&format!("=> {text}"))))
    }

    /// Prints the text, unless `--json` is given.
    fn print(&self, text: &str) -> Result<()> {
        if self.silent { Ok(()) } else { output::print_line(text) }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        if let Err(error) = self.sandbox.remove() {
            let directory = self.sandbox.directory.display();
            output::print_stderr_line(&format!("warning: cannot remove `{directory}`: {error}"));
        }
    }
}
