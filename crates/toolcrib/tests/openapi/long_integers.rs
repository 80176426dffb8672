//! Integers of more than 64 bits, from the document and the arguments to the request, and from the response to the result.

use serde_json::{Value, json};
use toolcrib::catalog::render::Format;
use toolcrib::core::json::{parse_exact, to_exact_string};
use toolcrib_testkit::http_server::{HttpReply, LoopbackServer};

use super::support::OpenApiTestRegistry;

const INTEGER: &str = "123456789012345678901234567890";

/// An API that finds by all kinds of parameters and saves bodies of all kinds.
fn document(server: &LoopbackServer) -> String {
    format!(
        r#"
openapi: 3.1.0
info: {{ title: Ids, version: "1" }}
servers: [{{ url: "{url}" }}]
paths:
  /find/{{id}}:
    get:
      operationId: find
      parameters:
        - {{ name: id, in: path, required: true, schema: {{ type: integer, minimum: 1, maximum: {INTEGER} }} }}
        - {{ name: q, in: query, schema: {{ type: array, items: {{ type: integer }}, default: [{INTEGER}] }} }}
        - {{ name: c, in: query, schema: {{ const: {INTEGER} }} }}
        - {{ name: e, in: query, schema: {{ type: integer, enum: [1, {INTEGER}] }} }}
        - {{ name: j, in: query, content: {{ application/json: {{ schema: {{ type: object }} }} }} }}
        - {{ name: X-Id, in: header, schema: {{ type: integer }} }}
        - {{ name: k, in: cookie, schema: {{ type: integer }} }}
      responses: {{ default: {{ description: it }} }}
  /save:
    post:
      operationId: save
      requestBody:
        content:
          application/json: {{ schema: &body {{ type: object, properties: {{ id: {{ type: integer }} }} }} }}
          application/x-www-form-urlencoded: {{ schema: *body }}
          multipart/form-data: {{ schema: *body }}
          application/x-ndjson: {{ schema: *body }}
      responses: {{ default: {{ description: it }} }}
"#,
        url = server.url
    )
}

async fn open(server: &LoopbackServer, sources: Value) -> OpenApiTestRegistry {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("api.yaml"), document(server)).unwrap();
    let steps = format!(
        r#"[
        {{ "stepId": "save", "operationId": "save", "outputs": {{ "id": "$response.body#/id" }},
           "requestBody": {{ "payload": {{ "id": "$inputs.id", "own": {INTEGER} }} }},
           "successCriteria": [{{ "condition": "$response.body#/id == {INTEGER}" }}] }},
        {{ "stepId": "find", "operationId": "find", "outputs": {{ "ids": "$response.body#/ids" }}, "parameters": [
           {{ "name": "id", "in": "path", "value": "$steps.save.outputs.id" }},
           {{ "name": "X-Id", "in": "header", "value": "{{$steps.save.outputs.id}}" }},
           {{ "name": "other", "in": "query", "value": "$steps.save.outputs.id" }}] }}]"#
    );
    let workflow = format!(
        r#"{{ "arazzo": "1.0.1", "info": {{ "title": "Ids", "version": "1" }},
        "sourceDescriptions": [{{ "name": "ids", "url": "api.yaml", "type": "openapi" }}],
        "workflows": [{{ "workflowId": "both", "steps": {steps},
            "inputs": {{ "type": "object", "properties": {{ "id": {{ "type": "integer", "default": {INTEGER} }} }} }},
            "outputs": {{ "id": "$steps.save.outputs.id", "ids": "$steps.find.outputs.ids", "text": "<{{$inputs.id}}>" }} }}] }}"#
    );
    std::fs::write(home.path().join("flow.json"), workflow).unwrap();
    OpenApiTestRegistry::open(home, sources).await
}

#[tokio::test]
async fn an_api_gets_and_returns_all_digits() {
    let reply = format!(r#"{{"id": {INTEGER}, "ids": [-{INTEGER}]}}"#);
    let server = LoopbackServer::start(move |_| HttpReply::json(200, reply.clone()));
    let registry = open(&server, json!({ "ids": { "openapi": "api.yaml" } })).await;
    let arguments = r#"{"id":N,"q":[N,-N],"c":N,"e":N,"j":{"n":[N]},"X-Id":N,"k":N}"#.replace('N', INTEGER);
    registry.call("ids__find", parse_exact(&arguments).unwrap()).await.unwrap();
    let request = server.requests().pop().unwrap();
    let expected = "GET /find/N?q=N&q=-N&c=N&e=N&j=%7B%22n%22%3A%5BN%5D%7D".replace('N', INTEGER);
    assert_eq!(request.request_line(), expected);
    assert_eq!(request.header("x-id"), Some(INTEGER));
    assert_eq!(request.header("cookie"), Some(format!("k={INTEGER}").as_str()));

    for (content_type, expected) in [
        ("application/json", r#"{"id":N}"#),
        ("application/x-www-form-urlencoded", "id=N"),
        ("multipart/form-data", "name=\"id\"\r\n\r\nN\r\n"),
        ("application/x-ndjson", "{\"id\":N}\n"),
    ] {
        let value = if content_type.ends_with("ndjson") { r#"[{"id":N}]"# } else { r#"{"id":N}"# };
        let arguments = format!(r#"{{"body":{value},"body__content_type":"{content_type}"}}"#).replace('N', INTEGER);
        let output = registry.call("ids__save", parse_exact(&arguments).unwrap()).await.unwrap();
        let sent = server.requests().pop().unwrap().text();
        assert!(sent.contains(&expected.replace('N', INTEGER)), "{content_type}: {sent}");
        assert_eq!(output.structured(), Some(format!(r#"{{"id": {INTEGER}, "ids": [-{INTEGER}]}}"#).as_str()));
    }
    let error = registry.call("ids__find", parse_exact(&format!(r#"{{"id":-{INTEGER}}}"#)).unwrap()).await.unwrap_err();
    assert_eq!(error.code, toolcrib::Code::ToolInvalidInput, "{error}");
}

#[tokio::test]
async fn schemas_have_all_digits() {
    let server = LoopbackServer::start(|_| HttpReply::json(200, "{}"));
    let registry = open(&server, json!({ "ids": { "openapi": "api.yaml" } })).await;
    registry.tool_names().await;
    let schema = registry.tool("ids__find").unwrap().tool.listing.input_schema.get().to_owned();
    for part in ["\"maximum\":N", "\"default\":[N]", "\"const\":N", "\"enum\":[1,N]"] {
        assert!(schema.contains(&part.replace('N', INTEGER)), "{part} is not in {schema}");
    }
    for format in [Format::Mcp, Format::Anthropic, Format::Openai, Format::OpenaiStrict, Format::Gemini] {
        let list = registry.view(&toolcrib::Principal::default()).render(format).unwrap();
        assert!(list.contains(&format!("\"maximum\":{INTEGER}")), "{format:?}: {list}");
        assert!(!list.contains("e+29") && !list.contains('\u{10ffff}'), "{format:?}: {list}");
    }
}

#[tokio::test]
async fn a_workflow_passes_all_digits_on() {
    let reply = format!(r#"{{"id": {INTEGER}, "ids": [-{INTEGER}]}}"#);
    let server = LoopbackServer::start(move |_| HttpReply::json(200, reply.clone()));
    let sources = json!({ "ids": { "openapi": "api.yaml" }, "flow": { "workflow": "flow.json" } });
    let registry = open(&server, sources).await;
    for arguments in [json!({}), parse_exact(&format!(r#"{{"id":{INTEGER}}}"#)).unwrap()] {
        let output = registry.call("flow__both", arguments).await.unwrap();
        let expected = r#"{"id":N,"ids":[-N],"text":"<N>"}"#.replace('N', INTEGER);
        assert_eq!(output.structured(), Some(expected.as_str()));
        assert_eq!(output.text(), expected);
    }
    let requests = server.requests();
    assert_eq!(requests[0].text(), r#"{"id":N,"own":N}"#.replace('N', INTEGER));
    assert_eq!(requests[1].request_line(), format!("GET /find/{INTEGER}?other={INTEGER}"));
    assert_eq!(requests[1].header("x-id"), Some(INTEGER));
}

#[tokio::test]
async fn an_error_of_the_api_has_all_digits() {
    let server = LoopbackServer::start(|_| HttpReply::json(409, format!(r#"{{"id": {INTEGER}}}"#)));
    let registry = open(&server, json!({ "ids": { "openapi": "api.yaml" } })).await;
    let error = registry.call("ids__find", json!({ "id": 1 })).await.unwrap_err();
    let details = to_exact_string(&error.details.unwrap()["body"]).unwrap();
    assert_eq!(details, format!(r#"{{"id":{INTEGER}}}"#));
}
