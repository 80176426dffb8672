use serde_json::json;
use toolcrib_core::tool::EXECUTION_SPEC_KEY;
use url::Url;

use super::*;

fn convert_document(document: Value, openapi: OpenApiSource) -> ConvertedDocument {
    let documents = DocumentSet::new(Url::parse("https://h.example/openapi.json").unwrap(), document);
    let source = SourceId::parse("shop").unwrap();
    convert(&documents, ConversionOptions { source: &source, openapi: &openapi }).unwrap()
}

fn tools(converted: &ConvertedDocument) -> Vec<Value> {
    converted.tools.iter().map(|tool| serde_json::from_str(tool.get()).unwrap()).collect()
}

fn converted_names(converted: &ConvertedDocument) -> Vec<String> {
    tools(converted).iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

fn faults(converted: &ConvertedDocument) -> Vec<String> {
    converted.skipped.iter().map(|entry| format!("{}: {}", entry.name, entry.reason)).collect()
}

/// Converts a document with one operation and returns its tool.
fn convert_operation(method: &str, path: &str, operation: Value) -> Value {
    let converted = convert_document(
        json!({ "openapi": "3.1.0", "paths": { path: { method: operation } } }),
        OpenApiSource::default(),
    );
    assert_eq!(faults(&converted), [""; 0]);
    tools(&converted).remove(0)
}

#[test]
fn an_operation_becomes_a_tool() {
    let tool = convert_operation(
        "delete",
        "/pets/{id}",
        json!({
            "operationId": "deletePet", "summary": "Delete a pet", "description": "Deletes the pet. For good.",
            "tags": ["pets"], "deprecated": true,
            "parameters": [{ "name": "id", "in": "path", "required": true, "schema": { "type": "integer" } }],
        }),
    );
    let spec = json!({
        "execution": {
            "mode": "sync_http", "method": "DELETE", "server": "https://h.example", "path": "/pets/{id}",
            "operation_id": "deletePet",
            "parameters": [{
                "argument": "id", "name": "id", "place": "path", "required": true,
                "form": { "style": { "style": "simple", "explode": false } },
            }],
        },
        "tags": ["pets"],
        "deprecated": true,
    });
    let expected = json!({
        "name": "deletePet",
        "description": "(deprecated) Delete a pet. For good.",
        "inputSchema": { "type": "object", "properties": { "id": { "type": "integer" } }, "required": ["id"] },
        "annotations": { "destructiveHint": true, "idempotentHint": true },
        (EXECUTION_SPEC_KEY): spec,
    });
    assert_eq!(tool, expected);
    assert_eq!(convert_operation("get", "/x", json!({}))["description"], "GET /x");
    assert_eq!(convert_operation("get", "/x", json!({}))["annotations"], json!({ "readOnlyHint": true }));
    assert_eq!(convert_operation("post", "/x", json!({})).get("annotations"), None);
}

#[test]
fn a_parameter_name_in_two_locations_gets_a_suffix() {
    let parameter =
        |name: &str, document_url: &str| json!({ "name": name, "in": document_url, "schema": { "type": "string" } });
    let arguments = |tool: &Value| -> Vec<String> {
        tool["inputSchema"]["properties"].as_object().unwrap().keys().cloned().collect()
    };
    let body =
        json!({ "content": { "application/json": { "schema": { "type": "object", "properties": { "id": {} } } } } });
    let tool = convert_operation(
        "put",
        "/t/{id}",
        json!({
            "parameters": [
                parameter("id", "query"), parameter("id", "header"), parameter("id", "cookie"), parameter("id", "path"),
                parameter("body", "query"), parameter("both", "query"), parameter("both", "header"),
                parameter("Authorization", "header"), parameter("alone", "cookie"),
            ],
            "requestBody": body,
        }),
    );
    let expected =
        ["id", "id__query", "body__query", "both__query", "id__header", "both__header", "id__cookie", "alone", "body"];
    assert_eq!(arguments(&tool), expected);
    assert_eq!(
        arguments(&convert_operation("get", "/t", json!({ "parameters": [parameter("body", "query")] }))),
        ["body"]
    );
    assert_eq!(
        arguments(&convert_operation("get", "/t/{a}/{b}", json!({}))),
        ["a", "b"],
        "every template of the path is an argument"
    );
}

#[test]
fn a_broken_node_affects_no_other() {
    let document = json!({
        "openapi": "3.0.3",
        "x-items": { "f": { "get": { "operationId": "f1" } } },
        "paths": {
            "x-note": "not a path",
            "/f": { "$ref": "#/x-items/f", "parameters": [{ "name": "q", "in": "query", "type": "integer" }], "POST": { "operationId": "f2" } },
            "/a": { "get": { "operationId": "a", "parameters": [{ "$ref": "#/components/parameters/Gone" }, 5] } },
            "/b": { "get": "nonsense", "post": { "operationId": "b", "requestBody": { "$ref": "#/nowhere" } } },
            "/c": 7,
            "/d": { "$ref": "#/nowhere" },
            "/g": { "get": { "operationId": "e" }, "post": { "operationId": "g", "requestBody": 17 } },
            "/e": { "get": { "operationId": "e", "responses": { "200": { "content": { "application/json": { "schema": false } } } } } },
        },
    });
    let converted = convert_document(document, OpenApiSource::default());
    assert_eq!(converted_names(&converted), ["f1", "f2", "a", "b", "e_b474b1f1", "g", "e"]);
    assert_eq!(tools(&converted)[0]["inputSchema"]["properties"]["q"], json!({ "type": "integer" }));
    assert_eq!(
        faults(&converted),
        [
            "#/paths/~1a/get: a parameter without `name` or `in`; the tool is served without it",
            "#/paths/~1a/get: parameter 0: `$ref` to `#/components/parameters/Gone`, which does not exist; the tool is served without it",
            "#/paths/~1b/get: the operation is not an object",
            "#/paths/~1b/post: the body: `$ref` to `#/nowhere`, which does not exist; anything is accepted as JSON",
            "#/paths/~1c: the path item is not an object",
            "#/paths/~1d: `$ref` to `#/nowhere`, which does not exist",
            "#/paths/~1g/get: another operation has the operationId `e`, or one that becomes the same; the tool is called `e_b474b1f1`",
            "#/paths/~1g/post: the body is not an object; anything is accepted as JSON",
        ]
    );
}

#[test]
fn operations_are_selected_by_the_declaration() {
    let document = || {
        json!({ "openapi": "3.2.0", "paths": {
            "/orders": { "get": { "operationId": "ordersList", "tags": ["read"] }, "post": { "operationId": "ordersMake" }, "head": {}, "query": {} },
            "/pets": { "delete": { "operationId": "petsDelete" }, "additionalOperations": { "COPY": {} } },
        } })
    };
    let picked = |openapi: OpenApiSource| converted_names(&convert_document(document(), openapi));
    let list = |text: &[&str]| text.iter().map(|text| (*text).to_owned()).collect();
    assert_eq!(
        picked(OpenApiSource::default()),
        ["ordersList", "ordersMake", "query_orders", "petsDelete", "copy_pets"]
    );
    assert_eq!(
        picked(OpenApiSource { include: list(&["orders*"]), ..OpenApiSource::default() }),
        ["ordersList", "ordersMake"]
    );
    assert_eq!(
        picked(OpenApiSource { exclude: list(&["*Delete", "GET /*", "copy*"]), ..OpenApiSource::default() }),
        ["ordersMake", "query_orders"]
    );
    assert_eq!(picked(OpenApiSource { include_tags: list(&["read"]), ..OpenApiSource::default() }), ["ordersList"]);
    assert_eq!(
        picked(OpenApiSource { methods: list(&["HEAD"]), include: list(&["head*"]), ..OpenApiSource::default() }),
        ["head_orders"]
    );
}

#[test]
fn swagger_2_is_converted() {
    let document = json!({
        "swagger": "2.0", "host": "a.example", "basePath": "/v1", "schemes": ["https"],
        "securityDefinitions": { "key": { "type": "apiKey", "in": "query", "name": "key" } },
        "paths": { "/t": { "post": {
            "operationId": "t", "consumes": ["multipart/form-data"], "security": [{ "key": [] }],
            "parameters": [
                { "name": "ids", "in": "query", "type": "array", "items": { "type": "integer" }, "collectionFormat": "pipes" },
                { "name": "key", "in": "query", "type": "string" },
                { "name": "file", "in": "formData", "type": "file", "required": true },
                { "name": "note", "in": "formData", "type": "string" },
            ],
        } } },
    });
    let tool = tools(&convert_document(document, OpenApiSource::default())).remove(0);
    let file = json!({ "type": ["string", "object"], "description": "base64, or {name, base64}" });
    let expected = json!({ "type": "object", "properties": {
        "ids": { "type": "array", "items": { "type": "integer" } },
        "body": { "type": "object", "properties": { "file": file, "note": { "type": "string" } }, "required": ["file"] },
    }, "required": ["body"] });
    assert_eq!(tool["inputSchema"], expected);
    let execution = &tool[EXECUTION_SPEC_KEY]["execution"];
    assert_eq!(execution["server"], "https://a.example/v1");
    assert_eq!(execution["parameters"][0]["form"]["style"]["style"], "pipeDelimited");
    assert_eq!(execution["body"]["content"], "multipart");
    assert_eq!(execution["body"]["fields"], json!({ "file": { "binary": true } }));
    assert_eq!(execution["security"][0][0]["scheme"], "key");
}

#[test]
fn the_preferred_media_type_is_selected() {
    let of = |content: Value| {
        let tool = convert_operation("post", "/t", json!({ "requestBody": { "content": content, "required": true } }));
        let body = &tool[EXECUTION_SPEC_KEY]["execution"]["body"];
        (body["media_type"].as_str().unwrap().to_owned(), body["content"].as_str().unwrap().to_owned())
    };
    let any = || json!({ "schema": {} });
    for (content, media_type, kind) in [
        (json!({ "application/xml": any(), "application/json": any() }), "application/json", "json"),
        (json!({ "text/plain": any(), "application/vnd.x+json; v=1": any() }), "application/vnd.x+json; v=1", "json"),
        (json!({ "application/xml": any() }), "application/xml", "text"),
        (json!({ "*/*": any() }), "application/json", "json"),
        (json!({ "image/*": any() }), "application/octet-stream", "binary"),
        (json!({}), "application/json", "json"),
        (
            json!({ "application/x-www-form-urlencoded": any(), "multipart/form-data": any() }),
            "application/x-www-form-urlencoded",
            "urlencoded",
        ),
        (
            json!({ "application/x-www-form-urlencoded": any(), "multipart/form-data": { "schema": { "properties": { "f": { "format": "binary" } } } } }),
            "application/x-www-form-urlencoded",
            "urlencoded",
        ),
        (json!({ "application/x-ndjson": any() }), "application/x-ndjson", "jsonlines"),
    ] {
        assert_eq!(of(content.clone()), (media_type.to_owned(), kind.to_owned()), "{content}");
    }
}

#[test]
fn several_media_types_are_a_choice() {
    let pet = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
    let photo = json!({ "type": "object", "properties": { "photo": { "type": "string", "format": "binary" } } });
    let tool = convert_operation(
        "post",
        "/t",
        json!({
            "parameters": [{ "name": "body__content_type", "in": "query" }],
            "requestBody": { "content": {
                "application/xml": { "schema": pet }, "application/json": { "schema": pet },
                "multipart/form-data": { "schema": photo }, "application/*+json": { "schema": pet },
            } },
        }),
    );
    let properties = &tool["inputSchema"]["properties"];
    let media_types = json!(["application/json", "multipart/form-data", "application/xml"]);
    assert_eq!(properties["body__content_type"]["enum"], media_types);
    assert_eq!(properties["body__content_type"]["default"], "application/json");
    assert!(properties.get("body__content_type__query").is_some());
    assert_eq!(properties["body"]["anyOf"].as_array().map(Vec::len), Some(3), "{}", properties["body"]);
    assert_eq!(properties["body"]["anyOf"][0], pet);
    let choice = &tool[EXECUTION_SPEC_KEY]["execution"]["body_choice"];
    assert_eq!(choice["alternatives"][0]["file_fields"], json!(["photo"]));
    assert_eq!(choice["alternatives"][1]["value_types"], json!(["string"]));
    // Each media type has its own schema, if they differ.
    let chosen = |schema: &Value| schema["if"]["properties"]["body__content_type"]["enum"].clone();
    let schema = &tool["inputSchema"];
    assert_eq!((chosen(schema), &schema["then"]["properties"]["body"]), (json!(["application/json"]), &pet));
    assert_eq!(chosen(&schema["else"]["else"]), json!(["application/xml"]));
}

#[test]
fn a_poll_is_taken_from_the_document_or_the_declaration() {
    let poll = json!({ "url": "{$response.header.Location}", "status": "/status", "done": "ready", "interval": "2s" });
    let tool = convert_operation("post", "/t", json!({ "operationId": "t", "x-toolcrib-poll": poll }));
    let execution = &tool[EXECUTION_SPEC_KEY]["execution"];
    assert_eq!(execution["mode"], "async_poll");
    assert_eq!(execution["poll"]["done"], json!(["ready"]));
    assert_eq!(execution["poll"]["interval"], 2000);
    let wrong = json!({ "openapi": "3.1.0", "paths": { "/t": { "post": { "x-toolcrib-poll": {} } } } });
    assert_eq!(
        faults(&convert_document(wrong, OpenApiSource::default())),
        ["#/paths/~1t/post: `x-toolcrib-poll` needs `done`"]
    );
    for (key, value, expected) in [
        ("interval", "1ms", "`interval` must be `100ms` or more"),
        ("status", "state", "`status` is not a JSON pointer such as `/state`: `state`"),
        ("result", "out", "`result` is not a JSON pointer such as `/out`: `out`"),
    ] {
        let mut poll = json!({ "url": "/x", "status": "", "done": "ready" });
        poll[key] = value.into();
        let document = json!({ "openapi": "3.1.0", "paths": { "/t": { "post": { "x-toolcrib-poll": poll } } } });
        let expected = format!("#/paths/~1t/post: `x-toolcrib-poll`: {expected}");
        assert_eq!(faults(&convert_document(document, OpenApiSource::default())), [expected]);
    }
}

#[test]
fn templates_in_the_query_of_a_path_are_arguments() {
    let converted = convert_document(
        json!({
            "openapi": "3.1.0",
            "paths": { "/find/{id}?q={q}&kind={sort*}&key={key}&page={page}&v=1": { "get": {
                "parameters": [{ "name": "page", "in": "query", "schema": { "type": "integer" } }],
            } } },
            "components": { "securitySchemes": { "k": { "type": "apiKey", "in": "query", "name": "key" } } },
        }),
        OpenApiSource::default(),
    );
    let tool = tools(&converted).remove(0);
    let arguments: Vec<&String> = tool["inputSchema"]["properties"].as_object().unwrap().keys().collect();
    assert_eq!(arguments, ["id", "q", "sort", "page"]);
    assert_eq!(tool["inputSchema"]["required"], json!(["id", "q", "sort"]));
    assert_eq!(tool[EXECUTION_SPEC_KEY]["execution"]["path"], "/find/{id}?q={q}&kind={sort}&page={page}&v=1");
}

#[test]
fn other_documents_are_rejected() {
    let message = |document: Value| {
        let documents = DocumentSet::new(Url::parse("https://h/").unwrap(), document);
        let source = SourceId::parse("shop").unwrap();
        convert(&documents, ConversionOptions { source: &source, openapi: &OpenApiSource::default() })
            .unwrap_err()
            .message
    };
    assert_eq!(message(json!({ "a": 1 })), "this is not an OpenAPI document: it has neither `openapi` nor `swagger`");
    assert_eq!(
        message(json!({ "openapi": "4.0.0" })),
        "the document is of OpenAPI `4.0.0`; Swagger 2.0 and OpenAPI 3.0 to 3.2 are read"
    );
    assert!(message(json!({ "arazzo": "1.0.0" })).contains("declare it with `workflow`"));
}

#[test]
fn ambiguous_servers_are_reported() {
    let reported = |document_url: &str, servers: Value, base_url: Option<&str>| {
        let documents =
            DocumentSet::new(Url::parse(document_url).unwrap(), json!({ "openapi": "3.1.0", "servers": servers }));
        let openapi = OpenApiSource { base_url: base_url.map(str::to_owned), ..OpenApiSource::default() };
        let source = SourceId::parse("shop").unwrap();
        faults(&convert(&documents, ConversionOptions { source: &source, openapi: &openapi }).unwrap())
    };
    let two = json!([{ "url": "https://a" }, { "url": "https://b" }]);
    assert_eq!(
        reported("file:///x.json", two.clone(), None),
        ["#/servers: the document names 2 servers; requests go to `https://a`; set `base_url` to use another"]
    );
    assert_eq!(
        reported("https://h/x", json!([{ "url": "https://user:pw@a" }]), None),
        ["#/servers: a server URL contains credentials, which are not sent; configure them with `auth`"]
    );
    let no_server = "#/servers: the document is a file without an absolute server URL; set `base_url`";
    assert_eq!(reported("file:///x.json", json!([]), None), [no_server]);
    assert_eq!(reported("file:///x.json", json!([{ "url": "/v1" }]), None), [no_server]);
    for (document_url, servers, base_url) in [
        ("https://h/x", json!([]), None),
        ("file:///x", two, Some("https://c")),
        ("file:///x", json!([]), Some("https://c")),
    ] {
        assert_eq!(reported(document_url, servers, base_url), [""; 0]);
    }
}

#[test]
fn a_document_may_refer_to_other_files() {
    let paths = json!({ "/a": { "get": { "operationId": "a", "parameters": [{ "$ref": "#/x/0" }] } }, "x": [{ "name": "q", "in": "query" }] });
    let mut documents = DocumentSet::new(
        Url::parse("https://h/openapi.json").unwrap(),
        json!({ "openapi": "3.0.0", "paths": { "$ref": "paths.json" } }),
    );
    assert_eq!(documents.missing().len(), 1);
    documents.add(&Url::parse("https://h/paths.json").unwrap(), Ok(paths));
    let source = SourceId::parse("shop").unwrap();
    let converted =
        convert(&documents, ConversionOptions { source: &source, openapi: &OpenApiSource::default() }).unwrap();
    assert_eq!(converted_names(&converted), ["a"]);
    assert_eq!(tools(&converted)[0]["inputSchema"]["properties"], json!({ "q": {} }));
}

#[test]
fn recursive_lists_in_a_form_end() {
    let form = json!({ "schema": { "type": "object", "properties": { "a": { "$ref": "#/components/schemas/A" } } } });
    let document = json!({
        "openapi": "3.0.0",
        "paths": { "/t": { "post": { "requestBody": { "content": { "multipart/form-data": form } } } } },
        "components": { "schemas": { "A": { "type": "array", "items": { "$ref": "#/components/schemas/A" } } } },
    });
    assert_eq!(converted_names(&convert_document(document, OpenApiSource::default())), ["post_t"]);
}

/// Thousands of paths may refer to one path item.
#[test]
fn shared_path_items_are_bounded() {
    let document = |item: Value| {
        let paths: Map<String, Value> =
            (0..3_000).map(|n| (format!("/p{n}"), json!({ "$ref": "#/components/pathItems/I" }))).collect();
        json!({ "openapi": "3.1.0", "paths": paths, "components": { "pathItems": { "I": item } } })
    };
    let methods: Map<String, Value> = (0..3_000).map(|n| (format!("no method {n}"), json!({}))).collect();
    let converted = convert_document(document(json!({ "additionalOperations": methods })), OpenApiSource::default());
    assert_eq!(converted.skipped.len(), 501);
    let limit = "the document has 9000000 operations, of which the first 20000 are read; 8980000 are missing";
    assert_eq!(faults(&converted)[0], format!("#/paths: {limit}"));
    let converted = convert_document(
        document(json!({ "get": { "description": "word ".repeat(200_000) } })),
        OpenApiSource::default(),
    );
    let missing = 3_000 - converted.tools.len();
    let reason = "the document exceeds the work limit for conversion";
    let reason = format!("{reason}; {missing} operations are skipped, of which this is the first");
    assert_eq!(converted.skipped.last().map(|entry| entry.reason.as_str()), Some(reason.as_str()));
}

#[test]
fn a_path_of_kilobytes_is_skipped() {
    let methods: Map<String, Value> = (0..10_000).map(|n| (format!("M{n}"), json!({}))).collect();
    let templates: String = (0..100_000).map(|n| format!("{{t{n}}}")).collect();
    let paths = json!({ format!("/{templates}"): { "get": {}, "additionalOperations": methods }, "/a": { "get": {} } });
    let converted = convert_document(json!({ "openapi": "3.2.0", "paths": paths }), OpenApiSource::default());
    assert_eq!(converted_names(&converted), ["get_a"]);
    assert_eq!(converted.skipped[0].reason, "the path is longer than 2000 bytes");
}

#[test]
fn parameters_beyond_a_thousand_are_reported_and_dropped() {
    let parameters: Vec<Value> = (0..20_000).map(|n| json!({ "name": format!("p{n}"), "in": "header" })).collect();
    let key = |n: usize| json!({ "type": "apiKey", "in": "header", "name": format!("k{n}") });
    let keys: Map<String, Value> = (0..20_000).map(|n| (format!("s{n}"), key(n))).collect();
    let document = json!({
        "openapi": "3.1.0", "paths": { "/a": { "get": { "parameters": parameters } } },
        "components": { "securitySchemes": keys },
    });
    let converted = convert_document(document, OpenApiSource::default());
    assert_eq!(tools(&converted)[0]["inputSchema"]["properties"].as_object().map(Map::len), Some(1_000));
    let reason = "there are more than 1000 parameters; the tool is served without the rest";
    assert_eq!(faults(&converted), [format!("#/paths/~1a/get: {reason}")]);
}
