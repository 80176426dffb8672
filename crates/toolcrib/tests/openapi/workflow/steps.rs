//! Steps of a workflow: requests, expressions over responses, retries and jumps.

use serde_json::{Value, json};
use toolcrib::registry::ToolFilter;
use toolcrib::{CallContext, Code};
use toolcrib_testkit::http_server::{HttpReply, LoopbackServer, ReceivedRequest};

use super::{
    buy_workflow, list_step, open_api_with_workflow, open_shop_with_workflow, order_step, order_step_with, run_buy,
    run_buy_with, shop_document, structured_output,
};

fn order_created() -> HttpReply {
    HttpReply::json(201, r#"{"id": 7}"#)
}

#[tokio::test]
async fn outputs_of_a_step_are_inputs_of_another() {
    let server = LoopbackServer::start(|request| match request.request_line().as_str() {
        "GET /products?category=light" => HttpReply::json(200, r#"[{"sku": "lamp"}]"#),
        "POST /orders" => HttpReply::new(201, "content-type: application/json\nx-order: 7", r#"{"id": 7}"#),
        _ => HttpReply::json(200, r#"{"total": 24.5}"#),
    });
    let header = json!({ "name": "x-limit", "in": "header", "value": "{$inputs.quantity}" });
    let mut first = list_step();
    first["parameters"].as_array_mut().unwrap().push(header);
    let payload = json!({ "sku": "$steps.list.outputs.sku", "quantity": "$inputs.quantity" });
    let second = order_step_with(json!({
        "requestBody": { "contentType": "application/json", "payload": payload },
        "outputs": { "id": "$response.header.X-Order", "url": "$url", "method": "$method" },
    }));
    let third = json!({
        "stepId": "look",
        "operationPath": "{$sourceDescriptions.shop.url}#/paths/~1orders~1{id}/get",
        "parameters": [{ "name": "id", "in": "path", "value": "$steps.order.outputs.id" }],
        "successCriteria": [{ "context": "$response.body", "type": "jsonpath", "condition": "$[?@ > 20]" }],
        "outputs": { "total": "$response.body#/total" },
    });
    let outputs = json!({
        "total": "$steps.look.outputs.total",
        "url": "$steps.order.outputs.url",
        "method": "$steps.order.outputs.method",
    });
    let registry =
        open_shop_with_workflow(&server, &buy_workflow(json!([first, second, third]), outputs), json!({})).await;
    let (progress, mut progress_receiver) = toolcrib::testkit::progress_channel();
    let options = CallContext { on_progress: Some(progress), ..CallContext::default() };
    let input = json!({ "category": "light", "quantity": 2 });
    let output = registry.call_with("errands__buy", input, options).await.unwrap();

    let expected = json!({ "total": 24.5, "url": format!("{}/orders", server.url), "method": "POST" });
    assert_eq!(structured_output(&output), expected);
    let request = server.requests();
    assert_eq!(server.request_lines(), ["GET /products?category=light", "POST /orders", "GET /orders/7"]);
    assert_eq!(
        (request[0].header("x-limit"), request[1].text().as_str()),
        (Some("2"), r#"{"sku":"lamp","quantity":2}"#)
    );
    let mut messages = Vec::new();
    while let Ok(line) = progress_receiver.try_recv() {
        messages.push(line.get().to_owned());
    }
    assert_eq!(
        messages,
        [
            r#"{"progress":1,"message":"step `list`: shop__list_products"}"#,
            r#"{"progress":2,"message":"step `order`: shop__placeOrder"}"#,
            r#"{"progress":3,"message":"step `look`: shop__getOrder"}"#,
        ]
    );
    let tools = registry.tools(ToolFilter::default()).await.unwrap();
    let calls = registry.tool("shop__placeOrder").unwrap().usage.unwrap().calls;
    assert_eq!((tools.len(), calls), (5, 1), "a step counts as a call");
}

#[tokio::test]
async fn the_content_type_of_a_step_chooses_the_kind_of_body() {
    let server = LoopbackServer::start(|_| order_created());
    let step = |name: &str, body: Value| json!({ "stepId": name, "operationId": "placeOrder", "requestBody": body });
    let payload = json!({ "sku": "a b" });
    let form = "application/x-www-form-urlencoded";
    let steps = json!([
        step("default", json!({ "payload": payload })),
        step("declared", json!({ "payload": "sku\n1", "contentType": "Text/CSV; charset=utf-8" })),
        step("form", json!({ "payload": payload, "contentType": form })),
        step("form_text", json!({ "payload": "sku={$inputs.category}&quantity=2", "contentType": form })),
        step("undeclared", json!({ "payload": payload, "contentType": "application/merge-patch+json" })),
    ]);
    let mut document = shop_document(&server);
    let content = &mut document["paths"]["/orders"]["post"]["requestBody"]["content"];
    content["text/csv"] = json!({ "schema": { "type": "string" } });
    content[form] = content["application/json"].clone();
    let workflow = buy_workflow(steps, json!({}));
    let registry = open_api_with_workflow(&document, &workflow, json!({})).await;
    run_buy(&registry).await.unwrap();
    let sent: Vec<(String, String)> = server
        .requests()
        .iter()
        .map(|request| (request.header("content-type").unwrap().to_owned(), request.text()))
        .collect();
    let expected = [
        ("application/json", r#"{"sku":"a b"}"#),
        ("text/csv", "sku\n1"),
        (form, "sku=a%20b"),
        (form, "sku=light&quantity=2"),
        ("application/merge-patch+json", r#"{"sku":"a b"}"#),
    ];
    assert_eq!(sent, expected.map(|(content_type, body)| (content_type.to_owned(), body.to_owned())));
}

#[tokio::test]
async fn a_body_in_an_undeclared_encoding_needs_not_match_the_declared_schema() {
    let server = LoopbackServer::start(|_| order_created());
    let step = |content_type: &str, payload: Value| {
        order_step_with(json!({ "requestBody": { "contentType": content_type, "payload": payload } }))
    };
    let run = async |step: Value| {
        let workflow = buy_workflow(json!([step]), json!({}));
        run_buy(&open_shop_with_workflow(&server, &workflow, json!({})).await).await
    };
    run(step("application/xml", json!("<a>1</a>"))).await.unwrap();
    run(step("application/x-www-form-urlencoded", json!({ "a": 1 }))).await.unwrap();
    let sent: Vec<(String, String)> = server
        .requests()
        .iter()
        .map(|request| (request.header("content-type").unwrap().to_owned(), request.text()))
        .collect();
    let expected = [("application/xml", "<a>1</a>"), ("application/x-www-form-urlencoded", "a=1")];
    assert_eq!(sent, expected.map(|(content_type, body)| (content_type.to_owned(), body.to_owned())));
    // Other JSON is declared by the same schema, and other arguments are validated as ever.
    let error = run(step("application/merge-patch+json", json!({}))).await.unwrap_err();
    assert!(error.message.ends_with("wrong arguments for `shop__placeOrder`: /body/sku is required"), "{error}");
    assert_eq!(server.request_lines().len(), 2);
}

#[tokio::test]
async fn a_step_may_choose_the_accepted_and_the_sent_type_with_headers() {
    let server = LoopbackServer::start(|_| order_created());
    let header = |name: &str, value: &str| json!({ "name": name, "in": "header", "value": value });
    let step = order_step_with(json!({
        "parameters": [header("accept", "text/{$inputs.category}"), header("content-type", "text/csv")],
        "requestBody": { "payload": "sku" },
    }));
    let workflow = buy_workflow(json!([step]), json!({}));
    run_buy(&open_shop_with_workflow(&server, &workflow, json!({})).await).await.unwrap();
    let request = server.requests().pop().unwrap();
    assert_eq!((request.header("accept"), request.header("content-type")), (Some("text/light"), Some("text/csv")));
    assert_eq!(request.text(), "sku");
}

#[tokio::test]
async fn a_step_is_retried_as_often_as_the_document_says() {
    let retry = json!({ "name": "again", "type": "retry", "retryAfter": 0, "retryLimit": 2,
        "criteria": [{ "condition": "$statusCode == 503" }] });
    let workflow = buy_workflow(
        json!([order_step_with(json!({ "onFailure": [retry] }))]),
        json!({ "id": "$steps.order.outputs.id" }),
    );

    let server =
        LoopbackServer::start(|request| if request.number < 3 { HttpReply::json(503, "{}") } else { order_created() });
    assert_eq!(
        run_buy(&open_shop_with_workflow(&server, &workflow, json!({})).await).await.unwrap(),
        json!({ "id": 7 })
    );
    assert_eq!(server.request_lines().len(), 3);

    let server = LoopbackServer::start(|_| HttpReply::json(503, r#"{"message": "closed"}"#));
    let error = run_buy(&open_shop_with_workflow(&server, &workflow, json!({})).await).await.unwrap_err();
    assert_eq!((server.request_lines().len(), error.code), (3, Code::ToolExecutionFailed));
    assert_eq!(error.details, Some(json!({ "step": "order", "outputs": {} })));
    assert_eq!(
        error.message,
        "the workflow `buy` failed at step `order`: the response has status 503, and `$statusCode == 201` is \
         not met; `POST /orders` answered 503 Service Unavailable: closed"
    );
}

#[tokio::test]
async fn a_step_may_jump_or_end_the_workflow() {
    let goto = |criterion: &str| json!([{ "name": "on", "type": "goto", "stepId": "look", "criteria": [{ "condition": criterion }] }]);
    let end = json!([{ "name": "enough", "type": "end", "criteria": [{ "condition": "$response.body == null" }] }]);
    let look = json!({
        "stepId": "look", "operationId": "getOrder", "onSuccess": end,
        "parameters": [{ "name": "id", "in": "path", "value": 5 }],
    });
    let never = json!({ "stepId": "never", "operationId": "placeOrder", "requestBody": { "payload": { "sku": "x" } } });
    for (field, condition) in [("onFailure", "$statusCode == 409"), ("onSuccess", "$statusCode == 201")] {
        let status = if field == "onFailure" { 409 } else { 201 };
        let server = LoopbackServer::start(move |request| match request.method.as_str() {
            "POST" => HttpReply::json(status, "{}"),
            _ => HttpReply::new(204, "", ""),
        });
        let steps = json!([order_step_with(json!({ field: goto(condition) })), list_step(), look, never]);
        let registry = open_shop_with_workflow(&server, &buy_workflow(steps, json!({})), json!({})).await;
        assert_eq!(run_buy(&registry).await.unwrap(), json!({}));
        assert_eq!(server.request_lines(), ["POST /orders", "GET /orders/5"]);
    }
}

#[tokio::test]
async fn a_redirect_is_seen_by_the_step_that_expects_it() {
    let server = LoopbackServer::start(|request: &ReceivedRequest| match request.method.as_str() {
        "POST" => HttpReply::new(302, "location: /orders/9", ""),
        _ => HttpReply::json(200, r#"{"id": 9}"#),
    });
    let keeps_redirect = order_step_with(json!({
        "successCriteria": [{ "condition": "$statusCode == 302" }],
        "outputs": { "id": "$response.header.Location" },
    }));
    let follows_redirect = order_step_with(json!({ "successCriteria": [{ "condition": "$statusCode == 200" }] }));
    for (step, expected) in [(keeps_redirect, json!("/orders/9")), (follows_redirect, json!(9))] {
        let workflow = buy_workflow(json!([step]), json!({ "id": "$steps.order.outputs.id" }));
        assert_eq!(
            run_buy(&open_shop_with_workflow(&server, &workflow, json!({})).await).await.unwrap(),
            json!({ "id": expected })
        );
    }
    assert_eq!(server.request_lines(), ["POST /orders", "POST /orders", "GET /orders/9"]);
}

#[tokio::test]
async fn a_failed_step_ends_the_workflow_with_the_outputs_so_far() {
    let server = LoopbackServer::start(|request| match request.method.as_str() {
        "GET" => HttpReply::json(200, r#"[{"sku": "lamp"}]"#),
        _ => HttpReply::json(409, r#"{"message": "sold out"}"#),
    });
    let outputs = json!({ "sku": "$steps.list.outputs.sku", "id": "$steps.order.outputs.id" });
    let registry =
        open_shop_with_workflow(&server, &buy_workflow(json!([list_step(), order_step()]), outputs), json!({})).await;
    let error = run_buy(&registry).await.unwrap_err();
    assert_eq!((error.code, error.is_retryable()), (Code::ToolExecutionFailed, false));
    assert!(error.message.ends_with("`POST /orders` answered 409 Conflict: sold out"), "{error}");
    assert_eq!(error.details, Some(json!({ "step": "order", "outputs": { "sku": "lamp" } })));
}

#[tokio::test]
async fn an_unreachable_api_counts_as_no_response() {
    let server = LoopbackServer::start(|_| HttpReply::close());
    let steps = json!([order_step_with(json!({ "onFailure": [{ "name": "on", "type": "goto", "stepId": "last" }] })), {
        "stepId": "last", "operationId": "placeOrder", "requestBody": { "payload": { "sku": "x" } },
    }]);
    let registry = open_shop_with_workflow(&server, &buy_workflow(steps, json!({})), json!({})).await;
    let error = run_buy_with(&registry, CallContext::default()).await.unwrap_err();
    assert!(
        error.message.starts_with("the workflow `buy` failed at step `last`: the response to `POST /orders`"),
        "{error}"
    );
    assert_eq!(server.request_lines().len(), 2);
}

#[tokio::test]
async fn a_step_sees_the_result_of_a_polled_job() {
    let server = LoopbackServer::start(|request| match (request.method.as_str(), request.number) {
        ("POST", _) => HttpReply::json(202, r#"{"id": 7}"#),
        (_, 2) => HttpReply::json(200, r#"{"status": "packing"}"#),
        _ => HttpReply::json(200, r#"{"status": "sent", "parcel": {"id": "p-1"}}"#),
    });
    let poll = json!({ "url": "/orders/{$response.body#/id}", "status": "/status", "result": "/parcel",
        "done": ["sent"], "interval": "100ms" });
    let step = order_step_with(json!({ "successCriteria": [{ "condition": "$statusCode == 200" }] }));
    let workflow = buy_workflow(json!([step]), json!({ "parcel": "$steps.order.outputs.id" }));
    let registry = open_shop_with_workflow(&server, &workflow, json!({ "poll": { "placeOrder": poll } })).await;
    assert_eq!(run_buy(&registry).await.unwrap(), json!({ "parcel": "p-1" }));
    assert_eq!(server.request_lines(), ["POST /orders", "GET /orders/7", "GET /orders/7"]);
}

#[tokio::test]
async fn a_step_sends_headers_and_query_values_that_its_operation_does_not_declare() {
    // Another server, which the API redirects to.
    let other = LoopbackServer::start(|_| HttpReply::json(200, "{}"));
    let target = format!("{}/orders", other.url);
    let server = LoopbackServer::start(move |request| match request.method.as_str() {
        "POST" => HttpReply::json(201, r#"{"id": "login-token-4711"}"#),
        _ if request.target.starts_with("/products") => HttpReply::json(404, request.header("authorization").unwrap()),
        _ => HttpReply::new(302, &format!("location: {target}"), ""),
    });
    let parameters = |more: &[Value]| {
        let token = json!({ "name": "Authorization", "in": "header", "value": "Bearer {$steps.order.outputs.id}" });
        let query = json!({ "name": "debug level", "in": "query", "value": 2 });
        [&[token, query], more].concat()
    };
    let id = json!({ "name": "id", "in": "path", "value": "7" });
    let get = json!({ "stepId": "get", "operationId": "getOrder", "parameters": parameters(&[id]) });
    let host = json!({ "name": "Host", "in": "header", "value": "evil.example" });
    let object = json!({ "name": "o", "in": "query", "value": { "a": 1 } });
    let list = json!({
        "stepId": "list", "operationId": "list products", "parameters": parameters(&[host, object]),
        "successCriteria": [{ "condition": "$statusCode == 404" }],
    });
    let steps = json!([order_step(), get, list]);
    let settings = json!({ "allow_private": true });
    let registry = open_shop_with_workflow(&server, &buy_workflow(steps, json!({})), settings).await;
    run_buy(&registry).await.unwrap();

    let requests = server.requests();
    assert_eq!(
        server.request_lines(),
        ["POST /orders", "GET /orders/7?debug%20level=2", "GET /products?debug%20level=2&o=%7B%22a%22%3A1%7D"]
    );
    assert_eq!(requests[0].header("authorization"), None);
    assert!(requests[1..].iter().all(|request| request.header("authorization") == Some("Bearer login-token-4711")));
    assert!(requests[2].header("host").unwrap().starts_with("127.0.0.1:"));
    // Not to the server of the redirect.
    let redirected = other.requests();
    assert_eq!((redirected[0].request_line().as_str(), redirected[0].header("authorization")), ("GET /orders", None));

    // The credentials of the source take precedence, and the token is masked in errors.
    let steps = json!([
        order_step(),
        json!({
            "stepId": "list", "operationId": "list products", "parameters": parameters(&[]),
        })
    ]);
    let registry = open_shop_with_workflow(&server, &buy_workflow(steps.clone(), json!({})), json!({})).await;
    let error = run_buy(&registry).await.unwrap_err();
    assert!(!error.envelope().to_string().contains("login-token-4711"), "{error}");
    let settings = json!({ "auth": { "bearer": "configured" } });
    let registry = open_shop_with_workflow(&server, &buy_workflow(steps, json!({})), settings).await;
    run_buy(&registry).await.unwrap_err();
    assert_eq!(server.requests().pop().unwrap().header("authorization"), Some("Bearer configured"));
}

#[tokio::test]
async fn a_path_with_one_operation_needs_no_method() {
    let server = LoopbackServer::start(|_| order_created());
    let step = |path: &str| {
        let id = json!({ "name": "id", "in": "path", "value": "7" });
        let mut step = order_step_with(json!({
            "operationPath": format!("{{$sourceDescriptions.shop.url}}#/paths/{path}"),
            "parameters": if path.contains("id") { json!([id]) } else { json!([]) },
        }));
        step.as_object_mut().unwrap().remove("operationId");
        step
    };
    let registry =
        open_shop_with_workflow(&server, &buy_workflow(json!([step("~1orders")]), json!({})), json!({})).await;
    run_buy(&registry).await.unwrap();
    assert_eq!(server.request_lines(), ["POST /orders"]);
    let several = buy_workflow(json!([step("~1orders~1{id}")]), json!({}));
    let error = run_buy(&open_shop_with_workflow(&server, &several, json!({})).await).await.unwrap_err();
    let expected =
        "`operationPath` names no method, and `/orders/{id}` has several operations; add one of `/delete`, `/get`";
    assert!(error.message.ends_with(expected), "{error}");
    assert_eq!((error.code, error.is_retryable()), (Code::ToolExecutionFailed, false));
}
