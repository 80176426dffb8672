use serde_json::json;

use super::*;
use crate::OperationReference;

fn document(workflows: Value) -> Value {
    json!({
        "arazzo": "1.0.1",
        "sourceDescriptions": [
            {"name": "shop", "url": "shop.json", "type": "openapi"},
            {"name": "bank", "url": "bank.json"},
            {"name": "flows", "url": "flows.json", "type": "arazzo"},
        ],
        "workflows": workflows,
        "components": {
            "parameters": {"page": {"name": "page", "in": "query", "value": 1}},
            "successActions": {"over": {"name": "over", "type": "end"}},
        },
    })
}

fn reasons(document: &Value) -> Vec<String> {
    ArazzoDocument::parse(document)
        .unwrap()
        .skipped
        .into_iter()
        .map(|aside| format!("{}: {}", aside.name, aside.reason))
        .collect()
}

#[test]
fn other_documents_are_rejected() {
    for (document, reason) in [
        (json!([]), "this is not an Arazzo document: the string `arazzo` with the version is missing"),
        (
            json!({"openapi": "3.1.0"}),
            "this is not an Arazzo document: the string `arazzo` with the version is missing",
        ),
        (
            json!({"arazzo": "2.0.0", "workflows": []}),
            "Arazzo `2.0.0` is not supported; Arazzo 1.x documents are supported",
        ),
        (json!({"arazzo": "1.0.0"}), "the Arazzo document has no list `workflows`"),
    ] {
        assert_eq!(ArazzoDocument::parse(&document).unwrap_err().message, reason);
    }
}

#[test]
fn operations_are_referenced_by_id_path_or_url() {
    let operation =
        |source: Option<&str>, operation| StepTarget::Operation { source: source.map(str::to_owned), operation };
    let workflow = |source: Option<&str>, id: &str| {
        StepTarget::Workflow(WorkflowReference { source: source.map(str::to_owned), id: id.to_owned() })
    };
    let by_id = |id: &str| OperationReference::Id(id.to_owned());
    let by_path = |method: &str, path: &str| OperationReference::Path {
        method: Some(method).filter(|method| !method.is_empty()).map(str::to_owned),
        path: path.into(),
    };
    for (step, expected) in [
        (json!({"operationId": "buy"}), operation(None, by_id("buy"))),
        (json!({"operationId": "$sourceDescriptions.shop.pets.buy"}), operation(Some("shop"), by_id("pets.buy"))),
        (
            json!({"operationPath": "{$sourceDescriptions.bank.url}#/paths/~1a~1{b}~0/post"}),
            operation(Some("bank"), by_path("POST", "/a/{b}~")),
        ),
        (
            json!({"operationPath": "$sourceDescriptions.bank#/paths/~1/get"}),
            operation(Some("bank"), by_path("GET", "/")),
        ),
        (json!({"operationPath": "shop.json#/paths/~1a/get"}), operation(Some("shop"), by_path("GET", "/a"))),
        (json!({"operationPath": "shop.json#/paths/~1a"}), operation(Some("shop"), by_path("", "/a"))),
        (json!({"workflowId": "w"}), workflow(None, "w")),
        (json!({"workflowId": "{$sourceDescriptions.flows.pay.now}"}), workflow(Some("flows"), "pay.now")),
    ] {
        let mut with_id = step.clone();
        with_id["stepId"] = json!("s");
        let read = ArazzoDocument::parse(&document(json!([{"workflowId": "w", "steps": [with_id]}]))).unwrap();
        assert_eq!(read.workflows[0].steps[0].target, expected, "{step}");
    }
}

#[test]
fn an_invalid_workflow_is_skipped_with_pointer_and_reason() {
    let step = |more: Value| {
        let mut step = json!({"stepId": "s", "operationId": "o"});
        step.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"workflowId": "broken", "steps": [step]})
    };
    for (broken, reason) in [
        (json!(5), "#1: it has no `workflowId` (at `/workflows/0`)"),
        (json!({"workflowId": "broken"}), "broken: it has no steps (at `/workflows/0/steps`)"),
        (step(json!({"stepId": ""})), "broken: the step has no `stepId` (at `/workflows/0/steps/0`)"),
        (
            json!({"workflowId": "broken", "steps": [{"stepId": "s", "operationId": "o"}, {"stepId": "s", "operationId": "o"}]}),
            "broken: an earlier step has the same `stepId` (at `/workflows/0/steps/1`)",
        ),
        (
            json!({"workflowId": "broken", "steps": [{"stepId": "s"}]}),
            "broken: the step has neither `operationId` nor `operationPath` nor `workflowId` (at `/workflows/0/steps/0`)",
        ),
        (
            step(json!({"workflowId": "x"})),
            "broken: the step has more than one of `operationId`, `operationPath` and `workflowId` (at `/workflows/0/steps/0`)",
        ),
        (
            step(json!({"operationId": "$sourceDescriptions.nope.o"})),
            "broken: there is no source description `nope` (at `/workflows/0/steps/0/operationId`)",
        ),
        (
            step(json!({"operationId": "$sourceDescriptions.flows.o"})),
            "broken: the source description `flows` is not of type `openapi` (at `/workflows/0/steps/0/operationId`)",
        ),
        (
            step(json!({"operationId": null, "operationPath": "/pets"})),
            "broken: it must be of the form `{$sourceDescriptions.name.url}#/paths/~1pets/get` (at `/workflows/0/steps/0/operationPath`)",
        ),
        (
            step(json!({"operationId": null, "operationPath": "#/paths/~1pets/get"})),
            "broken: it names no document before the `#`; write `{$sourceDescriptions.name.url}#/paths/…` (at `/workflows/0/steps/0/operationPath`)",
        ),
        (
            step(json!({"parameters": [{"name": "a: b", "in": "header", "value": 1}]})),
            "broken: its `name` is not the name of a header (at `/workflows/0/steps/0/parameters/0`)",
        ),
        (
            step(json!({"operationId": null, "workflowId": "$sourceDescriptions.shop.w"})),
            "broken: the source description `shop` is not of type `arazzo` (at `/workflows/0/steps/0/workflowId`)",
        ),
        (
            step(json!({"operationId": null, "workflowId": "nope"})),
            "broken: it refers to the missing workflow `nope` (at `/workflows/0`)",
        ),
        (
            step(json!({"parameters": [{"name": "a", "value": 1}]})),
            "broken: the parameter of an operation has no `in` (at `/workflows/0/steps/0/parameters/0`)",
        ),
        (
            step(json!({"parameters": [{"reference": "$components.parameters.nope"}]})),
            "broken: `$components.parameters.nope` cannot be resolved (at `/workflows/0/steps/0/parameters/0`)",
        ),
        (
            step(json!({"successCriteria": [{"condition": "//a", "context": "$response.body", "type": "xpath"}]})),
            "broken: conditions in XPath are not supported (at `/workflows/0/steps/0/successCriteria/0`)",
        ),
        (
            step(json!({"onSuccess": [{"name": "a", "type": "goto", "stepId": "nope"}]})),
            "broken: there is no step `nope` (at `/workflows/0/steps/0/onSuccess/0`)",
        ),
        (
            step(json!({"onSuccess": [{"name": "a", "type": "retry"}]})),
            "broken: only a failure can be retried (at `/workflows/0/steps/0/onSuccess/0`)",
        ),
        (
            step(json!({"onFailure": [{"name": "a", "type": "goto"}]})),
            "broken: `goto` names neither a `stepId` nor a `workflowId` (at `/workflows/0/steps/0/onFailure/0`)",
        ),
        (
            json!({"workflowId": "broken", "inputs": {"$ref": "#/nope"}, "steps": []}),
            "broken: `#/nope` cannot be resolved (at `/workflows/0/inputs`)",
        ),
    ] {
        let sound = json!({"workflowId": "sound", "steps": [{"stepId": "s", "operationId": "o"}]});
        let document = document(json!([broken, sound]));
        assert_eq!(reasons(&document), [reason]);
        assert_eq!(ArazzoDocument::parse(&document).unwrap().workflows[0].id, "sound");
    }
}

#[test]
fn workflows_that_need_a_missing_one_are_skipped_and_tool_names_are_unique() {
    let step = json!({"stepId": "s", "operationId": "o"});
    let document = document(json!([
        {"workflowId": "a", "steps": [{"stepId": "s", "workflowId": "b"}]},
        {"workflowId": "b", "dependsOn": ["c"], "steps": [step]},
        {"workflowId": "c", "steps": []},
        {"workflowId": "x.y", "steps": [step]},
        {"workflowId": "x_y", "steps": [step]},
        {"workflowId": "x_y", "steps": [step]},
    ]));
    assert_eq!(
        reasons(&document),
        [
            "c: it has no steps (at `/workflows/2/steps`)",
            "x_y: an earlier workflow has the same `workflowId` (at `/workflows/5/workflowId`)",
            "b: it refers to the missing workflow `c` (at `/workflows/1`)",
            "a: it refers to the missing workflow `b` (at `/workflows/0`)",
        ]
    );
    let names: Vec<String> =
        ArazzoDocument::parse(&document).unwrap().workflows.into_iter().map(|workflow| workflow.tool).collect();
    let hash = Fingerprint::digest("x.y").short_hex(8).to_owned();
    assert_eq!(names, [format!("x_y_{hash}"), "x_y".to_owned()]);
}

#[test]
fn a_value_beside_a_reference_overrides_the_component() {
    let document = document(json!([{"workflowId": "w", "steps": [{
        "stepId": "s", "operationId": "o",
        "parameters": [{"reference": "$components.parameters.page", "value": 7}],
        "onSuccess": [{"reference": "$components.successActions.over"}],
    }], "parameters": [{"reference": "$components.parameters.page"}, {"name": "q", "in": "query", "value": 2}]}]));
    let read = ArazzoDocument::parse(&document).unwrap();
    let step = &read.workflows[0].steps[0];
    let values: Vec<(&str, &Value)> =
        step.parameters.iter().map(|parameter| (parameter.name.as_str(), &parameter.value)).collect();
    assert_eq!(values, [("page", &json!(7)), ("q", &json!(2))]);
    assert!(matches!(step.on_success[0].kind, ActionKind::End));
}

#[test]
fn repeated_references_to_a_large_component_are_bounded() {
    let step = json!({"stepId": "s", "operationId": "o", "parameters": [{"reference": "$components.parameters.page"}]});
    let workflows: Vec<Value> =
        (0..300).map(|number| json!({"workflowId": number.to_string(), "steps": [step]})).collect();
    let mut document = document(json!(workflows));
    document["components"]["parameters"]["page"]["value"] = json!("x".repeat(1024 * 1024));
    let read = ArazzoDocument::parse(&document).unwrap();
    assert_eq!((read.workflows.len(), read.skipped.len()), (127, 173));
    assert_eq!(
        read.skipped[0].reason,
        "the document is too large once its references are followed (at `/workflows/127/steps/0/parameters/0`)"
    );
    let steps: Vec<Value> = (0..1001).map(|number| json!({"stepId": number.to_string(), "operationId": "o"})).collect();
    document["workflows"] = json!([{"workflowId": "w", "steps": steps}]);
    assert_eq!(reasons(&document), ["w: it has more than 1000 steps (at `/workflows/0/steps`)"]);
}

#[test]
fn an_invalid_source_description_is_reported() {
    let document = json!({"arazzo": "1.0.0", "workflows": [], "sourceDescriptions": [
        {"name": "a"}, {"url": "x"}, {"name": "b", "url": "x", "type": "asyncapi"}, {"name": "c", "url": "x"}, {"name": "c", "url": "y"}]});
    assert_eq!(
        reasons(&document),
        [
            "a: the source description has no `url` (at `/sourceDescriptions/0`)",
            "#2: a source description has no `name` (at `/sourceDescriptions/1`)",
            "b: a source description is of type `openapi` or `arazzo` (at `/sourceDescriptions/2`)",
            "c: an earlier source description has the same `name` (at `/sourceDescriptions/4`)",
        ]
    );
}

#[test]
fn a_chain_of_workflows_to_a_missing_one_is_skipped() {
    let workflow = |n: usize| {
        let actions: Vec<Value> = (0..50)
            .map(|action| json!({"name": format!("a{action}"), "type": "goto", "workflowId": format!("w{}", n + 1)}))
            .collect();
        let step = json!({"stepId": "s", "operationId": "$sourceDescriptions.shop.o", "onSuccess": actions});
        json!({"workflowId": format!("w{n}"), "steps": [step]})
    };
    let read = ArazzoDocument::parse(&document((0..1_000).map(workflow).collect())).unwrap();
    assert_eq!((read.workflows.len(), read.skipped.len()), (0, 1_000));
    let first = read.skipped.first().map(|aside| aside.reason.as_str());
    assert_eq!(first, Some("it refers to the missing workflow `w1000` (at `/workflows/999`)"));
}

#[test]
fn memory_of_repeated_references_is_bounded() {
    let pattern = |n: usize| json!({"context": "$url", "condition": format!("x{n}"), "type": "regex"});
    let criteria: Vec<Value> = (1..100).map(pattern).collect();
    let step = |n: usize| {
        let named = json!({"reference": "$components.successActions.many"});
        json!({"stepId": format!("s{n}"), "operationId": "$sourceDescriptions.shop.o", "onSuccess": [named]})
    };
    let steps: Vec<Value> = (0..1_000).map(step).collect();
    let mut document_json = document(json!([{"workflowId": "w", "steps": steps}]));
    document_json["components"]["successActions"]["many"] = json!({"type": "end", "criteria": criteria});
    let messages = reasons(&document_json);
    assert!(messages[0].starts_with("w: the document is too large once its references are followed"), "{messages:?}");

    // References to each level of a tree copy the whole subtree each time.
    let tree = (0..40).fold(json!({"const": "x".repeat(4_000_000)}), |inner, _| json!({"not": inner}));
    let levels = (0..40).map(|n| json!({"$ref": format!("#/components/inputs/tree{}", "/not".repeat(n))}));
    let inputs = json!({"allOf": levels.collect::<Vec<_>>()});
    let step = json!({"stepId": "s", "operationId": "$sourceDescriptions.shop.o"});
    let mut document_json = document(json!([{"workflowId": "w", "inputs": inputs, "steps": [step]}]));
    document_json["components"]["inputs"] = json!({"tree": tree});
    let reason = "w: the schema of the inputs is too large with the schemas it refers to (at `/workflows/0/inputs`)";
    assert_eq!(reasons(&document_json), [reason]);
}

#[test]
fn the_content_type_of_a_body_is_a_media_type() {
    let parse = |step: Value| {
        let mut step = step;
        step["stepId"] = json!("s");
        step["operationId"] = json!("o");
        ArazzoDocument::parse(&document(json!([{"workflowId": "w", "steps": [step]}]))).unwrap()
    };
    for invalid in [json!("$inputs.ct"), json!("not a type\r\nX: y"), json!("a/b\r\nX-Inj: y"), json!(5), json!("")] {
        let reason = "the content type must be a media type such as `application/json`, not an expression";
        for (step, at) in [
            (json!({"requestBody": {"contentType": invalid, "payload": 1}}), "requestBody/contentType"),
            (json!({"requestBody": {}, "parameters": [content_type_header(&invalid)]}), "parameters"),
        ] {
            let skipped = parse(step).skipped.remove(0).reason;
            assert_eq!(skipped, format!("{reason} (at `/workflows/0/steps/0/{at}`)"), "{invalid}");
        }
    }
    let form = json!("application/x-www-form-urlencoded");
    let header = content_type_header(&form);
    let body = json!({"payload": "a=1"});
    for (step, expected) in [
        (json!({"requestBody": {"contentType": " text/csv ", "payload": "a=1"}}), Some(("text/csv", json!("a=1")))),
        (json!({"requestBody": body, "parameters": [header]}), Some((form.as_str().unwrap(), json!({"a": "1"})))),
        (
            json!({"requestBody": {"contentType": "text/csv", "payload": "a=1"}, "parameters": [header]}),
            Some(("text/csv", json!("a=1"))),
        ),
        (json!({"parameters": [header]}), None),
        (json!({"parameters": [content_type_header(&json!("$inputs.ct"))]}), None),
    ] {
        let parsed = parse(step.clone());
        let parsed = &parsed.workflows[0].steps[0];
        let body = parsed.body.as_ref();
        let actual = body.map(|body| (body.content_type.as_deref().unwrap(), body.payload.clone().unwrap()));
        assert_eq!((actual, parsed.parameters.len()), (expected, 0), "{step}");
    }
}

fn content_type_header(value: &Value) -> Value {
    json!({"name": "content-Type", "in": "header", "value": value})
}
