//! Export of traces to an OpenTelemetry collector: the exported spans, and that an unreachable collector does not affect
//! commands.

use std::process::{Output, Stdio};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind, status::StatusCode};
use prost::Message;
use serde_json::{Value, json};
use toolcrib_testkit::http_server::{HttpReply, LoopbackServer};
use toolcrib_testkit::programs;

use crate::support::http::{call_tool, request};
use crate::support::test_server::{TestWorkspace, read_or_empty, wait_until};

const TRACE_ID: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN_ID: &str = "b7ad6b7169203331";

fn test_workspace() -> TestWorkspace {
    let sources = json!({
        "one": { "command": programs::scripted_server(), "args": ["--with", "echo", "--with", "meta", "--with", "fail"] },
        "broken": { "command": "no-such-program-here" },
    });
    TestWorkspace::new(&sources, &json!({}))
}

/// All requests that the collector received.
fn export_requests(collector: &LoopbackServer) -> Vec<ExportTraceServiceRequest> {
    let bodies = collector.requests().into_iter().map(|requests| requests.body);
    bodies.map(|body| ExportTraceServiceRequest::decode(body.as_slice()).unwrap()).collect()
}

fn spans(collector: &LoopbackServer) -> Vec<Span> {
    let resources = export_requests(collector).into_iter().flat_map(|request| request.resource_spans);
    resources.flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans).collect()
}

#[track_caller]
fn find_span<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
    spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("no `{name}` among {names:?}"))
}

fn attributes(pairs: &[KeyValue]) -> Value {
    pairs.iter().map(|pair| (pair.key.clone(), to_json(pair.value.as_ref()))).collect::<serde_json::Map<_, _>>().into()
}

fn to_json(value: Option<&AnyValue>) -> Value {
    match value.and_then(|value| value.value.as_ref()) {
        Some(any_value::Value::StringValue(text)) => json!(text),
        Some(any_value::Value::BoolValue(boolean)) => json!(boolean),
        Some(any_value::Value::IntValue(number)) => json!(number),
        Some(any_value::Value::DoubleValue(number)) => json!(number),
        Some(any_value::Value::ArrayValue(list)) => list.values.iter().map(|value| to_json(Some(value))).collect(),
        _ => Value::Null,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn run(workspace: &TestWorkspace, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    workspace.toolcrib(arguments).envs(variables.iter().copied()).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn a_command_is_exported_as_one_trace() {
    let workspace = test_workspace();
    let collector = LoopbackServer::start(|_| HttpReply::json(200, ""));
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url.as_str()),
        ("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Basic%20cGs6c2s=,x-more=a%2Cb"),
        ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test"),
    ];
    let output = run(&workspace, &["call", "one__echo", "text=xyzzy"], &variables);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let requests = collector.requests();
    assert_eq!(requests[0].request_line(), "POST /v1/traces");
    assert_eq!(requests[0].header("authorization"), Some("Basic cGs6c2s="));
    assert_eq!(requests[0].header("x-more"), Some("a,b"));
    assert_eq!(requests[0].header("content-type"), Some("application/x-protobuf"));
    let resource = attributes(&export_requests(&collector)[0].resource_spans[0].resource.as_ref().unwrap().attributes);
    assert_eq!(
        (&resource["service.name"], &resource["deployment.environment.name"]),
        (&json!("toolcrib"), &json!("test"))
    );

    let spans = spans(&collector);
    let command = find_span(&spans, "toolcrib call");
    let discovery = find_span(&spans, "tool-discovery");
    let call = find_span(&spans, "tools/call one__echo");
    assert_eq!(spans.len(), 3, "{spans:?}");
    assert!(spans.iter().all(|span| span.trace_id == command.trace_id));
    assert!(discovery.parent_span_id == command.span_id && call.parent_span_id == command.span_id);
    assert!(command.parent_span_id.is_empty());

    let exported_attributes = attributes(&discovery.attributes);
    assert_eq!(exported_attributes["toolcrib.server_name"], "one");
    let names = exported_attributes["toolcrib.tool_names"].as_array().unwrap();
    assert!(
        names.contains(&json!("one__echo")) && exported_attributes["toolcrib.tool_count"] == names.len(),
        "{exported_attributes}"
    );
    assert_eq!(
        (&exported_attributes["toolcrib.cache_hit"], &exported_attributes["toolcrib.cache_hit_ratio"]),
        (&json!(false), &json!(0.0))
    );
    assert!(exported_attributes["toolcrib.duration_ms"].is_i64());

    let exported_attributes = attributes(&call.attributes);
    for (name, value) in [
        ("gen_ai.operation.name", "execute_tool"),
        ("gen_ai.tool.name", "one__echo"),
        ("mcp.method.name", "tools/call"),
        ("network.transport", "pipe"),
        ("toolcrib.server_name", "one"),
        ("toolcrib.caller", "cli"),
    ] {
        assert_eq!(exported_attributes[name], value, "{name}");
    }
    assert!(exported_attributes["mcp.protocol.version"].is_string(), "{exported_attributes}");
    assert_eq!(call.kind, SpanKind::Client as i32);
    assert!(call.end_time_unix_nano >= call.start_time_unix_nano);
    let has_no_payload =
        collector.requests().iter().all(|requests| !requests.body.windows(5).any(|bytes| bytes == b"xyzzy"));
    assert!(has_no_payload, "no argument or result is exported");
}

#[test]
fn failures_are_exported_with_their_code() {
    let workspace = test_workspace();
    let collector = LoopbackServer::start(|_| HttpReply::json(200, ""));
    let variables = [("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", format!("{}/elsewhere", collector.url))];
    let variables = [(variables[0].0, variables[0].1.as_str()), ("OTEL_SERVICE_NAME", "crib")];
    run(&workspace, &["refresh"], &variables);
    run(&workspace, &["refresh"], &variables);
    run(&workspace, &["call", "one__fail"], &variables);
    assert_eq!(collector.requests()[0].request_line(), "POST /elsewhere");
    let resource = attributes(&export_requests(&collector)[0].resource_spans[0].resource.as_ref().unwrap().attributes);
    assert_eq!(resource["service.name"], "crib");

    let spans = spans(&collector);
    let of = |source: &str, hit: bool| {
        let is_match = |span: &&Span| {
            let exported_attributes = attributes(&span.attributes);
            exported_attributes["toolcrib.server_name"] == source && exported_attributes["toolcrib.cache_hit"] == hit
        };
        spans.iter().filter(|span| span.name == "tool-discovery").find(is_match).unwrap_or_else(|| panic!("{spans:?}"))
    };
    let broken = of("broken", false);
    assert_eq!(broken.status.as_ref().unwrap().code, StatusCode::Error as i32);
    assert_eq!(attributes(&broken.attributes)["error.type"], "TOOL_UNAVAILABLE");
    assert_eq!(attributes(&of("one", true).attributes)["toolcrib.duration_ms"], 0);
    let call = find_span(&spans, "tools/call one__fail");
    assert_eq!(attributes(&call.attributes)["error.type"], "tool_error");
    assert_eq!(call.status.as_ref().unwrap().code, StatusCode::Error as i32);
}

#[test]
fn a_served_call_belongs_to_the_trace_of_its_client() {
    let workspace = test_workspace();
    let collector = LoopbackServer::start(|_| HttpReply::json(200, ""));
    let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url.as_str())];
    let mut server = workspace.start_listening_with(&["serve", "--listen", "127.0.0.1:0"], &variables);
    let meta = json!({ "traceparent": format!("00-{TRACE_ID}-{SPAN_ID}-01") });
    let result = call_tool(&server, "one__meta", &json!({}), meta);
    let received_meta: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
    let traceparent = received_meta["traceparent"].as_str().unwrap().to_owned();
    wait_until("the span of the call", || spans(&collector).iter().any(|span| span.name == "tools/call one__meta"));

    let known = spans(&collector);
    let exported = find_span(&known, "tools/call one__meta");
    assert_eq!((hex(&exported.trace_id).as_str(), hex(&exported.parent_span_id).as_str()), (TRACE_ID, SPAN_ID));
    assert_eq!(
        traceparent,
        format!("00-{TRACE_ID}-{}-01", hex(&exported.span_id)),
        "the upstream server gets the id of the exported span"
    );

    // A call without a trace starts one, and spans that are pending at shutdown are exported.
    let result = call_tool(&server, "one__meta", &json!({}), json!({}));
    assert!(result["content"][0]["text"].as_str().unwrap().contains("traceparent"), "{result}");
    server.signal("TERM");
    assert!(server.wait_for_exit().success());
    assert_eq!(spans(&collector).iter().filter(|span| span.name == "tools/call one__meta").count(), 2);
}

#[test]
fn every_log_event_of_a_server_has_a_trace_id() {
    let workspace = test_workspace();
    run(&workspace, &["refresh"], &[]);
    // The environment switches one source: without a record, the log says so.
    let variables = [("TOOLCRIB_LOG_FORMAT", "json"), ("TOOLCRIB_SOURCE_ONE_ENABLED", "false")];
    let server = workspace.start_listening_with(&["serve", "--listen", "127.0.0.1:0", "-v"], &variables);
    let parent = format!("traceparent: 00-{TRACE_ID}-{SPAN_ID}-01\r\n");
    request(&server.url, "POST", "/api/refresh?force=true", &parent, "");
    request(&server.url, "POST", "/api/refresh", "", "");
    request(&server.url, "GET", "/api/sources", "", "");
    let events = || -> Vec<Value> {
        let log = read_or_empty(&workspace.path("serve.log"));
        log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    wait_until("the last request is logged", || {
        events().iter().filter(|event| event["message"] == "http.request").count() >= 3
    });
    let events = events();
    let named = |name: &str| {
        events.iter().find(|event| event["message"] == name).unwrap_or_else(|| panic!("{name}: {events:?}"))
    };
    assert_eq!(named("tools.registry.server.removed")["server_name"], "one");
    assert_eq!(named("tools.registry.updated")["mcp_count"], 0);
    assert_eq!(named("tools.discovery.server.failed")["trace_id"], TRACE_ID);
    let is_own = |event: &&Value| {
        event["message"].as_str().is_some_and(|name| name.starts_with("tools.") || name == "http.request")
    };
    for event in events.iter().filter(is_own) {
        let in_span =
            event["spans"].as_array().is_some_and(|spans| spans.iter().any(|span| span["trace_id"].is_string()));
        assert!(event["trace_id"].is_string() || in_span, "{event}");
    }
}

/// The recipe for Langfuse in the documentation, against what Langfuse documents: the path, the headers, and the
/// attributes that it maps to its own fields.
#[test]
fn the_recipe_for_langfuse_sends_what_langfuse_documents() {
    const RECIPE: &str = include_str!("../../../docs/operations.md");
    let workspace = test_workspace();
    let collector = LoopbackServer::start(|_| HttpReply::json(200, ""));
    let langfuse = RECIPE.split("For Langfuse").nth(1).unwrap();
    let line = |name: &str| langfuse.lines().find_map(|line| line.strip_prefix(&format!("export {name}="))).unwrap();
    // `pk:sk` in Base64, as `AUTH` of the recipe.
    let headers = line("OTEL_EXPORTER_OTLP_HEADERS").trim_matches('"').replace("$AUTH", "cGs6c2s=");
    let endpoint = line("OTEL_EXPORTER_OTLP_ENDPOINT").replace("https://cloud.langfuse.com", &collector.url);
    let variables =
        [("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()), ("OTEL_EXPORTER_OTLP_HEADERS", headers.as_str())];
    run(&workspace, &["call", "one__echo", "text=xyzzy"], &variables);
    run(&workspace, &["call", "one__fail"], &variables);

    for request in collector.requests() {
        assert_eq!(request.request_line(), "POST /api/public/otel/v1/traces");
        assert_eq!(request.header("authorization"), Some("Basic cGs6c2s="));
        assert_eq!(request.header("x-langfuse-ingestion-version"), Some("4"));
        assert_eq!(request.header("content-type"), Some("application/x-protobuf"));
    }
    let spans = spans(&collector);
    let call = attributes(&find_span(&spans, "tools/call one__echo").attributes);
    // Type, name and user of an observation, in Langfuse's words and in those of OpenTelemetry that it understands.
    for (name, value) in [
        ("langfuse.observation.type", "tool"),
        ("gen_ai.operation.name", "execute_tool"),
        ("gen_ai.tool.name", "one__echo"),
        ("user.id", "cli"),
    ] {
        assert_eq!(call[name], value, "{name}");
    }
    // Input and output of an observation come from these; Toolcrib sends neither.
    for name in [
        "langfuse.observation.input",
        "langfuse.observation.output",
        "gen_ai.prompt",
        "gen_ai.completion",
        "input.value",
        "output.value",
    ] {
        assert_eq!(call[name], Value::Null, "{name}");
    }
    // The level of an observation is `ERROR` if the status of its span is.
    assert_eq!(find_span(&spans, "tools/call one__fail").status.as_ref().unwrap().code, StatusCode::Error as i32);
    let resource = attributes(&export_requests(&collector)[0].resource_spans[0].resource.as_ref().unwrap().attributes);
    assert_eq!(resource["service.name"], "toolcrib");
}

#[test]
fn workflow_steps_are_child_spans() {
    let workspace = TestWorkspace::new(&json!({}), &json!({}));
    let collector = LoopbackServer::start(|_| HttpReply::json(200, ""));
    let shop = workspace.start_listening(&["demo", "--api"]);
    std::fs::write(workspace.path("shop.arazzo.yaml"), include_str!("../../../fixtures/shop.arazzo.yaml")).unwrap();
    let document = format!("{}/openapi.json", shop.url);
    let sources = json!({
        "shop": { "openapi": document, "allow_private": true },
        "errands": { "workflow": "shop.arazzo.yaml" },
    });
    workspace.configure(&sources, &json!({}));
    let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url.as_str())];
    let output = run(&workspace, &["call", "errands__buy_cheapest", "category=dairy"], &variables);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let spans = spans(&collector);
    let workflow = find_span(&spans, "execute_tool errands__buy_cheapest");
    assert_eq!(workflow.kind, SpanKind::Internal as i32);
    let steps: Vec<&Span> = spans.iter().filter(|span| span.name.starts_with("execute_tool shop__")).collect();
    assert!(steps.len() > 1 && steps.iter().all(|step| step.parent_span_id == workflow.span_id), "{spans:?}");
    assert!(spans.iter().all(|span| span.trace_id == workflow.trace_id));
}

#[test]
fn an_unreachable_collector_does_not_affect_commands() {
    let silent = LoopbackServer::start(|_| HttpReply::never());
    for url in [silent.url.as_str(), "http://127.0.0.1:1"] {
        let workspace = test_workspace();
        let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", url)];
        let output = run(&workspace, &["call", "one__echo", "text=hi"], &variables);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && output.stdout == b"hi\n", "{stderr}");
        assert!(stderr.contains("lost"), "{stderr}");

        let mut server = workspace.start_listening_with(&["serve", "--listen", "127.0.0.1:0"], &variables);
        for _ in 0..20 {
            let result = call_tool(&server, "one__echo", &json!({ "text": "hi" }), json!({}));
            assert_eq!(result["content"][0]["text"], "hi");
        }
        assert!(request(&server.url, "GET", "/metrics", "", "").body.contains("\ntoolcrib_spans_lost_total "));
        server.signal("TERM");
        assert!(server.wait_for_exit().success());
        assert!(read_or_empty(&workspace.path("serve.log")).contains("lost"));
    }
}

#[test]
fn unsupported_export_settings_are_reported() {
    let workspace = test_workspace();
    let collector = LoopbackServer::start(|_| HttpReply::json(200, ""));
    for (name, value) in [("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"), ("OTEL_EXPORTER_OTLP_ENDPOINT", "no address")] {
        let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url.as_str()), (name, value)];
        let output = run(&workspace, &["call", "one__echo", "text=hi"], &variables);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && stderr.contains("traces are not exported"), "{stderr}");
    }
    run(&workspace, &["sources"], &[("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url), ("OTEL_SDK_DISABLED", "true")]);
    assert!(collector.requests().is_empty());
}
