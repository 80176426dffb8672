//! Quality of search on all labelled sets, compared with a plain BM25F; its latency; and the number of tokens of a
//! response.
//!
//! A labelled set is a list of tools and a list of queries with the tools that answer them. Both searches rank the same
//! tools; NDCG@10 weighs the position of each right tool among the first ten, recall@5 counts those among the first
//! five.

mod baseline;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use toolcrib::catalog::search::Hit;
use toolcrib::catalog::search::eval::{LabelledSet, MeanScores, NamedText, Scores};
use toolcrib_testkit::programs;

use crate::Result;
use crate::measure::measure_time;
use crate::recorded_tools::recorded_servers;
use crate::report::{BenchReport, RatioRow, Threshold, format_duration};
use baseline::Baseline;

/// Labelled sets with their query files.
const SETS: [(&str, &[&str]); 6] = [
    ("livemcp", &["queries", "queries.steps", "queries.agent"]),
    ("metatool", &["queries", "queries.multi"]),
    ("sealtools", &["queries"]),
    ("toolbench", &["queries"]),
    ("bfcl", &["queries"]),
    ("mcp_mega", &["queries"]),
];
/// The set with the most tools, for thresholds that depend on the size.
const SCALE_SET: &str = "mcp_mega";
/// Number of results that are scored.
const RESULT_DEPTH: usize = 10;
/// Minimum difference in NDCG@10 to the baseline, averaged over all sets, which count equally whatever their size.
const MIN_NDCG_GAIN: f64 = 0.03;
/// Minimum recall@5 on [`SCALE_SET`].
const MIN_RECALL: f64 = 0.57;
/// Maximum median latency on [`SCALE_SET`].
const MAX_P50: Duration = Duration::from_micros(300);
/// Maximum 99th percentile of the latency on [`SCALE_SET`].
const MAX_P99: Duration = Duration::from_millis(2);
/// Maximum median of tokens of a response with five hits, counted with `o200k_base`.
const MAX_ANSWER_TOKENS: usize = 400;

/// Scores and latencies of one set of queries.
struct SetMeasurement {
    set: String,
    baseline: MeanScores,
    measured: MeanScores,
    p50: Duration,
    p99: Duration,
}

/// Scores all sets, and compares the means with the baseline.
pub(crate) fn run(report: &mut BenchReport) -> Result<()> {
    let data = programs::data_dir().ok_or("no labelled data; set TOOLCRIB_TEST_DATA")?;
    let mut all = Vec::new();
    for (set, files) in SETS {
        let directory = data.join("retrieval").join(set);
        let tools = fs::read_to_string(directory.join("tools.jsonl"))?;
        let baseline = Baseline::read(&tools)?;
        for file in files {
            all.push(measure_set(set, &directory, file, &tools, &baseline)?);
        }
    }
    report.add_table(format_table(&all));
    let mean = |score: fn(&SetMeasurement) -> f64| all.iter().map(score).sum::<f64>() / all.len() as f64;
    let plain = mean(|set| mean_score(&set.baseline, "ndcg@10"));
    let measured = mean(|set| mean_score(&set.measured, "ndcg@10"));
    report.add_row(RatioRow {
        bench: "search",
        measured: format!("NDCG@10, mean of {} sets: {measured:.3}", all.len()),
        baseline: format!("plain BM25F: {plain:.3}"),
        ratio: measured / plain,
        threshold: Threshold::Condition(measured >= plain + MIN_NDCG_GAIN, format!("at least {MIN_NDCG_GAIN} more")),
    });
    // Latency grows with the number of tools, so only the largest set has a threshold for it.
    if let Some(largest) = all.iter().find(|measured| measured.set.starts_with(SCALE_SET)) {
        let plain = mean_score(&largest.baseline, "recall@5");
        let measured = mean_score(&largest.measured, "recall@5");
        report.add_row(RatioRow {
            bench: "search",
            measured: format!("recall@5 on `{SCALE_SET}`: {measured:.3}"),
            baseline: format!("plain BM25F: {plain:.3}"),
            ratio: measured / plain,
            threshold: Threshold::Condition(measured >= MIN_RECALL, format!("at least {MIN_RECALL}")),
        });
        report.add_row(RatioRow {
            bench: "search",
            measured: format!("a search in 15,146 tools, median: {}", format_duration(largest.p50)),
            baseline: format!("99th percentile: {}", format_duration(largest.p99)),
            ratio: largest.p50.as_secs_f64() / largest.p99.as_secs_f64(),
            threshold: Threshold::Condition(
                largest.p50 < MAX_P50 && largest.p99 < MAX_P99,
                format!("{} and {} on an idle machine", format_duration(MAX_P50), format_duration(MAX_P99)),
            ),
        });
    }
    let tokens = median_answer_tokens(&data)?;
    report.add_row(RatioRow {
        bench: "search",
        measured: format!("tokens of five hits in the recorded lists, median: {tokens}"),
        baseline: format!("{MAX_ANSWER_TOKENS}"),
        ratio: tokens as f64 / MAX_ANSWER_TOKENS as f64,
        threshold: Threshold::AtMost(1.0, format!("{MAX_ANSWER_TOKENS} tokens")),
    });
    Ok(())
}

/// Scores both searches on one query file and measures the latency of Toolcrib's.
fn measure_set(set: &str, directory: &Path, file: &str, tools: &str, baseline: &Baseline) -> Result<SetMeasurement> {
    let queries = fs::read_to_string(directory.join(format!("{file}.jsonl")))?;
    let labelled =
        LabelledSet::parse(NamedText { name: "tools.jsonl", text: tools }, NamedText { name: file, text: &queries })?;
    // The first search builds the index.
    labelled.view.search(&toolcrib::catalog::search::Query::new("warm up"));
    let mut measured = Scores::default();
    let mut plain = Scores::default();
    let mut times = Vec::new();
    for query in &labelled.queries {
        let (time, found) = measure_time(|| labelled.search(query, RESULT_DEPTH));
        times.push(time);
        labelled.score(query, &found, &mut measured);
        plain.add(&query.groups, &baseline.search(&query.text, RESULT_DEPTH));
    }
    times.sort_unstable();
    let percentile = |share: f64| times.get((times.len() as f64 * share) as usize).copied().unwrap_or_default();
    let set = format!("{set}{}", file.trim_start_matches("queries"));
    Ok(SetMeasurement {
        set,
        baseline: plain.means(),
        measured: measured.means(),
        p50: percentile(0.5),
        p99: percentile(0.99),
    })
}

/// Mean of a measure by name; zero if it does not exist.
fn mean_score(means: &MeanScores, measure: &str) -> f64 {
    means.get(measure).unwrap_or_default()
}

/// Formats the scores of all sets as a Markdown table.
fn format_table(all: &[SetMeasurement]) -> String {
    let mut text = String::from(
        "| set | queries | NDCG@10, plain BM25F | NDCG@10 | recall@5 | MRR | p50 | p99 |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for SetMeasurement { set, baseline, measured, p50, p99 } in all {
        text.push_str(&format!(
            "| `{set}` | {} | {:.3} | {:.3} | {:.3} | {:.3} | {} | {} |\n",
            measured.queries,
            mean_score(baseline, "ndcg@10"),
            mean_score(measured, "ndcg@10"),
            mean_score(measured, "recall@5"),
            mean_score(measured, "mrr"),
            format_duration(*p50),
            format_duration(*p99)
        ));
    }
    let mean = |score: fn(&SetMeasurement) -> f64| all.iter().map(score).sum::<f64>() / all.len().max(1) as f64;
    text.push_str(&format!(
        "| mean | | {:.3} | {:.3} | {:.3} | {:.3} | | |\n",
        mean(|set| mean_score(&set.baseline, "ndcg@10")),
        mean(|set| mean_score(&set.measured, "ndcg@10")),
        mean(|set| mean_score(&set.measured, "recall@5")),
        mean(|set| mean_score(&set.measured, "mrr"))
    ));
    text
}

/// Median number of tokens of a response with five hits, over real tasks and the tools of all recorded servers.
fn median_answer_tokens(data: &Path) -> Result<usize> {
    let tools: Vec<String> = recorded_servers()?
        .iter()
        .flat_map(|recording| recording.tools.iter().map(|tool| (recording.name.clone(), tool)))
        .map(|(server, tool)| {
            json!({"id": format!("{server}/{:?}", tool.get("name")), "server": server, "name": tool.get("name"),
                   "description": tool.get("description"), "input_schema": tool.get("inputSchema")})
            .to_string()
        })
        .collect();
    // Only the texts of the queries are used: their labels refer to other tools.
    let path: PathBuf = data.join("retrieval/livemcp/queries.jsonl");
    let queries = fs::read_to_string(path)?;
    let set = LabelledSet::parse(
        NamedText { name: "recorded", text: &tools.join("\n") },
        NamedText { name: "livemcp", text: &queries },
    )?;
    let tokenizer = tiktoken_rs::o200k_base()?;
    let response_text = |hits: &[Hit]| hits.iter().map(Hit::to_line).collect::<Vec<_>>().join("\n");
    let counts =
        set.queries.iter().map(|query| tokenizer.encode_ordinary(&response_text(&set.search(query, 5).hits)).len());
    let mut counts: Vec<usize> = counts.collect();
    counts.sort_unstable();
    Ok(counts.get(counts.len() / 2).copied().unwrap_or_default())
}
