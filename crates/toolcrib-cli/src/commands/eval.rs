//! `toolcrib eval`: measures the quality and speed of search on a labelled set. Reads neither store nor configuration.
//!
//! The set is two JSONL files, of tools and of queries with the ids of relevant tools; `--help` shows a line of each.
//! Parsing and scoring are in `toolcrib_catalog::search::eval`. Times are those of the search alone, without reading the
//! set.

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use toolcrib::catalog::search::Query;
use toolcrib::catalog::search::eval::{LabelledSet, MeanScores, NamedText, Scores};
use toolcrib::{Code, Error, Result};

use crate::arguments::CommonArguments;
use crate::model::ModelArguments;
use crate::table::Table;

/// Measure search on a labelled set: recall, NDCG, MRR and times
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib eval --tools tools.jsonl --queries queries.jsonl
  toolcrib eval --tools tools.jsonl --queries queries.jsonl -k 20 --json

A line of the tools:
  {\"id\": \"1\", \"server\": \"mail\", \"name\": \"send\", \"description\": \"…\", \"input_schema\": {…}}
A line of the queries:
  {\"query\": \"write to Ann\", \"relevant\": [\"1\"]}
With \"groups\": [[\"1\", \"2\"]], each inner list is one needed tool with its interchangeable copies.")]
pub(crate) struct Arguments {
    /// File with the tools, one JSON object per line
    #[arg(long, value_name = "FILE")]
    tools: PathBuf,
    /// File with the queries and their relevant tools, one JSON object per line
    #[arg(long, value_name = "FILE")]
    queries: PathBuf,
    /// Also report recall and NDCG at this cutoff
    #[arg(short = 'k', long, value_name = "N", default_value_t = NonZeroUsize::MIN.saturating_add(9))]
    limit: NonZeroUsize,
    #[command(flatten)]
    model: ModelArguments,
}

/// The measurements: means over all queries, and percentiles of the search time in microseconds.
#[derive(Serialize)]
struct EvalReport {
    #[serde(flatten)]
    means: MeanScores,
    p50_us: u64,
    p99_us: u64,
}

/// Reads the set, runs every query and prints the means.
pub(crate) fn run(common: &CommonArguments, arguments: &Arguments) -> Result<()> {
    let searcher = arguments.model.load()?;
    let tools = read_file(&arguments.tools)?;
    let queries = read_file(&arguments.queries)?;
    let tools_name = arguments.tools.display().to_string();
    let queries_name = arguments.queries.display().to_string();
    let set = LabelledSet::parse(
        NamedText { name: &tools_name, text: &tools },
        NamedText { name: &queries_name, text: &queries },
    )?;
    // Unknown ids are most likely mistakes in the set, which would lower the scores silently.
    if let Some(first) = set.unknown_ids.first() {
        common.hint(&match set.unknown_ids.len() {
            1 => format!("warning: 1 relevant id matches no tool and counts as not found: `{first}`"),
            unknown => {
                format!("warning: {unknown} relevant ids match no tool and count as not found; the first is `{first}`")
            }
        });
    }
    // Warm up: the first search builds the index that the others read.
    searcher.search(&set.view, &Query::new(""));
    // One search per query with the largest cutoff; smaller cutoffs are computed from the same hits.
    let mut scores = Scores::with_cutoff(arguments.limit.get());
    let mut times = Vec::with_capacity(set.queries.len());
    for query in &set.queries {
        let start = Instant::now();
        let results = searcher.search(&set.view, &Query::new(&*query.text).with_limit(scores.max_cutoff()));
        times.push(start.elapsed());
        set.score(query, &results, &mut scores);
    }
    // For percentiles by rank; 0 for an empty set.
    times.sort_unstable();
    let percentile = |share: f64| times.get((times.len() as f64 * share) as usize).map_or(0, to_micros);
    let report = EvalReport { means: scores.means(), p50_us: percentile(0.5), p99_us: percentile(0.99) };
    common.print(&report, || render_table(&report))
}

/// Whole microseconds.
fn to_micros(time: &Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Reads a file of the set; a missing one is a usage error (exit code 2).
fn read_file(path: &Path) -> Result<String> {
    let unreadable = |error| Error::new(Code::BadRequest, format!("cannot read `{}`: {error}", path.display()));
    fs::read_to_string(path).map_err(unreadable)
}

/// Renders the report for people.
fn render_table(EvalReport { means, p50_us, p99_us }: &EvalReport) -> String {
    let mut table = Table::new(&["measure", "value"]);
    let mut row = |name: &str, value: String| table.add_row(vec![name.to_owned(), value]);
    row("queries", means.queries.to_string());
    for (name, value) in &means.measures {
        row(name, format!("{value:.4}"));
    }
    row("p50", format!("{p50_us} µs"));
    row("p99", format!("{p99_us} µs"));
    table.render()
}
