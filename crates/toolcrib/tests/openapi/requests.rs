//! Calls of API tools, as an agent makes them.

use std::time::Duration;

use serde_json::{Value, json};
use toolcrib::call::CallDeadline;
use toolcrib::{CallContext, Code};
use toolcrib_testkit::http_server::{HttpReply, LoopbackServer};
use toolcrib_testkit::programs::with_settings;

use super::support::{OpenApiTestRegistry, pets_document, run_past_deadline};

#[tokio::test]
async fn operations_become_tools_and_calls_become_requests() {
    let server = LoopbackServer::start(|request| match request.method.as_str() {
        "GET" => HttpReply::json(200, r#"{"name": "Rex"}"#),
        _ => HttpReply::new(201, "location: /v1/pets/7", ""),
    });
    let registry =
        OpenApiTestRegistry::open_shop(&pets_document(&server), json!({ "auth": { "bearer": "s3cret-token" } })).await;
    assert_eq!(registry.tool_names().await, ["shop__getPet", "shop__makePet"]);

    let output = registry.call("shop__getPet", json!({ "id": "a b", "full": true })).await.unwrap();
    assert_eq!(output.structured(), Some(r#"{"name": "Rex"}"#));
    let output = registry.call("shop__makePet", json!({ "body": { "name": "Rex" } })).await.unwrap();
    let content: Value = serde_json::from_str(output.content()).unwrap();
    assert_eq!(content, json!([{ "type": "text", "text": "201 Created" }]));

    let request = server.requests();
    assert_eq!(server.request_lines(), ["GET /v1/pets/a%20b?full=true", "POST /v1/pets"]);
    assert_eq!(request[1].text(), r#"{"name":"Rex"}"#);
    assert!(request.iter().all(|request| request.header("authorization") == Some("Bearer s3cret-token")));
    assert_eq!((request[0].connection, request[1].connection), (0, 0));
}

#[tokio::test]
async fn invalid_arguments_send_no_request() {
    let server = LoopbackServer::start(|_| HttpReply::new(204, "", ""));
    let registry = OpenApiTestRegistry::open_shop(&pets_document(&server), json!({})).await;
    for (tool, input) in [
        ("shop__getPet", json!({})),
        ("shop__getPet", json!({ "id": 7 })),
        ("shop__getPet", json!({ "id": ".." })),
        ("shop__getPet", json!({ "id": "" })),
        ("shop__getPet", json!({ "id": "7", "idd": "8" })),
        ("shop__makePet", json!({})),
        ("shop__makePet", json!({ "body": {} })),
    ] {
        let error = registry.call(tool, input.clone()).await.unwrap_err();
        assert_eq!(error.code, Code::ToolInvalidInput, "{tool} {input}: {error}");
    }
    assert_eq!(server.request_lines(), [""; 0]);
}

#[tokio::test]
async fn an_api_error_keeps_its_message_without_secrets() {
    let server = LoopbackServer::start(|request| {
        HttpReply::json(422, format!(r#"{{"error":{{"message":"bad {}"}}}}"#, request.header("authorization").unwrap()))
    });
    let registry =
        OpenApiTestRegistry::open_shop(&pets_document(&server), json!({ "auth": { "bearer": "s3cret-token" } })).await;
    let error = registry.call("shop__getPet", json!({ "id": "1" })).await.unwrap_err();
    assert_eq!((error.code, error.is_retryable()), (Code::ToolExecutionFailed, false));
    assert_eq!(error.message, "`GET /pets/{id}` answered 422 Unprocessable Entity: bad Bearer ***");
    assert_eq!(error.details.as_ref().unwrap()["status"], 422);
    assert!(!error.envelope().to_string().contains("s3cret"));
}

#[tokio::test]
async fn repeated_failures_open_the_circuit_breaker() {
    let server = LoopbackServer::start(|_| HttpReply::close());
    let registry = OpenApiTestRegistry::open_shop(&pets_document(&server), json!({})).await;
    let make = || registry.call("shop__makePet", json!({ "body": { "name": "Rex" } }));
    for _ in 0..5 {
        assert_eq!(make().await.unwrap_err().code, Code::ToolExecutionFailed);
    }
    let error = make().await.unwrap_err();
    assert_eq!((error.code, server.requests().len()), (Code::ToolUnavailable, 5));
    assert!(error.message.starts_with("the circuit breaker of `shop` is open"), "{error}");
}

#[tokio::test]
async fn a_short_timeout_of_the_caller_is_respected() {
    let server = LoopbackServer::start(|request| match request.number {
        1 => HttpReply::json(200, "{}"),
        _ => HttpReply::never(),
    });
    let registry = OpenApiTestRegistry::open_shop(&pets_document(&server), json!({})).await;
    registry.call("shop__getPet", json!({ "id": "1" })).await.unwrap();
    let deadline = Some(CallDeadline::after(Duration::from_secs(40)));
    let options = CallContext { deadline, ..CallContext::default() };
    let call = registry.call_with("shop__getPet", json!({ "id": "1" }), options);
    let error = run_past_deadline(&server, 2, call).await.unwrap_err();
    assert_eq!(error.code, Code::ToolExecutionFailed);
    assert_eq!(error.message, "`GET /pets/{id}` timed out after 40s", "shorter than the 60 s of the source");
}

#[tokio::test]
async fn a_discriminator_chooses_the_variant_of_a_body() {
    let server = LoopbackServer::start(|_| HttpReply::json(200, "{}"));
    let mut document = pets_document(&server);
    let pet = |property: &str| {
        json!({ "type": "object", "required": ["kind", property],
                "properties": { "kind": { "type": "string" }, property: { "type": "integer" } } })
    };
    document["components"]["schemas"] = json!({ "Cat": pet("lives"), "Dog": pet("barks") });
    document["paths"]["/pets"]["post"]["requestBody"]["content"]["application/json"]["schema"] = json!({
        "oneOf": [{ "$ref": "#/components/schemas/Cat" }, { "$ref": "#/components/schemas/Dog" }],
        "discriminator": { "propertyName": "kind", "mapping": { "cat": "#/components/schemas/Cat" } },
    });
    let overlapping = json!({ "oneOf": [{ "type": "integer" }, { "type": "number" }] });
    document["paths"]["/pets/{id}"]["get"]["parameters"][1]["schema"] = overlapping;
    let registry = OpenApiTestRegistry::open_shop(&document, json!({})).await;
    let make = |body: Value| registry.call("shop__makePet", json!({ "body": body }));
    make(json!({ "kind": "cat", "lives": 9 })).await.unwrap();
    let error = make(json!({ "kind": "Dog", "lives": 9 })).await.unwrap_err();
    assert_eq!(error.message, "wrong arguments for `shop__makePet`: /body/barks is required");
    let error = make(json!({ "kind": "bird" })).await.unwrap_err();
    assert_eq!(error.message, r#"wrong arguments for `shop__makePet`: /body/kind "bird" is not one of "cat", "Dog""#);
    registry.call("shop__getPet", json!({ "id": "1", "full": 5 })).await.unwrap();
}

#[tokio::test]
async fn lenient_validation_sends_what_does_not_match_with_a_note() {
    let server = LoopbackServer::start(|_| HttpReply::json(200, "{}"));
    let registry = OpenApiTestRegistry::open_shop(&pets_document(&server), json!({ "validate": "lenient" })).await;
    let notes = |output: toolcrib::CallOutput| -> Vec<String> {
        let meta: Value = serde_json::from_str(output.meta().unwrap()).unwrap();
        serde_json::from_value(meta["toolcrib/notes"].clone()).unwrap()
    };
    let output = registry.call("shop__getPet", json!({ "id": "7", "full": "maybe", "idd": 1 })).await.unwrap();
    assert_eq!(
        notes(output),
        [
            "not sent, since they are not arguments of this tool: `idd`",
            r#"`validate: lenient` let pass: /full "maybe" is not of type "boolean""#,
        ]
    );
    let output = registry.call("shop__makePet", json!({})).await.unwrap();
    assert_eq!(notes(output), ["`validate: lenient` let pass: /body is required"]);
    assert_eq!(server.request_lines(), ["GET /v1/pets/7?full=maybe", "POST /v1/pets"]);
    for input in [json!({}), json!({ "id": ".." }), json!({ "id": "" }), json!([])] {
        let error = registry.call("shop__getPet", input.clone()).await.unwrap_err();
        assert_eq!(error.code, Code::ToolInvalidInput, "{input}");
    }
    let tool = registry.tool("shop__getPet").unwrap();
    assert_eq!(tool.notes(), ["arguments that do not match the schema are sent, with a note (`validate: lenient`)"]);
}

#[tokio::test]
async fn credentials_take_name_place_and_token_url_from_the_document() {
    let server = LoopbackServer::start(|request| match request.request_line().as_str() {
        "POST /token" => HttpReply::json(200, r#"{"access_token": "t0ken", "token_type": "bearer"}"#),
        _ => HttpReply::json(200, "{}"),
    });
    let key = |name: &str| json!({ "type": "apiKey", "in": "query", "name": name });
    let flows = json!({ "clientCredentials": { "tokenUrl": "/token", "scopes": {} } });
    let oauth = json!({ "type": "oauth2", "flows": flows });
    let document = |schemes: Value, security: Option<Value>| {
        let mut document =
            with_settings(pets_document(&server), json!({ "components": { "securitySchemes": schemes } }));
        if let Some(security) = security {
            document["security"] = security;
        }
        document
    };
    let call = async |document: Value, auth: Value| {
        let registry = OpenApiTestRegistry::open_shop(&document, json!({ "auth": auth })).await;
        registry.call("shop__getPet", json!({ "id": "1" })).await.map_err(|error| (error.code, error.message))
    };
    let one = json!({ "k": key("key") });
    call(document(one.clone(), Some(json!([{ "k": [] }]))), json!({ "api_key": "s3cret" })).await.unwrap();
    call(document(one, None), json!({ "api_key": { "value": "s3cret" } })).await.unwrap();
    let client = json!({ "oauth2": { "client_id": "me", "client_secret": "s3cret" } });
    call(document(json!({ "o": oauth }), Some(json!([{ "o": [] }]))), client.clone()).await.unwrap();
    assert_eq!(
        server.request_lines(),
        ["GET /v1/pets/1?key=s3cret", "GET /v1/pets/1?key=s3cret", "POST /token", "GET /v1/pets/1"]
    );
    assert_eq!(server.requests()[3].header("authorization"), Some("Bearer t0ken"));
    let none = "the document names no API key for `GET /pets/{id}`; set `name` and `in` under `api_key`";
    let error = call(document(json!({}), None), json!({ "api_key": "s3cret" })).await.unwrap_err();
    assert_eq!(error, (Code::ConfigInvalid, none.to_owned()));
    let keys = || json!({ "a": key("x"), "b": key("y"), "t": { "type": "http", "scheme": "bearer" } });
    let alternatives = json!([{ "t": [] }, { "b": [] }, { "a": [] }]);
    call(document(keys(), Some(alternatives)), json!({ "api_key": "s3cret" })).await.unwrap();
    assert_eq!(server.request_lines().last().unwrap(), "GET /v1/pets/1?y=s3cret");
    let both = document(keys(), Some(json!([{ "a": [], "b": [] }])));
    let several = "the document names several security schemes for `GET /pets/{id}`: `a`, `b`; set the credentials of \
                   each that is needed: `auth: { schemes: { a: …, b: … } }`";
    assert_eq!(
        call(both, json!({ "api_key": "s3cret" })).await.unwrap_err(),
        (Code::ConfigInvalid, several.to_owned())
    );
    let no_flow = "the document names no token URL for `GET /pets/{id}`; set `token_url` under `oauth2`";
    assert_eq!(call(document(json!({}), None), client).await.unwrap_err(), (Code::ConfigInvalid, no_flow.to_owned()));
}

#[tokio::test]
async fn the_media_type_of_a_body_is_chosen_by_argument_or_by_a_file() {
    let server = LoopbackServer::start(|_| HttpReply::json(200, "{}"));
    let mut document = pets_document(&server);
    let content = &mut document["paths"]["/pets"]["post"]["requestBody"]["content"];
    content["application/xml"] = json!({ "schema": { "type": "object" } });
    content["multipart/form-data"] = json!({ "schema": { "type": "object", "properties": {
        "name": { "type": "string" }, "photo": { "type": "string", "format": "binary" } } } });
    content["application/x-www-form-urlencoded"] = content["application/json"].clone();
    let registry = OpenApiTestRegistry::open_shop(&document, json!({})).await;
    let rex = json!({ "name": "Rex" });
    for input in [
        json!({ "body": rex }),
        json!({ "body": rex, "body__content_type": "application/x-www-form-urlencoded" }),
        json!({ "body": "<pet/>", "body__content_type": "application/xml" }),
        json!({ "body": { "name": "Rex", "photo": "aGk=" } }),
        json!({ "body": { "name": "Rex", "photo": "aGk=" }, "body__content_type": "application/json" }),
    ] {
        registry.call("shop__makePet", input).await.unwrap();
    }
    let sent: Vec<(String, String)> = server
        .requests()
        .iter()
        .map(|request| {
            let content_type = request.header("content-type").unwrap().split(';').next().unwrap().to_owned();
            (content_type, request.text())
        })
        .collect();
    let [json, form, xml, files, explicit] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!(*json, ("application/json".to_owned(), r#"{"name":"Rex"}"#.to_owned()));
    assert_eq!(*form, ("application/x-www-form-urlencoded".to_owned(), "name=Rex".to_owned()));
    assert_eq!(*xml, ("application/xml".to_owned(), "<pet/>".to_owned()));
    assert!(files.0 == "multipart/form-data" && files.1.contains("\r\n\r\nhi\r\n"), "{files:?}");
    assert_eq!(explicit.0, "application/json");
    let input = json!({ "body": rex, "body__content_type": "text/csv" });
    assert_eq!(registry.call("shop__makePet", input).await.unwrap_err().code, Code::ToolInvalidInput);
}

#[tokio::test]
async fn a_body_must_match_the_media_type_that_is_chosen() {
    let server = LoopbackServer::start(|_| HttpReply::json(200, "{}"));
    let object = |name: &str, schema: Value| json!({ "schema": { "type": "object", "required": [name], "properties": { name: schema } } });
    let text = || json!({ "type": "string" });
    let file = || json!({ "type": "string", "format": "binary" });
    let operation = |content: Value| json!({ "requestBody": { "required": true, "content": content } });
    let mut document = pets_document(&server);
    let upload = operation(json!({
        "application/json": object("url", text()), "multipart/form-data": object("file", file()),
    }));
    let patch = operation(json!({
        "application/merge-patch+json": { "schema": { "type": "object" } },
        "application/json-patch+json": { "schema": { "type": "array", "items": { "type": "object" } } },
    }));
    let forms = operation(json!({
        "application/x-www-form-urlencoded": { "schema": { "$ref": "#/components/schemas/Form" } },
        "multipart/form-data": { "schema": { "$ref": "#/components/schemas/Form" } },
    }));
    let form = json!({ "type": "object", "properties": { "name": text(), "file": file() } });
    document["components"]["schemas"]["Form"] = form;
    document["paths"] = json!({
        "/upload": { "post": upload }, "/patch": { "patch": patch }, "/form": { "post": forms },
    });
    let registry = OpenApiTestRegistry::open_shop(&document, json!({})).await;
    let wrong = json!({ "body": { "file": "aGk=" }, "body__content_type": "application/json" });
    let message = registry.call("shop__post_upload", wrong).await.unwrap_err().message;
    assert!(message.contains("/body/url is required"), "{message}");
    for (tool, body, expected) in [
        ("shop__post_upload", json!({ "url": "u" }), "application/json"),
        ("shop__post_upload", json!({ "file": "aGk=" }), "multipart/form-data"),
        ("shop__patch_patch", json!({ "a": 1 }), "application/merge-patch+json"),
        ("shop__patch_patch", json!([{ "op": "remove" }]), "application/json-patch+json"),
        ("shop__post_form", json!({ "name": "a" }), "application/x-www-form-urlencoded"),
        ("shop__post_form", json!({ "name": "a", "file": "aGk=" }), "multipart/form-data"),
    ] {
        registry.call(tool, json!({ "body": body })).await.unwrap();
        let requests = server.requests();
        let sent = requests.last().unwrap().header("content-type").unwrap().split(';').next().unwrap();
        assert_eq!(sent, expected, "{tool} {body}");
    }
}
