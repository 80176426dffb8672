use super::*;
use crate::OperationReference;

/// A document that refers to no other.
fn link(document: ArazzoDocument) -> LinkedDocuments {
    let missing = |_: &url::Url| Err(Error::new(Code::ConfigInvalid, "there is no other document"));
    LinkedDocuments::load("file:///main.yaml".parse().unwrap(), document, missing)
}

/// Executes a workflow with scripted responses. Each expected line is a call, a pause or the end.
fn check(workflows: Value, inputs: Value, responses: &[ScriptedResponse], expected: &[&str]) {
    let document = json!({
        "arazzo": "1.0.1",
        "sourceDescriptions": [{"name": "shop", "url": "https://shop.test/openapi.json", "type": "openapi"}],
        "workflows": workflows,
    });
    let document = ArazzoDocument::parse(&document).unwrap();
    assert_eq!(document.skipped.iter().map(|aside| &aside.reason).collect::<Vec<_>>(), Vec::<&String>::new());
    let id = document.workflows[0].id.clone();
    let documents = link(document);
    let mut execution = WorkflowExecution::new(&documents, &id, inputs).unwrap();
    let mut responses = responses.iter();
    let mut events = Vec::new();
    loop {
        let call = match execution.next_action() {
            NextAction::Call(call) => describe_call(call),
            NextAction::Enter(nested) => {
                let inputs = nested.inputs.clone();
                execution.on_valid_inputs(inputs);
                continue;
            }
            NextAction::Wait(pause) => {
                events.push(format!("wait {}", pause.as_secs_f64()));
                continue;
            }
            NextAction::Completed { outputs } => {
                events.push(format!("done {outputs}"));
                break;
            }
            NextAction::Failed { step, reason, outputs } => {
                events.push(format!("failed at {step}: {reason} {outputs}"));
                break;
            }
        };
        events.push(call);
        match responses.next() {
            Some(ScriptedResponse(status, headers, body)) => execution.on_response(OperationResponse {
                status: *status,
                headers: headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
                body: Some(body.clone()),
                url: "https://shop.test/x".into(),
                method: "GET".into(),
            }),
            None => execution.on_no_response("connection refused"),
        }
    }
    assert_eq!(events, expected);
}

struct ScriptedResponse(u16, &'static [(&'static str, &'static str)], Value);

fn ok_response(body: Value) -> ScriptedResponse {
    ScriptedResponse(200, &[], body)
}

fn status_response(status: u16) -> ScriptedResponse {
    ScriptedResponse(status, &[], Value::Null)
}

fn describe_call(call: &OperationCall<'_>) -> String {
    let operation = match call.operation {
        OperationReference::Id(id) => id.clone(),
        OperationReference::Path { method, path } => format!("{} {path}", method.as_deref().unwrap_or("*")),
    };
    let OperationArguments { path, query, headers, cookies, querystring, body } = &call.arguments;
    let mut line = format!("{}.{operation}", call.source.map(|source| source.name.as_str()).unwrap_or_default());
    for (location, values) in [("path", path), ("query", query), ("header", headers), ("cookie", cookies)] {
        if !values.is_empty() {
            line += &format!(" {location} {}", json!(values));
        }
    }
    assert_eq!(*querystring, None);
    if let Some(body) = body {
        line += &format!(" body {}", body.value);
    }
    line
}

fn step_json(id: &str, more: Value) -> Value {
    let mut step = json!({"stepId": id, "operationId": id});
    step.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    if step.get("workflowId").is_some() || step.get("operationPath").is_some() {
        step.as_object_mut().unwrap().remove("operationId");
    }
    step
}

#[test]
fn a_step_uses_outputs_of_earlier_steps() {
    let workflow = json!([{
        "workflowId": "pets",
        "inputs": {"type": "object", "required": ["user"], "properties": {
            "user": {"type": "string"}, "status": {"default": "available"}, "limit": {"type": "integer"}}},
        "parameters": [{"name": "X-Client", "in": "header", "value": "crib"}, {"name": "page", "in": "query", "value": 1}],
        "steps": [
            step_json("login", json!({
                "requestBody": {"contentType": "application/json", "payload": {"user": "$inputs.user", "limit": "$inputs.limit"}},
                "successCriteria": [{"condition": "$statusCode == 200"}],
                "outputs": {"token": "$response.body#/token", "left": "$response.header.X-Left", "no": "$response.body#/no"},
            })),
            step_json("find", json!({
                "operationPath": "{$sourceDescriptions.shop.url}#/paths/~1pets~1%7Bowner%7D/get",
                "parameters": [
                    {"name": "owner", "in": "path", "value": "$inputs.user"},
                    {"name": "status", "in": "query", "value": "$inputs.status"},
                    {"name": "page", "in": "query", "value": 2},
                    {"name": "limit", "in": "query", "value": "$inputs.limit"},
                    {"name": "Authorization", "in": "header", "value": "Bearer {$steps.login.outputs.token}"},
                    {"name": "sid", "in": "cookie", "value": "$steps.login.outputs.left"},
                ],
                "outputs": {"pets": "$response.body", "asked": "$request.query.status"},
            })),
        ],
        "outputs": {"first": "$steps.find.outputs.pets#/0/name", "asked": "$steps.find.outputs.asked", "none": "$steps.x.outputs.y"},
    }]);
    check(
        workflow,
        json!({"user": "ann"}),
        &[ScriptedResponse(200, &[("x-left", "9")], json!({"token": "t"})), ok_response(json!([{"name": "rex"}]))],
        &[
            r#"shop.login query {"page":1} header {"X-Client":"crib"} body {"user":"ann"}"#,
            r#"shop.GET /pets/{owner} path {"owner":"ann"} query {"status":"available","page":2} header {"Authorization":"Bearer t","X-Client":"crib"} cookie {"sid":"9"}"#,
            r#"done {"first":"rex","asked":"available"}"#,
        ],
    );
}

#[test]
fn a_failed_step_without_an_action_ends_the_workflow() {
    let single_step =
        |more: Value| json!([{"workflowId": "w", "steps": [step_json("a", more)], "outputs": {"x": "$inputs.x"}}]);
    let check = |more, responses: &[ScriptedResponse], end| {
        check(single_step(more), json!({"x": 1}), responses, &["shop.a", end])
    };
    check(json!({}), &[status_response(204)], r#"done {"x":1}"#);
    check(json!({}), &[status_response(404)], r#"failed at a: the response has status 404 {"x":1}"#);
    check(json!({}), &[], r#"failed at a: connection refused {"x":1}"#);
    check(
        json!({"successCriteria": [{"condition": "$statusCode == 404"}]}),
        &[status_response(404)],
        r#"done {"x":1}"#,
    );
    check(
        json!({"successCriteria": [{"condition": "$statusCode == 200"}, {"condition": "$response.body#/ok"}]}),
        &[ok_response(json!({"ok": false}))],
        r#"failed at a: the response has status 200, and `$response.body#/ok` is not met {"x":1}"#,
    );
    check(
        json!({"onFailure": [{"name": "stop", "type": "end"}]}),
        &[status_response(500)],
        r#"failed at a: the response has status 500 {"x":1}"#,
    );
    check(
        json!({"onFailure": [{"name": "no", "type": "goto", "stepId": "a", "criteria": [{"condition": "$statusCode == 503"}]}]}),
        &[],
        r#"failed at a: connection refused {"x":1}"#,
    );
}

#[test]
fn an_unresolvable_parameter_fails_the_step_before_sending() {
    let workflow = json!([{"workflowId": "w", "steps": [
        step_json("a", json!({"parameters": [{"name": "q", "in": "query", "value": "$steps.nope.outputs.x"}]}))]}]);
    let reason = "failed at a: the expression `$steps.nope.outputs.x` cannot be resolved: there is no `nope` {}";
    check(workflow, json!({}), &[], &[reason]);
}

#[test]
fn a_retry_waits_and_stops_at_its_limit() {
    let retry = |more: Value| {
        let mut action = json!({"name": "again", "type": "retry", "retryAfter": 1.5});
        action.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!([{"workflowId": "w", "steps": [step_json("a", json!({"onFailure": [action]})), step_json("b", json!({}))]}])
    };
    let failed = "failed at a: the response has status 503 {}";
    check(
        retry(json!({})),
        json!({}),
        &[status_response(503), status_response(503)],
        &["shop.a", "wait 1.5", "shop.a", failed],
    );
    check(retry(json!({"retryLimit": 0})), json!({}), &[status_response(503)], &["shop.a", failed]);
    check(
        retry(json!({"retryLimit": 5})),
        json!({}),
        &[
            ScriptedResponse(429, &[("Retry-After", "7")], Value::Null),
            status_response(503),
            ok_response(json!(1)),
            ok_response(json!(1)),
        ],
        &["shop.a", "wait 7", "shop.a", "wait 1.5", "shop.a", "shop.b", "done {}"],
    );
    check(
        retry(json!({"retryAfter": 0, "stepId": "b"})),
        json!({}),
        &[status_response(401), ok_response(json!(1)), ok_response(json!(1)), ok_response(json!(1))],
        &["shop.a", "shop.b", "shop.a", "shop.b", "done {}"],
    );
}

#[test]
fn a_retry_can_run_a_workflow_first() {
    let workflows = json!([
        {"workflowId": "w", "failureActions": [
            {"name": "renew", "type": "retry", "workflowId": "renew", "criteria": [{"condition": "$statusCode == 401"}]}],
            "steps": [step_json("a", json!({}))], "outputs": {"t": "$workflows.renew.outputs.t"}},
        {"workflowId": "renew", "steps": [step_json("login", json!({"outputs": {"t": "$response.body"}}))],
            "outputs": {"t": "$steps.login.outputs.t"}},
    ]);
    check(
        workflows.clone(),
        json!({}),
        &[status_response(401), ok_response(json!("new")), status_response(200)],
        &["shop.a", "shop.login", "shop.a", r#"done {"t":"new"}"#],
    );
    let reason = "failed at a: the workflow `renew` failed at its step `login`: the response has status 500 {}";
    check(workflows, json!({}), &[status_response(401), status_response(500)], &["shop.a", "shop.login", reason]);
}

#[test]
fn a_success_action_can_end_the_workflow_or_jump() {
    let workflow = json!([{"workflowId": "w", "steps": [
        step_json("a", json!({"onSuccess": [
            {"name": "sold", "type": "goto", "stepId": "c", "criteria": [
                {"context": "$response.body", "condition": "$.pets[?@.sold == true]", "type": "jsonpath"}]},
            {"name": "over", "type": "end", "criteria": [{"condition": "$response.body#/pets/0 == null"}]}]})),
        step_json("b", json!({})),
        step_json("c", json!({})),
    ]}]);
    let check = |pets, expected: &[&str]| {
        check(
            workflow.clone(),
            json!({}),
            &[ok_response(json!({"pets": pets})), status_response(200), status_response(200)],
            expected,
        );
    };
    check(json!([{"sold": true}]), &["shop.a", "shop.c", "done {}"]);
    check(json!([{"sold": false}]), &["shop.a", "shop.b", "shop.c", "done {}"]);
    check(json!([]), &["shop.a", "done {}"]);
}

#[test]
fn common_deviations_from_the_specification_are_accepted() {
    let workflow = json!([{"workflowId": "w", "steps": [
        step_json("a", json!({
            "parameters": [{"name": "x/y", "in": "body", "value": "$inputs.x"}, {"name": "b", "in": "body", "value": true}],
            "onSuccess": [{"name": "on", "type": "goto", "stepId": "c", "condition": "$response.body.go == true"}]})),
        step_json("b", json!({"requestBody": {"payload": {"c": 1}}, "parameters": [{"name": "d", "in": "body", "value": 2}]})),
        step_json("c", json!({})),
    ]}]);
    check(
        workflow,
        json!({"x": 1}),
        &[ok_response(json!({"go": false})), status_response(200), status_response(200)],
        &[r#"shop.a body {"x/y":1,"b":true}"#, r#"shop.b body {"c":1,"d":2}"#, "shop.c", "done {}"],
    );
}

#[test]
fn a_step_can_be_a_workflow() {
    let workflows = json!([
        {"workflowId": "w", "steps": [
            step_json("inner", json!({"workflowId": "order", "parameters": [{"name": "pet", "value": "$inputs.pet"}],
                "outputs": {"id": "$outputs.order"}})),
            step_json("again", json!({"workflowId": "order", "successCriteria": [{"condition": "$statusCode == 200"}], "parameters": [{"name": "pet", "value": 2}]})),
            step_json("show", json!({"parameters": [{"name": "id", "in": "path", "value": "$steps.inner.outputs.id"}]})),
        ], "outputs": {"last": "$steps.again.outputs.order", "pet": "$workflows.order.inputs.pet"}},
        {"workflowId": "order", "inputs": {"type": "object", "properties": {"pet": {}}},
            "steps": [step_json("buy", json!({"requestBody": {"payload": "$inputs.pet"}, "outputs": {"id": "$response.body#/id"}}))],
            "outputs": {"order": "$steps.buy.outputs.id"}},
    ]);
    check(
        workflows.clone(),
        json!({"pet": 1}),
        &[ok_response(json!({"id": 11})), ok_response(json!({"id": 12})), status_response(200)],
        &["shop.buy body 1", "shop.buy body 2", r#"shop.show path {"id":11}"#, r#"done {"last":12,"pet":2}"#],
    );
    let mut expecting = workflows.clone();
    expecting[0]["steps"][0]["successCriteria"] = json!([{"condition": "$statusCode == 201"}]);
    check(
        expecting,
        json!({"pet": 1}),
        &[ok_response(json!({"id": 11}))],
        &[
            "shop.buy body 1",
            "failed at inner: the last response of the workflow has status 200, and `$statusCode == 201` is not met {\"pet\":1}",
        ],
    );
    let reason =
        "failed at inner: the workflow `order` failed at its step `buy`: the response has status 400 {\"pet\":1}";
    check(workflows, json!({"pet": 1}), &[status_response(400)], &["shop.buy body 1", reason]);
}

#[test]
fn dependencies_run_first_and_goto_can_transfer_to_a_workflow() {
    let workflows = json!([
        {"workflowId": "w", "dependsOn": ["first"], "steps": [
            step_json("a", json!({"parameters": [{"name": "q", "in": "query", "value": "$workflows.first.outputs.x"}],
                "onSuccess": [{"name": "on", "type": "goto", "workflowId": "last"}]})),
            step_json("never", json!({}))]},
        {"workflowId": "first", "steps": [step_json("f", json!({"outputs": {"x": "$response.body"}}))], "outputs": {"x": "$steps.f.outputs.x"}},
        {"workflowId": "last", "steps": [step_json("l", json!({}))], "outputs": {"y": "$inputs.y"}},
    ]);
    check(
        workflows,
        json!({"y": true}),
        &[ok_response(json!(5)), status_response(200), status_response(200)],
        &["shop.f", r#"shop.a query {"q":5}"#, "shop.l", r#"done {"y":true}"#],
    );
}

#[test]
fn inputs_of_nested_workflows_take_the_types_of_their_schemas() {
    let schema = json!({"type": "object", "additionalProperties": false, "properties": {"n": {"type": "integer"}}});
    let workflows = json!([
        {"workflowId": "w", "dependsOn": ["v"], "steps": [step_json("nested", json!({"workflowId": "v",
            "parameters": [{"name": "n", "value": "{$inputs.n}{$inputs.other}"}]}))]},
        {"workflowId": "v", "inputs": schema, "steps": [step_json("a", json!({"requestBody": {"payload": "$inputs"}}))]},
    ]);
    // Those that a dependency excludes are not passed on to it.
    check(
        workflows,
        json!({"n": "1", "other": 2}),
        &[status_response(200), status_response(200)],
        &[r#"shop.a body {"n":1}"#, r#"shop.a body {"n":12}"#, "done {}"],
    );
}

#[test]
fn endless_workflows_are_stopped() {
    let endless = json!([{"workflowId": "w", "steps": [
        step_json("a", json!({"onFailure": [{"name": "on", "type": "goto", "stepId": "a"}]}))]}]);
    let mut expected = vec!["shop.a"; MAX_STEPS_PER_RUN];
    expected.push("failed at a: the workflow takes more than 100 steps {}");
    check(endless, json!({}), &[], &expected);

    let itself = json!([{"workflowId": "w", "steps": [step_json("a", json!({"workflowId": "w"}))]}]);
    check(itself, json!({}), &[], &["failed at a: workflows are nested deeper than 8 levels {}"]);

    let each_other = json!([
        {"workflowId": "w", "dependsOn": ["v"], "steps": [step_json("a", json!({}))]},
        {"workflowId": "v", "dependsOn": ["w"], "steps": [step_json("b", json!({}))]},
    ]);
    check(each_other, json!({}), &[], &["failed at a: workflows are nested deeper than 8 levels {}"]);
}

#[test]
fn retained_outputs_are_bounded() {
    let outputs: Map<String, Value> = (0..70).map(|number| (number.to_string(), json!("$response.body"))).collect();
    let workflow = json!([{"workflowId": "w", "steps": [step_json("a", json!({"outputs": outputs}))]}]);
    let large = ok_response(json!("x".repeat(1024 * 1024)));
    check(
        workflow,
        json!({}),
        &[large],
        &["shop.a", "failed at a: the workflow retains more than 64 MiB of response data {}"],
    );
}

#[test]
fn a_result_without_pending_call_is_ignored() {
    let document = json!({"arazzo": "1.0.0", "sourceDescriptions": [{"name": "a", "url": "a"}],
        "workflows": [{"workflowId": "w", "steps": [step_json("a", json!({}))]}]});
    let document = ArazzoDocument::parse(&document).unwrap();
    let documents = link(document);
    let mut execution = WorkflowExecution::new(&documents, "w", Value::Null).unwrap();
    execution.on_no_response("too early");
    assert!(matches!(execution.next_action(), NextAction::Call(_)));
    assert!(matches!(execution.next_action(), NextAction::Call(_)));
    execution.on_no_response("gone");
    assert!(matches!(execution.next_action(), NextAction::Failed { .. }));
    execution.on_no_response("too late");
    assert!(matches!(execution.next_action(), NextAction::Failed { reason: "gone", .. }));
    assert_eq!(
        WorkflowExecution::new(&documents, "W1", Value::Null).unwrap_err().message,
        "no workflow named `W1`; did you mean `w`?"
    );
}
