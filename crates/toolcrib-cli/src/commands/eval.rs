//! `toolcrib eval`: how well search finds, on a labelled set of one's own. Reads no store and no configuration.

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use toolcrib::core::search::Query;
use toolcrib::core::search::eval::{File, LabelledSet, Means, Scores};
use toolcrib::{Code, Error, Result};

use crate::arguments::Common;
use crate::exit::Done;
use crate::model::ModelArguments;
use crate::output;
use crate::table::Table;
use crate::wording::counted;

/// Measure search on a labelled set: recall, NDCG, MRR and times
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib eval --tools tools.jsonl --queries queries.jsonl
  toolcrib eval --tools tools.jsonl --queries queries.jsonl -k 20 --json

A line of tools:   {\"id\": \"1\", \"server\": \"mail\", \"name\": \"send\", \"description\": \"…\", \"input_schema\": {…}}
A line of queries: {\"query\": \"write to Ann\", \"relevant\": [\"1\"]}
With \"groups\": [[\"1\", \"2\"]], each inner list is one needed tool with its interchangeable copies.")]
pub(crate) struct Arguments {
    /// The tools, one JSON object a line
    #[arg(long, value_name = "FILE")]
    tools: PathBuf,
    /// The queries with what each should find, one JSON object a line
    #[arg(long, value_name = "FILE")]
    queries: PathBuf,
    /// Tell recall and NDCG with the first so many hits too
    #[arg(short = 'k', long, value_name = "N", default_value_t = NonZeroUsize::MIN.saturating_add(9))]
    limit: NonZeroUsize,
    #[command(flatten)]
    model: ModelArguments,
}

#[derive(Serialize)]
struct Measured {
    #[serde(flatten)]
    means: Means,
    p50_us: u64,
    p99_us: u64,
}

pub(crate) fn run(common: &Common, arguments: &Arguments) -> Result<Done> {
    let manner = arguments.model.manner()?;
    let (tools, queries) = (read(&arguments.tools)?, read(&arguments.queries)?);
    let (tools_name, queries_name) = (arguments.tools.display().to_string(), arguments.queries.display().to_string());
    let set =
        LabelledSet::read(File { name: &tools_name, text: &tools }, File { name: &queries_name, text: &queries })?;
    if let Some(first) = set.unknown.first() {
        let unknown = counted(set.unknown.len(), "relevant id");
        common.hint(&format!("warning: no tool has {unknown} (`{first}`), which counts as not found"));
    }
    // The first search builds what the others read.
    let finder = manner.over(set.view.clone());
    finder.find(&Query::new(""));
    let (mut scores, mut times) = (Scores::also_at(arguments.limit.get()), Vec::with_capacity(set.queries.len()));
    for query in &set.queries {
        let start = Instant::now();
        let found = finder.find(&Query::new(&*query.text).limited(scores.depth()));
        times.push(start.elapsed());
        set.judge(query, &found, &mut scores);
    }
    times.sort_unstable();
    let at = |share: f64| times.get((times.len() as f64 * share) as usize).map_or(0, micros);
    let measured = Measured { means: scores.means(), p50_us: at(0.5), p99_us: at(0.99) };
    if common.json {
        output::json(&measured)?
    } else {
        output::line(&table(&measured))?
    }
    Ok(Done::Well)
}

fn micros(time: &Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn read(path: &Path) -> Result<String> {
    let unreadable = |error| Error::new(Code::BadRequest, format!("cannot read `{}`: {error}", path.display()));
    fs::read_to_string(path).map_err(unreadable)
}

fn table(Measured { means, p50_us, p99_us }: &Measured) -> String {
    let mut table = Table::new(&["measure", "value"]);
    let mut row = |name: &str, value: String| table.row(vec![name.to_owned(), value]);
    row("queries", means.queries.to_string());
    for (name, value) in &means.measures {
        row(name, format!("{value:.4}"));
    }
    row("p50", format!("{p50_us} µs"));
    row("p99", format!("{p99_us} µs"));
    table.render()
}
