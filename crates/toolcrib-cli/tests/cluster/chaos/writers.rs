//! Clients that change rules, one record per change, on any node that answers.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cluster::nodes::admin_header;
use crate::support::http::{RawHttpResponse, try_request};
use crate::support::test_server::TEST_TIMEOUT;

/// Maximum time of a request. Shorter than some faults, so that a client gives up on a node that carries out its request
/// later.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
/// Number of tools `tool_0001`, `tool_0002`, … that policies are about.
const TOOL_COUNT: usize = 37;
/// Pause after a failed request.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Client that replaces one group or policy of its own over and over.
///
/// Its requests name the version that they replace (`If-Match`). A request that was repeated on another node, and that
/// the first node carries out after all when it wakes up, is therefore refused.
pub(super) struct RuleWriter<'a> {
    number: usize,
    urls: &'a [String],
    /// Index of the node that answered last.
    node: usize,
    etag: Option<String>,
}

/// A change that a node has acknowledged.
#[derive(Debug)]
pub(super) struct AcknowledgedWrite {
    /// Text that is in this change and no other.
    pub(super) mark: String,
    /// Position in the header of the response.
    pub(super) position: u64,
}

/// Work of one writer.
#[derive(Debug, Default)]
pub(super) struct WriterReport {
    pub(super) acknowledged: Vec<AcknowledgedWrite>,
    /// Requests without a response, or with one that another node may answer otherwise.
    pub(super) failed_requests: usize,
    /// Changes that were found to be carried out by a request that had failed.
    pub(super) found_done: usize,
    /// Longest time of a change, with its failed requests.
    pub(super) slowest: Duration,
}

impl<'a> RuleWriter<'a> {
    pub(super) fn new(number: usize, urls: &'a [String]) -> RuleWriter<'a> {
        RuleWriter { number, urls, node: number % urls.len(), etag: None }
    }

    /// Makes the changes with these numbers, and counts them in `progress`.
    pub(super) fn run(mut self, numbers: Range<usize>, progress: &AtomicUsize) -> WriterReport {
        let mut report = WriterReport::default();
        for number in numbers {
            let started_at = Instant::now();
            let write = self.change_rule(number, &mut report);
            report.acknowledged.push(write);
            report.slowest = report.slowest.max(started_at.elapsed());
            progress.fetch_add(1, Ordering::SeqCst);
        }
        report
    }

    /// Repeats a change until a node has acknowledged it.
    fn change_rule(&mut self, number: usize, report: &mut WriterReport) -> AcknowledgedWrite {
        let mark = format!("mark-{}-{number}", self.number);
        let body = self.definition(number, &mark).to_string();
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            let condition = match &self.etag {
                Some(etag) => format!("If-Match: {etag}\r\n"),
                None => "If-None-Match: *\r\n".to_owned(),
            };
            let answer = self.send("PUT", &format!("{condition}Content-Type: application/json\r\n"), &body);
            let answer = match answer {
                Some(response) if response.status == 412 => {
                    let found = self.send("GET", "", "");
                    if let Some(found) = &found {
                        assert!(found.body.contains(&format!("\"{mark}\"")), "neither before nor after: {found:?}");
                        report.found_done += 1;
                    }
                    found
                }
                answer => answer,
            };
            if let Some(response) = answer {
                self.etag = Some(response.header("etag").unwrap().to_owned());
                let position = response.header("x-toolcrib-position").unwrap().parse().unwrap();
                return AcknowledgedWrite { mark, position };
            }
            report.failed_requests += 1;
            self.node = (self.node + 1) % self.urls.len();
            assert!(Instant::now() < deadline, "no node has acknowledged {mark}");
            std::thread::sleep(RETRY_PAUSE);
        }
    }

    /// Sends a request about the rule. `None` without a complete response, or if the response is an error that says to
    /// try again.
    fn send(&self, method: &str, headers: &str, body: &str) -> Option<RawHttpResponse> {
        let kind = if self.changes_a_group() { "groups" } else { "policies" };
        let path = format!("/api/{kind}/writer-{}", self.number);
        let headers = format!("{}{headers}", admin_header());
        let response = try_request(&self.urls[self.node], method, &path, &headers, body, REQUEST_TIMEOUT).ok()?;
        if matches!(response.status, 200 | 201 | 412) {
            return Some(response);
        }
        assert_eq!(response.json()["error"]["retryable"], json!(true), "{response:?}");
        None
    }

    /// The rule with a mark. A policy denies one of the tools, so that the lists change as well.
    fn definition(&self, number: usize, mark: &str) -> Value {
        if self.changes_a_group() {
            return json!({ "title": mark, "select": [{ "tags": [mark] }] });
        }
        let tool = format!("tool_{:04}", number % TOOL_COUNT + 1);
        let not_marked = json!({ "claim": "mark", "not_in": [mark] });
        json!({ "match": { "name": tool, "when": [not_marked] }, "verdict": "deny" })
    }

    fn changes_a_group(&self) -> bool {
        self.number.is_multiple_of(2)
    }
}

/// Returns the mark in a journal record; `None` for a record that no writer has made.
pub(super) fn find_mark(record: &Value) -> Option<String> {
    let text = record["data"].to_string();
    let (_, rest) = text.split_once("\"mark-")?;
    let (mark, _) = rest.split_once('"')?;
    Some(format!("mark-{mark}"))
}
