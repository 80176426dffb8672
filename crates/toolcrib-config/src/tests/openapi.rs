//! OpenAPI and workflow sources: every key, and how paths of documents are resolved.

use super::*;

fn parse_kind(text: &str) -> SourceKind {
    let config = parse_toolcrib(text).unwrap();
    config.sources[0].source.clone().unwrap().kind
}

#[test]
fn every_key_of_an_openapi_source_is_parsed() {
    let text = r#"
sources:
  shop:
    openapi: ../api/shop.yaml
    base_url: "{{ scheme }}://{{ host }}/v1"
    include: [orders*, "GET /products/*"]
    exclude: ["*delete*"]
    include_tags: [orders, 2]
    methods: [head, Options, HEAD]
    headers: { X-Tenant: "{{ tenant }}" }
    auth:
      schemes:
        key: { api_key: { name: k, in: cookie, value: v } }
        oauth: { oauth2: { token_url: "https://id.example/token", client_id: me, client_secret: "${env:S}", scopes: read  write } }
        other: { oauth2: { token_url: "${env:URL}", client_id: me, client_secret: s, scopes: [read, write] } }
    allow_private: true
    allow_refs: ["https://schemas.example/", ../shared, ~/refs]
    variables: { host: shop.example, port: 8080, tenant: "${file:tenant.txt}" }
    poll:
      start_*: { url: "{$response.header.Location}", status: /state, result: "", done: [ready, true], failed: [lost], interval: 100ms }
"#;
    let oauth2 = |token_url: &str, client_secret: &str| Auth::Oauth2 {
        token_url: token_url.into(),
        client_id: "me".into(),
        client_secret: client_secret.into(),
        scopes: strings(&["read", "write"]),
    };
    let expected = OpenApiSource {
        document: "/api/shop.yaml".into(),
        base_url: Some("{{ scheme }}://{{ host }}/v1".into()),
        include: strings(&["orders*", "GET /products/*"]),
        exclude: strings(&["*delete*"]),
        include_tags: strings(&["orders", "2"]),
        methods: strings(&["HEAD", "OPTIONS"]),
        headers: string_map(&[("X-Tenant", "{{ tenant }}")]),
        auth: Some(Auth::Schemes(BTreeMap::from([
            ("key".into(), Auth::ApiKey { name: "k".into(), location: Some(KeyLocation::Cookie), value: "v".into() }),
            ("oauth".into(), oauth2("https://id.example/token", "${env:S}")),
            ("other".into(), oauth2("${env:URL}", "s")),
        ]))),
        allow_private: true,
        allow_refs: strings(&["https://schemas.example/", "/shared", "${env:HOME}/refs"]),
        variables: string_map(&[("host", "shop.example"), ("port", "8080"), ("tenant", "${file:/p/tenant.txt}")]),
        poll: BTreeMap::from([(
            "start_*".into(),
            PollSettings {
                url: "{$response.header.Location}".into(),
                status: "/state".into(),
                result: Some(String::new()),
                done: strings(&["ready", "true"]),
                failed: strings(&["lost"]),
                interval: Some(Duration::from_millis(100)),
            },
        )]),
    };
    assert_eq!(parse_kind(text), SourceKind::OpenApi(expected));
}

#[test]
fn credentials_may_leave_name_place_and_token_url_to_the_document() {
    let key = |name: &str, location| Auth::ApiKey { name: name.into(), location, value: "${env:KEY}".into() };
    let oauth2 = Auth::Oauth2 {
        token_url: String::new(),
        client_id: "me".into(),
        client_secret: "${env:S}".into(),
        scopes: Vec::new(),
    };
    for (text, expected) in [
        ("api_key: '${env:KEY}'", key("", None)),
        ("api_key: { value: '${env:KEY}' }", key("", None)),
        ("api_key: { in: query, value: '${env:KEY}' }", key("", Some(KeyLocation::Query))),
        ("api_key: { name: 'filter[key]', value: '${env:KEY}' }", key("filter[key]", None)),
        ("oauth2: { client_id: me, client_secret: '${env:S}' }", oauth2),
    ] {
        let kind = parse_kind(&format!("sources: {{ a: {{ openapi: /a.json, auth: {{ {text} }} }} }}"));
        let openapi = OpenApiSource { document: "/a.json".into(), auth: Some(expected), ..OpenApiSource::default() };
        assert_eq!(kind, SourceKind::OpenApi(openapi), "{text}");
    }
}

#[test]
fn a_document_is_a_file_relative_to_the_configuration_or_a_url() {
    for (location, expected) in [
        ("shop.yaml", "/p/shop.yaml"),
        ("./a/../shop.yaml", "/p/shop.yaml"),
        ("/etc/shop.yaml", "/etc/shop.yaml"),
        ("~/shop.yaml", "${env:HOME}/shop.yaml"),
        ("${env:DOCUMENT}", "/p/./${env:DOCUMENT}"),
        ("${file:where.txt}", "/p/./${file:/p/where.txt}"),
        ("http://127.0.0.1:8080/openapi.json", "http://127.0.0.1:8080/openapi.json"),
        ("HTTPS://shop.example/openapi.json", "HTTPS://shop.example/openapi.json"),
    ] {
        let openapi = OpenApiSource { document: expected.into(), ..OpenApiSource::default() };
        assert_eq!(
            parse_kind(&format!("sources: {{ a: {{ openapi: '{location}' }} }}")),
            SourceKind::OpenApi(openapi),
            "{location}"
        );
    }
    let workflow = WorkflowSource { document: "/p/flows.yaml".into() };
    assert_eq!(parse_kind("sources: { a: { workflow: ./flows.yaml } }"), SourceKind::Workflow(workflow));
}

#[test]
fn secrets_of_an_openapi_source_are_masked() {
    let text = r#"
sources:
  a:
    openapi: "https://me:hunter2@x.example/openapi.json?key=hunter2"
    base_url: "https://me:hunter2@x.example"
    headers: { X-Key: hunter2 }
    variables: { account: hunter2 }
    allow_refs: ["https://me:hunter2@y.example/"]
    auth: { schemes: { a: { oauth2: { token_url: "https://id.example?k=hunter2", client_id: hunter2, client_secret: hunter2 } }, b: { bearer: hunter2 } } }
"#;
    let shown = show::show_config(&parse_toolcrib(text).unwrap());
    assert!(!shown.to_string().contains("hunter2"), "{shown}");
    insta::assert_snapshot!(shown["sources"]["a"].to_string(), @r#"{"openapi":"https://***@x.example/openapi.json?key=***","base_url":"https://***@x.example","allow_refs":["https://***@y.example/"],"headers":{"X-Key":"***"},"variables":{"account":"***"},"auth":{"schemes":{"a":{"oauth2":{"token_url":"https://id.example?k=***","client_id":"***","client_secret":"***"}},"b":{"bearer":"***"}}},"origin":"toolcrib.yaml:3"}"#);
}

#[test]
fn trust_covers_document_credentials_and_targets_of_an_api() {
    let file = |keys: &str| {
        let config = parse_toolcrib(&format!("sources: {{ a: {{ {keys} }} }}")).unwrap();
        TrustedFile::new(&config, std::collections::BTreeMap::new())
    };
    let before = file("openapi: a.yaml, auth: { bearer: '${env:T}' }");
    assert_eq!(before, file("auth: { bearer: '${env:T}' }, openapi: ./a.yaml, ttl: 5m"));
    for other in [
        "openapi: b.yaml, auth: { bearer: '${env:T}' }",
        "openapi: a.yaml, auth: { bearer: '${env:U}' }",
        "openapi: a.yaml, auth: { bearer: '${env:T}' }, base_url: http://x",
        "openapi: a.yaml, auth: { bearer: '${env:T}' }, headers: { X: '${env:U}' }",
        "openapi: a.yaml, auth: { bearer: '${env:T}' }, variables: { host: x }",
        "openapi: a.yaml, auth: { bearer: '${env:T}' }, allow_private: true",
        "workflow: a.yaml",
    ] {
        assert_ne!(before.uncovered_keys(&file(other)), Vec::<String>::new(), "{other}");
    }
}
