use serde_json::value::RawValue;
use toolcrib_connector::ProgressListener;
use toolcrib_core::source::{Auth, PollSettings};

use super::*;

fn poll(url: &str) -> PollSettings {
    PollSettings {
        url: url.into(),
        status: "/state".into(),
        result: Some("/out".into()),
        done: vec!["done".into(), "3".into()],
        failed: vec!["failed".into()],
        interval: Some(Duration::from_millis(1)),
    }
}

/// Server with a job that is started by POST and then returns these states in order.
fn start_job_server(location: &'static str, states: &'static [&'static str]) -> LoopbackServer {
    LoopbackServer::start(move |received| match received.method.as_str() {
        "POST" => HttpReply::new(
            202,
            &format!("content-type: application/json\nlocation: {location}"),
            r#"{"id":"j 1","self":"/api/jobs/1","sly":"1?x=/../..#","up":".."}"#,
        ),
        _ => HttpReply::json(200, states[(received.number - 2).min(states.len() - 1)]),
    })
}

async fn run_job(server: &LoopbackServer, poll: PollSettings, context: CallContext) -> Result<Value, CallFailure> {
    let operation = operation("POST", &format!("{}/api", server.url), "/jobs");
    let connector = connector(OpenApiSource { auth: Some(Auth::Bearer("token".into())), ..OpenApiSource::default() });
    let call = build_call(ExecutionMode::AsyncPoll { operation, poll }, &json!({}), context);
    connector.call(&call).await.map(|answer| serde_json::from_str(answer.raw.get()).unwrap())
}

#[tokio::test]
async fn a_job_is_polled_until_it_is_done() {
    let states = &["", r#"{"state":"queued"}"#, r#"{"state":"running"}"#, r#"{"state":3,"out":{"n":1}}"#];
    for (url, status_line) in [
        ("/jobs/{$response.body#/id}/status", "GET /api/jobs/j%201/status"),
        ("{$response.header.Location}", "GET /status/1"),
        ("$response.body#/self", "GET /api/jobs/1"),
        ("{$response.body#/id}/s?of={$response.body#/sly}", "GET /api/j%201/s?of=1%3Fx%3D%2F..%2F..%23"),
        ("/jobs/{$response.body#/sly}", "GET /api/jobs/1%3Fx%3D%2F..%2F..%23"),
    ] {
        let server = start_job_server("/status/1", states);
        let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
        let progress: ProgressListener = Arc::new(move |params: &RawValue| drop(sender.send(params.to_owned())));
        let result = run_job(&server, poll(url), CallContext { on_progress: Some(progress), ..CallContext::default() })
            .await
            .unwrap();
        assert_eq!(result["structuredContent"], json!({"n": 1}));
        assert_eq!(server.request_lines(), ["POST /api/jobs", status_line, status_line, status_line, status_line]);
        assert!(server.requests().iter().all(|received| received.header("authorization") == Some("Bearer token")));
        let mut messages = Vec::new();
        while let Ok(progress) = received.try_recv() {
            messages.push(progress.get().to_owned());
        }
        let expected = ["in progress", "queued", "running"].iter().zip(1..);
        let expected: Vec<_> =
            expected.map(|(state, n)| format!(r#"{{"progress":{n},"message":"{state}"}}"#)).collect();
        assert_eq!(messages, expected);
    }
}

#[tokio::test]
async fn a_job_result_may_be_the_whole_response_and_a_failure_has_a_reason() {
    let server = start_job_server("/s", &[r#"{"state":"done","n":1.50}"#]);
    let whole = PollSettings { result: None, ..poll("/s") };
    let result = run_job(&server, whole, CallContext::default()).await.unwrap();
    assert_eq!(result["content"][0]["text"], r#"{"state":"done","n":1.50}"#);

    for (state, expected) in [
        (r#"{"state":"failed","message":"out of paper"}"#, "ended as `failed`: out of paper"),
        (r#"{"state":"done"}"#, "finished without a result at `/out`"),
        ("busy", "returned a status that is not JSON"),
    ] {
        let states: &'static [&'static str] = Box::leak(Box::new([state]));
        let server = start_job_server("/s", states);
        let (kind, code, message) = failure_parts(run_job(&server, poll("/s"), CallContext::default()).await);
        assert_eq!((kind, code), ("rejected", Code::ToolExecutionFailed));
        assert_eq!(message, format!("`POST /jobs` {expected}"));
    }
}

#[tokio::test]
async fn polling_stays_on_the_server_and_within_the_deadline() {
    for (location, url, expected) in [
        ("https://evil.example.com/s", "{$response.header.Location}", "cannot be polled: it would leave `"),
        ("//evil.example.com/s", "{$response.header.Location}", "cannot be polled: it would leave `"),
        ("../../admin", "{$response.header.Location}", "cannot be polled: its URL has a `.` or `..`"),
        ("/s", "/jobs/{$response.body#/up}/x", "cannot be polled: its URL has a `.` or `..`"),
        ("/s", "/jobs/../../admin", "cannot be polled: its URL has a `.` or `..` path segment"),
    ] {
        let server = start_job_server(location, &[r#"{"state":"done"}"#]);
        let (kind, _, message) = failure_parts(run_job(&server, poll(url), CallContext::default()).await);
        assert_eq!((kind, server.requests().len()), ("rejected", 1));
        assert!(message.starts_with(&format!("`POST /jobs` {expected}")), "{message}");
    }
    let server = start_job_server("/s", &[r#"{"state":"running"}"#]);
    let slow = PollSettings { interval: Some(Duration::from_secs(3600)), ..poll("/s") };
    assert_eq!(
        failure_parts(run_job(&server, slow, CallContext::default()).await).2,
        "`POST /jobs` did not finish in time"
    );
    let missing = failure_parts(run_job(&server, poll("{$response.body#/nothing}"), CallContext::default()).await);
    assert_eq!((missing.0, missing.1), ("rejected", Code::ToolExecutionFailed));
}
