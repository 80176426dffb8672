//! Overhead of REST routes: `toolcrib serve` compared with a bare axum handler that returns the same bytes, in the same
//! process and over the same kind of socket.
//!
//! The catalogue does not change during the run, so responses that Toolcrib caches are measured as cached. The bare
//! handler is the lower limit of the HTTP stack; what exceeds it is the work of Toolcrib's layers.

mod client;
mod servers;

use std::thread;
use std::time::{Duration, Instant};

use serde_json::Map;

use crate::Result;
use crate::measure::{measure_time, median, ratio};
use crate::report::{BenchReport, RatioRow, Threshold, format_duration};
pub(crate) use client::RawHttpClient;
use servers::BareServer;
pub(crate) use servers::{TOOLS, ToolcribServer, build_runtime, open_registry};

/// Number of blocks of requests. Both servers alternate, so that disturbances affect both.
const BLOCKS: usize = 40;
/// Number of requests in a block.
const BLOCK_SIZE: usize = 50;
/// Number of clients that listen to `/api/events`. They must not slow down other requests while no event is sent.
const LISTENERS: usize = 200;
/// Number of measurements with and without listeners.
const LISTENER_ROUNDS: usize = 7;
/// Number of concurrent clients in the throughput benchmark.
pub(crate) const CLIENTS: usize = 4;
/// Number of requests of each client.
pub(crate) const REQUESTS_PER_CLIENT: usize = 1_000;
/// Number of measurements of the throughput.
const ROUNDS: usize = 5;

/// Words that queries are combined from.
const QUERY_WORDS: [&str; 20] = [
    "create",
    "issue",
    "list",
    "file",
    "search",
    "send",
    "message",
    "delete",
    "branch",
    "read",
    "query",
    "table",
    "update",
    "page",
    "user",
    "calendar",
    "weather",
    "upload",
    "comment",
    "repository",
];

/// Measures latency, throughput and the effect of listeners.
pub(crate) fn run(report: &mut BenchReport) -> Result<()> {
    let runtime = build_runtime()?;
    let served = ToolcribServer::start(&runtime, runtime.block_on(open_registry(&Map::new()))?)?;
    let tools = "/api/tools?limit=100";
    // The bodies of Toolcrib become those of the bare handler, so both send the same bytes.
    let page = RawHttpClient::connect(&served.address)?.get(tools, "")?;
    let sources = RawHttpClient::connect(&served.address)?.get("/api/sources", "")?;
    let found = RawHttpClient::connect(&served.address)?.get("/api/search?q=create+issue", "")?;
    let bare =
        BareServer::start(&runtime, &[("/page", &page.body), ("/sources", &sources.body), ("/found", &found.body)])?;

    let kilobytes = |body: &[u8]| format!("{:.0} kB", body.len() as f64 / 1e3);
    let size = kilobytes(&page.body);
    measure_latency(
        report,
        (&served, tools, ""),
        (&bare, "/page"),
        &format!("a page of 100 of 10,000 tools ({size})"),
        1.3,
    )?;
    // A client that has the page already: no body is sent, and almost only the overhead remains.
    let tag = format!("If-None-Match: {}\r\n", page.etag);
    measure_latency(report, (&served, tools, &tag), (&bare, "/unchanged"), "the same with its `ETag`", 1.3)?;
    let label = format!("`GET /api/sources` ({})", kilobytes(&sources.body));
    measure_latency(report, (&served, "/api/sources", ""), (&bare, "/sources"), &label, 2.0)?;
    measure_throughput(report, &served, &bare)?;
    measure_listeners(report, &served, tools)
}

/// Measures the latency of one client that waits for each response, alternating with one of the bare handler.
fn measure_latency(
    report: &mut BenchReport,
    (served, path, headers): (&ToolcribServer, &str, &str),
    (bare, bare_path): (&BareServer, &str),
    label: &str,
    max_ratio: f64,
) -> Result<()> {
    let mut measured = (RawHttpClient::connect(&served.address)?, path, headers, Vec::new());
    let mut baseline = (RawHttpClient::connect(&bare.address)?, bare_path, "", Vec::new());
    // The first block is a warm-up and not counted.
    for block in 0..=BLOCKS {
        for (client, path, headers, times) in [&mut measured, &mut baseline] {
            for _ in 0..BLOCK_SIZE {
                let (time, response) = measure_time(|| client.get(path, headers));
                response?;
                if block > 0 {
                    times.push(time);
                }
            }
        }
    }
    let measured = median(measured.3);
    let baseline = median(baseline.3);
    report.add_row(RatioRow {
        bench: "http",
        measured: format!("{label}, median: {}", format_duration(measured)),
        baseline: format!("a bare axum handler with the same bytes: {}", format_duration(baseline)),
        ratio: ratio(measured, baseline),
        threshold: Threshold::AtMost(max_ratio, "the bare handler".into()),
    });
    Ok(())
}

/// Measures the throughput of 200 different searches with several concurrent clients.
fn measure_throughput(report: &mut BenchReport, served: &ToolcribServer, bare: &BareServer) -> Result<()> {
    let queries = search_paths();
    let mut measured = Vec::new();
    let mut baseline = Vec::new();
    // The first round is a warm-up and not counted.
    for round in 0..=ROUNDS {
        let measured_time = time_concurrent_clients(&served.address, &queries, "")?;
        let baseline_time = time_concurrent_clients(&bare.address, &["/found".to_owned()], "")?;
        if round > 0 {
            measured.push(measured_time);
            baseline.push(baseline_time);
        }
    }
    let measured = median(measured);
    let baseline = median(baseline);
    let per_second = |time: Duration| (CLIENTS * REQUESTS_PER_CLIENT) as f64 / time.as_secs_f64();
    let share = per_second(measured) / per_second(baseline);
    report.add_row(RatioRow {
        bench: "http",
        measured: format!("`GET /api/search`, {CLIENTS} clients at once: {:.0} a second", per_second(measured)),
        baseline: format!("a bare axum handler: {:.0} a second", per_second(baseline)),
        ratio: share,
        threshold: Threshold::Condition(share >= 1.0 / 3.0, "at least 0.333".into()),
    });
    Ok(())
}

/// Returns 200 different searches, so that one cached response does not answer all of them.
pub(crate) fn search_paths() -> Vec<String> {
    let path = |number: usize| {
        let first = QUERY_WORDS[number % QUERY_WORDS.len()];
        let second = QUERY_WORDS[number / 10 % QUERY_WORDS.len()];
        format!("/api/search?q={first}+{second}+{}", number / 20)
    };
    (0..200).map(path).collect()
}

/// Measures the time until all clients have sent all their requests.
pub(crate) fn time_concurrent_clients(address: &str, paths: &[String], headers: &str) -> Result<Duration> {
    let began = Instant::now();
    let failed = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                scope.spawn(move || {
                    let mut connection = RawHttpClient::connect(address).map_err(|error| error.to_string())?;
                    // Each client begins at another query.
                    for path in paths.iter().cycle().skip(client * 50).take(REQUESTS_PER_CLIENT) {
                        connection.get(path, headers).map_err(|error| error.to_string())?;
                    }
                    Ok::<_, String>(())
                })
            })
            .collect();
        clients
            .into_iter()
            .find_map(|client| client.join().map_or(Some("a client thread panicked".into()), |end| end.err()))
    });
    match failed {
        Some(error) => Err(error.into()),
        None => Ok(began.elapsed()),
    }
}

/// Measures the latency of a page with and without listeners, alternating. The spread of the runs without listeners is
/// the noise, and the threshold.
fn measure_listeners(report: &mut BenchReport, served: &ToolcribServer, path: &str) -> Result<()> {
    let measure = || -> Result<Duration> {
        let mut client = RawHttpClient::connect(&served.address)?;
        let times = (0..BLOCK_SIZE * 10).map(|_| {
            let (time, response) = measure_time(|| client.get(path, ""));
            response.map(|_| time)
        });
        Ok(median(times.collect::<Result<Vec<_>>>()?))
    };
    // A warm-up, not counted.
    measure()?;
    let mut with = Vec::new();
    let mut without = Vec::new();
    for _ in 0..LISTENER_ROUNDS {
        without.push(measure()?);
        let listening =
            (0..LISTENERS).map(|_| RawHttpClient::subscribe_events(&served.address)).collect::<Result<Vec<_>>>()?;
        with.push(measure()?);
        drop(listening);
    }
    let noise = without.iter().max().zip(without.iter().min()).map_or(1.0, |(max, min)| ratio(*max, *min));
    let with = median(with);
    let without = median(without);
    report.add_row(RatioRow {
        bench: "http",
        measured: format!("the page with {LISTENERS} listeners to `/api/events`, median: {}", format_duration(with)),
        baseline: format!("with none: {}", format_duration(without)),
        ratio: ratio(with, without),
        threshold: Threshold::AtMost(noise, "spread of the runs without listeners".into()),
    });
    Ok(())
}
