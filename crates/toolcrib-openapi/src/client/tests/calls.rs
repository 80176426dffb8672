use std::collections::BTreeMap;

use toolcrib_core::execution::ParameterLocation as In;
use toolcrib_core::execution::{
    BodyEncoding, BodySpec, OperationParameter, ParameterStyle, SecurityRequirement, SecurityScheme, Serialization,
};
use toolcrib_core::source::{Auth, KeyLocation};

use super::*;

fn parameter(name: &str, location: In) -> OperationParameter {
    let style = match location {
        In::Path | In::Header => ParameterStyle::Simple,
        In::Query | In::Cookie | In::Querystring => ParameterStyle::Form,
    };
    let form = Serialization::Style { style, explode: false, allow_reserved: false };
    OperationParameter { argument: name.into(), name: name.into(), location, required: false, serialization: form }
}

#[tokio::test]
async fn a_call_sends_the_request_of_its_operation_over_a_pooled_connection() {
    let server = LoopbackServer::start(|_| HttpReply::json(200, r#"{"id": 7}"#));
    let connector = connector(OpenApiSource {
        base_url: Some(format!("{}/{{{{ stage }}}}/", server.url)),
        headers: BTreeMap::from([
            ("X-Stage".to_owned(), "stage {{ stage }}".to_owned()),
            ("Cookie".to_owned(), "site=1".to_owned()),
            ("X-Client".to_owned(), "configured".to_owned()),
        ]),
        variables: BTreeMap::from([("stage".to_owned(), "v1".to_owned())]),
        auth: Some(Auth::ApiKey { name: "sid".into(), location: Some(KeyLocation::Cookie), value: "s3cret".into() }),
        ..OpenApiSource::default()
    });
    let operation = Operation {
        parameters: vec![
            parameter("id", In::Path),
            parameter("q", In::Query),
            parameter("X-Client", In::Header),
            parameter("Host", In::Header),
            parameter("lang", In::Cookie),
        ],
        body: Some(BodySpec {
            argument: "body".into(),
            required: false,
            media_type: "application/json".into(),
            content: BodyEncoding::Json,
            fields: BTreeMap::new(),
        }),
        accept: vec!["application/json".into(), "text/plain".into()],
        ..operation("POST", "https://elsewhere.example.com", "/pets/{id}")
    };
    let arguments =
        json!({"id": "a/b", "q": "x y", "X-Client": "said", "Host": "evil", "lang": "de", "body": {"n": 1}});
    for _ in 0..2 {
        let result = call(&connector, &operation, arguments.clone()).await.unwrap();
        assert_eq!(result["structuredContent"], json!({"id": 7}));
        assert_eq!(result["_meta"]["toolcrib/http"]["status"], 200);
    }
    let requests = server.requests();
    let [first, second] = requests.as_slice() else { panic!("{requests:?}") };
    assert_eq!(first.request_line(), "POST /v1/pets/a%2Fb?q=x%20y");
    assert_eq!(first.text(), r#"{"n":1}"#);
    for (name, value) in [
        ("content-type", "application/json"),
        ("accept", "application/json, text/plain, */*;q=0.1"),
        ("x-stage", "stage v1"),
        ("x-client", "configured"),
        ("cookie", "lang=de; site=1; sid=s3cret"),
        ("user-agent", concat!("toolcrib/", env!("CARGO_PKG_VERSION"))),
    ] {
        assert_eq!(first.header(name), Some(value), "{name}");
    }
    assert!(first.header("host").unwrap().starts_with("127.0.0.1:"));
    assert_eq!((first.connection, second.connection), (0, 0));
}

#[tokio::test]
async fn an_empty_body_has_a_length() {
    let server = LoopbackServer::start(|_| HttpReply::json(200, "{}"));
    let body = BodySpec {
        argument: "body".into(),
        required: true,
        media_type: "text/plain".into(),
        content: BodyEncoding::Text,
        fields: BTreeMap::new(),
    };
    for (method, body, length) in [
        ("POST", Some(body.clone()), Some("0")),
        ("DELETE", Some(body), Some("0")),
        ("POST", None, Some("0")),
        ("GET", None, None),
    ] {
        let arguments = if body.is_some() { json!({"body": ""}) } else { json!({}) };
        let operation = Operation { body, ..operation(method, &server.url, "/t") };
        let connector = connector(OpenApiSource { allow_private: true, ..OpenApiSource::default() });
        call(&connector, &operation, arguments).await.unwrap();
        assert_eq!(server.requests().pop().unwrap().header("content-length"), length, "{operation:?}");
    }
}

#[tokio::test]
async fn base_url_overrides_the_server_of_the_document() {
    let server = LoopbackServer::start(|_| HttpReply::new(204, "", ""));
    let document = format!("{}/docs/openapi.json?token=x", server.url);
    let base_url = Some(format!("{}/base?x=1", server.url));
    for (document, base_url, server_url, expected) in [
        ("/api.yaml", base_url.clone(), "https://other.example.com", Ok("/base/p?x=1")),
        ("/api.yaml", None, server.url.as_str(), Ok("/p")),
        (document.as_str(), None, "/v2", Ok("/v2/p")),
        (document.as_str(), None, "v2", Ok("/docs/v2/p")),
        (document.as_str(), None, "/", Ok("/p")),
        ("/api.yaml", None, "", Err("the document names no server; set `base_url` on the source")),
        ("/api.yaml", None, "/v2", Err("which is a file; set `base_url` on the source")),
        ("/api.yaml", None, "ftp://h/", Err("`ftp://h/` is not an http address; set `base_url` on the source")),
        (
            "/api.yaml",
            None,
            "http://{host}/",
            Err("without a value; set it under `variables` of the source, or set `base_url`"),
        ),
    ] {
        let before = server.requests().len();
        let connector = connector(OpenApiSource { document: document.into(), base_url, ..OpenApiSource::default() });
        let result = call(&connector, &operation("GET", server_url, "/p"), json!({})).await;
        match expected {
            Ok(target) => {
                assert_eq!(result.unwrap()["content"][0]["text"], "204 No Content");
                assert_eq!(server.requests()[before].target, target);
            }
            Err(reason) => {
                let (kind, code, message) = failure_parts(result);
                assert_eq!((kind, code), ("inconclusive", Code::ConfigInvalid));
                assert!(message.ends_with(reason), "{message}");
            }
        }
    }
}

#[tokio::test]
async fn a_remote_document_cannot_name_private_servers() {
    let server = LoopbackServer::start(|_| HttpReply::new(204, "", ""));
    let port = server.url.rsplit(':').next().unwrap();
    let document = "http://docs.example.com/openapi.json".to_owned();
    let remote = connector(OpenApiSource { document: document.clone(), ..OpenApiSource::default() });
    // The first is blocked by its address, the second by what its name resolves to.
    for server_url in [server.url.clone(), format!("http://localhost:{port}")] {
        let (kind, code, message) = failure_parts(call(&remote, &operation("GET", &server_url, "/p"), json!({})).await);
        assert_eq!((kind, code), ("rejected", Code::ToolUnavailable));
        assert!(message.starts_with("`GET /p` is not sent: ") && message.contains("set `allow_private`"), "{message}");
    }
    assert_eq!(server.requests().len(), 0);
    let allowed =
        connector(OpenApiSource { document: document.clone(), allow_private: true, ..OpenApiSource::default() });
    assert!(call(&allowed, &operation("GET", &server.url, "/p"), json!({})).await.is_ok());
    let with_base_url =
        connector(OpenApiSource { document, base_url: Some(server.url.clone()), ..OpenApiSource::default() });
    assert!(call(&with_base_url, &operation("GET", "", "/p"), json!({})).await.is_ok());
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn credentials_follow_the_security_requirements_of_the_document() {
    let server = LoopbackServer::start(|_| HttpReply::json(401, r#"{"message":"who are you?"}"#));
    let kind = SecurityScheme::ApiKey { name: "X-Key".into(), location: KeyLocation::Query };
    let security = vec![vec![SecurityRequirement { scheme: "key".into(), kind, scopes: Vec::new() }]];
    let operation_with_key = Operation { security, ..operation("GET", &server.url, "/p") };
    let schemes = Auth::Schemes(BTreeMap::from([
        ("key".to_owned(), Auth::Bearer("a b&c".into())),
        ("unused".to_owned(), Auth::Bearer("${env:TOOLCRIB_NO_SUCH_VARIABLE}".into())),
    ]));
    let with_credentials = connector(OpenApiSource { auth: Some(schemes), ..OpenApiSource::default() });
    let (_, _, message) = failure_parts(call(&with_credentials, &operation_with_key, json!({})).await);
    assert_eq!(message, "`GET /p` answered 401 Unauthorized: who are you?");
    let without_credentials = connector(OpenApiSource::default());
    let (_, _, message) = failure_parts(call(&without_credentials, &operation_with_key, json!({})).await);
    let missing = "the document requires `key` (a key in the query `X-Key`), to be configured in `auth` of the source";
    assert_eq!(message, format!("`GET /p` answered 401 Unauthorized: who are you?; {missing}"));
    assert_eq!(server.request_lines(), ["GET /p?X-Key=a+b%26c", "GET /p"]);
}

#[tokio::test]
async fn the_next_page_of_a_list_is_in_the_result() {
    let server = LoopbackServer::start(|request| {
        let page: u32 = request.target.rsplit("page=").next().unwrap().parse().unwrap();
        let next = match page {
            3 => String::new(),
            _ => format!("<http://internal/pets?api_key=s3cret&page={}>; rel=\"next\"", page + 1),
        };
        HttpReply::json(200, "[1]").with_header("link", &next).with_header("x-total-count", "3")
    });
    let connector = connector(OpenApiSource {
        auth: Some(Auth::ApiKey {
            name: "api_key".into(),
            location: Some(KeyLocation::Header),
            value: "s3cret".into(),
        }),
        ..OpenApiSource::default()
    });
    let operation =
        Operation { parameters: vec![parameter("page", In::Query)], ..operation("GET", &server.url, "/pets") };
    let mut page = Some("1".to_owned());
    let mut texts = Vec::new();
    while let Some(argument) = page {
        let result = call(&connector, &operation, json!({"page": argument})).await.unwrap();
        assert_eq!(result["structuredContent"], json!({"result": [1]}));
        texts.push(result["content"][1]["text"].as_str().unwrap().to_owned());
        let pagination = &result["_meta"]["toolcrib/pagination"];
        assert_eq!(pagination["total"], 3);
        page = pagination["next"]["page"].as_str().map(str::to_owned);
        assert!(!result.to_string().contains("s3cret"), "{result}");
    }
    let undeclared = "; the API also uses `api_key`, which is no argument of this tool";
    let next = |page: u32| format!("next page: page={page} (of 3 items){undeclared}");
    assert_eq!(texts, [next(2), next(3), "3 items in total".to_owned()]);
}
