//! How well search finds, on every labelled set there is, against a plain BM25F; how long it takes; and how many tokens
//! an answer costs.

mod baseline;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use toolcrib::core::search::Hit;
use toolcrib::core::search::eval::{File, LabelledSet, Means, Scores};
use toolcrib_testkit::rig;

use crate::Result;
use crate::material::recordings;
use crate::measure::timed;
use crate::report::{Bar, Report, Row, shown};
use baseline::Baseline;

/// Each with its files of queries.
const SETS: [(&str, &[&str]); 6] = [
    ("livemcp", &["queries", "queries.steps", "queries.agent"]),
    ("metatool", &["queries", "queries.multi"]),
    ("sealtools", &["queries"]),
    ("toolbench", &["queries"]),
    ("bfcl", &["queries"]),
    ("mcp_mega", &["queries"]),
];
/// The largest of them, for what depends on size.
const LARGEST: &str = "mcp_mega";
const DEPTH: usize = 10;
const AHEAD: f64 = 0.03;
const RECALL: f64 = 0.57;
const P50: Duration = Duration::from_micros(300);
const P99: Duration = Duration::from_millis(2);
const TOKENS: usize = 400;

struct Measured {
    set: String,
    baseline: Means,
    ours: Means,
    p50: Duration,
    p99: Duration,
}

pub(crate) fn run(report: &mut Report) -> Result<()> {
    let data = rig::data().ok_or("there is no labelled material; TOOLCRIB_TEST_DATA says where it is")?;
    let mut all = Vec::new();
    for (set, files) in SETS {
        let place = data.join("retrieval").join(set);
        let tools = fs::read_to_string(place.join("tools.jsonl"))?;
        let baseline = Baseline::read(&tools)?;
        for file in files {
            all.push(measure(set, &place, file, &tools, &baseline)?);
        }
    }
    report.table(table(&all));
    let mean = |of: fn(&Measured) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
    let (plain, ours) = (mean(|set| of(&set.baseline, "ndcg@10")), mean(|set| of(&set.ours, "ndcg@10")));
    report.row(Row {
        bench: "search",
        measured: format!("NDCG@10, mean of {} sets: {ours:.3}", all.len()),
        against: format!("plain BM25F: {plain:.3}"),
        ratio: ours / plain,
        bar: Bar::Holds(ours >= plain + AHEAD, format!("at least {AHEAD} more")),
    });
    if let Some(largest) = all.iter().find(|measured| measured.set.starts_with(LARGEST)) {
        let (plain, ours) = (of(&largest.baseline, "recall@5"), of(&largest.ours, "recall@5"));
        report.row(Row {
            bench: "search",
            measured: format!("recall@5 on `{LARGEST}`: {ours:.3}"),
            against: format!("plain BM25F: {plain:.3}"),
            ratio: ours / plain,
            bar: Bar::Holds(ours >= RECALL, format!("at least {RECALL}")),
        });
        report.row(Row {
            bench: "search",
            measured: format!("a search in 15,146 tools, half of them within {}", shown(largest.p50)),
            against: format!("99 of 100 within {}", shown(largest.p99)),
            ratio: largest.p50.as_secs_f64() / largest.p99.as_secs_f64(),
            bar: Bar::Holds(
                largest.p50 < P50 && largest.p99 < P99,
                format!("{} and {} on an idle machine", shown(P50), shown(P99)),
            ),
        });
    }
    let tokens = tokens(&data)?;
    report.row(Row {
        bench: "search",
        measured: format!("tokens of five hits in the recorded lists, median: {tokens}"),
        against: format!("{TOKENS}"),
        ratio: tokens as f64 / TOKENS as f64,
        bar: Bar::AtMost(1.0, format!("{TOKENS} tokens")),
    });
    Ok(())
}

fn measure(set: &str, place: &Path, file: &str, tools: &str, baseline: &Baseline) -> Result<Measured> {
    let queries = fs::read_to_string(place.join(format!("{file}.jsonl")))?;
    let labelled = LabelledSet::read(File { name: "tools.jsonl", text: tools }, File { name: file, text: &queries })?;
    // The first search builds what the others read.
    labelled.view.search(&toolcrib::core::search::Query::new("warm up"));
    let (mut ours, mut plain, mut times) = (Scores::default(), Scores::default(), Vec::new());
    for query in &labelled.queries {
        let (time, found) = timed(|| labelled.search(query, DEPTH));
        times.push(time);
        labelled.judge(query, &found, &mut ours);
        plain.add(&query.groups, &baseline.search(&query.text, DEPTH));
    }
    times.sort_unstable();
    let at = |share: f64| times.get((times.len() as f64 * share) as usize).copied().unwrap_or_default();
    let set = format!("{set}{}", file.trim_start_matches("queries"));
    Ok(Measured { set, baseline: plain.means(), ours: ours.means(), p50: at(0.5), p99: at(0.99) })
}

fn of(means: &Means, measure: &str) -> f64 {
    means.get(measure).unwrap_or_default()
}

fn table(all: &[Measured]) -> String {
    let mut text = String::from(
        "| set | queries | NDCG@10, plain BM25F | NDCG@10 | recall@5 | MRR | p50 | p99 |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for Measured { set, baseline, ours, p50, p99 } in all {
        text.push_str(&format!(
            "| `{set}` | {} | {:.3} | {:.3} | {:.3} | {:.3} | {} | {} |\n",
            ours.queries,
            of(baseline, "ndcg@10"),
            of(ours, "ndcg@10"),
            of(ours, "recall@5"),
            of(ours, "mrr"),
            shown(*p50),
            shown(*p99)
        ));
    }
    let mean = |of: fn(&Measured) -> f64| all.iter().map(of).sum::<f64>() / all.len().max(1) as f64;
    text.push_str(&format!(
        "| mean | | {:.3} | {:.3} | {:.3} | {:.3} | | |\n",
        mean(|set| of(&set.baseline, "ndcg@10")),
        mean(|set| of(&set.ours, "ndcg@10")),
        mean(|set| of(&set.ours, "recall@5")),
        mean(|set| of(&set.ours, "mrr"))
    ));
    text
}

/// What an answer of five hits costs an agent that works with every recorded server: the median over real tasks.
fn tokens(data: &Path) -> Result<usize> {
    let tools: Vec<String> = recordings()?
        .iter()
        .flat_map(|recording| recording.tools.iter().map(|tool| (recording.name.clone(), tool)))
        .map(|(server, tool)| {
            json!({"id": format!("{server}/{:?}", tool.get("name")), "server": server, "name": tool.get("name"),
                   "description": tool.get("description"), "input_schema": tool.get("inputSchema")})
            .to_string()
        })
        .collect();
    let path: PathBuf = data.join("retrieval/livemcp/queries.jsonl");
    let queries = fs::read_to_string(path)?;
    let set = LabelledSet::read(
        File { name: "recorded", text: &tools.join("\n") },
        File { name: "livemcp", text: &queries },
    )?;
    let tokenizer = tiktoken_rs::o200k_base()?;
    let answer = |hits: &[Hit]| hits.iter().map(Hit::line).collect::<Vec<_>>().join("\n");
    let counts = set.queries.iter().map(|query| tokenizer.encode_ordinary(&answer(&set.search(query, 5).hits)).len());
    let mut counts: Vec<usize> = counts.collect();
    counts.sort_unstable();
    Ok(counts.get(counts.len() / 2).copied().unwrap_or_default())
}
