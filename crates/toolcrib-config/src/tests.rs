use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;
use toolcrib_core::access_rules::AccessRules;
use toolcrib_core::policy::{Rule, Rules, Verdict};
use toolcrib_core::source::{
    ArgumentValidation, Auth, BuiltinSource, KeyLocation, Lifecycle, OnConflict, OpenApiSource, PollSettings,
    ProtocolVersion, RemoteSource, ResultText, SourceKind, StdioSource, WorkflowSource,
};

use super::*;

mod documentation;
mod error_messages;
mod identity;
mod openapi;
mod round_trip;

const SAMPLE: &str = r#"sources:
  files:   { command: npx, args: [-y, "@modelcontextprotocol/server-filesystem", .], env: { LOG: debug }, cwd: . }
  docs:    { url: "https://docs.example.com/mcp", headers: { Authorization: "Bearer ${env:DOCS_TOKEN}" } }
  old:     { url: "https://old.example.com/sse", transport: sse }
  shop:    { openapi: ./shop.yaml, base_url: "https://shop.example.com", auth: { bearer: "${env:SHOP_TOKEN}" }, include: ["orders*"], exclude: ["*delete*"] }
  core:    { builtin: all }
defaults:  { ttl: 5m, connect_timeout: 5s, first_start_timeout: 120s, discovery_timeout: 30s, call_timeout: 60s, idle: 5m, result_limit: 256KiB, on_conflict: exclude }
expose:    { mode: auto, full_below_tokens: 4000, essential: ["github__create_issue"], prefix: true }
"#;

fn parse_toolcrib(text: &str) -> Result<Config, Vec<ConfigDiagnostic>> {
    Config::parse(text, "toolcrib.yaml", Path::new("/p"), Syntax::Yaml, ConfigDialect::Toolcrib)
}

fn source_id(id: &str) -> SourceId {
    SourceId::parse(id).unwrap()
}

fn string_map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// All messages of a file: its errors, or else the errors of its sources and its warnings.
fn all_messages(outcome: Result<Config, Vec<ConfigDiagnostic>>) -> String {
    let diagnostics = match outcome {
        Err(errors) => errors,
        Ok(config) => {
            let source_errors = config.sources.into_iter().filter_map(|configured| configured.source.err()).flatten();
            source_errors.chain(config.warnings).collect()
        }
    };
    diagnostics.iter().map(ConfigDiagnostic::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_sample_of_the_contract_is_parsed() {
    let config = parse_toolcrib(SAMPLE).unwrap();
    let kinds: Vec<_> = config
        .sources
        .iter()
        .map(|configured| (configured.id.as_str(), configured.line, configured.source.as_ref().ok().map(|s| &s.kind)))
        .collect();
    let files = SourceKind::Stdio(StdioSource {
        command: "npx".into(),
        args: strings(&["-y", "@modelcontextprotocol/server-filesystem", "."]),
        env: string_map(&[("LOG", "debug")]),
        cwd: Some("/p".into()),
        inherit_env: vec![],
    });
    let docs = SourceKind::Http(RemoteSource {
        url: "https://docs.example.com/mcp".into(),
        headers: string_map(&[("Authorization", "Bearer ${env:DOCS_TOKEN}")]),
        auth: None,
    });
    let old = SourceKind::Sse(RemoteSource { url: "https://old.example.com/sse".into(), ..RemoteSource::default() });
    let shop = SourceKind::OpenApi(OpenApiSource {
        document: "/p/shop.yaml".into(),
        base_url: Some("https://shop.example.com".into()),
        auth: Some(Auth::Bearer("${env:SHOP_TOKEN}".into())),
        include: strings(&["orders*"]),
        exclude: strings(&["*delete*"]),
        ..OpenApiSource::default()
    });
    let core = SourceKind::Builtin(BuiltinSource { tools: strings(&["all"]), ..BuiltinSource::default() });
    assert_eq!(
        kinds,
        [
            ("files", 2, Some(&files)),
            ("docs", 3, Some(&docs)),
            ("old", 4, Some(&old)),
            ("shop", 5, Some(&shop)),
            ("core", 6, Some(&core)),
        ]
    );
    assert_eq!(all_messages(Ok(config.clone())), "");
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    assert_eq!(
        config.defaults,
        SourceSettings {
            ttl: seconds(300),
            connect_timeout: seconds(5),
            first_start_timeout: seconds(120),
            discovery_timeout: seconds(30),
            call_timeout: seconds(60),
            idle: seconds(300),
            result_limit: Some(262_144),
            on_conflict: Some(OnConflict::Exclude),
            ..SourceSettings::default()
        }
    );
    assert_eq!(config.expose, Expose { essential: strings(&["github__create_issue"]), ..Expose::default() });
    let patterns = |text: &str| parse_toolcrib(text).unwrap().expose.essential_patterns;
    assert_eq!(patterns("expose: { essential_patterns: [invoice, 'crm__*'] }"), strings(&["invoice", "crm__*"]));
    assert_eq!(patterns("expose: { essential_patterns: [] }"), strings(&[]));
    assert_eq!(patterns("expose: { mode: auto }").len(), 7);
    assert_eq!(config.origins["defaults.ttl"].to_string(), "toolcrib.yaml:7");
}

#[test]
fn every_setting_of_a_source_is_parsed() {
    let text = r#"
sources:
  My-Server:
    command: ./bin/server
    args: [--port, 8080, --verbose, yes]
    env: { N: 1.10, ON: on, NOTHING: , T: "${env:T}" }
    inherit_env: [AWS_PROFILE]
    enabled: no
    title: Mine
    tags: [a, b]
    essential: [get_*]
    tools: { "delete_*": deny, "create_*": ask, x: hide, "*": allow }
    lifecycle: per_client
    on_conflict: keep
    results: raw
    protocol: 2025-11-25
    result_limit: 1MB
    ttl: 0s
    call_timeout: 1h30m
  local:
    builtin: [url_fetch, file_read]
    roots: [., ../b, /c, ~/d]
    allow_private: true
"#;
    let config = parse_toolcrib(text).unwrap();
    let rule = |glob: &str, verdict| Rule { glob: glob.into(), verdict };
    let mine = Source {
        id: source_id("my_server"),
        kind: SourceKind::Stdio(StdioSource {
            command: "/p/bin/server".into(),
            args: strings(&["--port", "8080", "--verbose", "yes"]),
            env: string_map(&[("N", "1.10"), ("ON", "on"), ("T", "${env:T}")]),
            cwd: None,
            inherit_env: strings(&["AWS_PROFILE"]),
        }),
        settings: SourceSettings {
            enabled: Some(false),
            title: Some("Mine".into()),
            tags: strings(&["a", "b"]),
            essential: strings(&["get_*"]),
            tools: Rules::new(vec![
                rule("delete_*", Verdict::Deny),
                rule("create_*", Verdict::Ask),
                rule("x", Verdict::Hide),
                rule("*", Verdict::Allow),
            ]),
            lifecycle: Some(Lifecycle::PerClient),
            on_conflict: Some(OnConflict::Keep),
            results: Some(ResultText::Raw),
            protocol: Some(ProtocolVersion::V2025_11_25),
            result_limit: Some(1_000_000),
            ttl: Some(Duration::ZERO),
            call_timeout: Some(Duration::from_secs(5400)),
            ..SourceSettings::default()
        },
    };
    let local = SourceKind::Builtin(BuiltinSource {
        tools: strings(&["url_fetch", "file_read"]),
        roots: strings(&["/p", "/b", "/c", "${env:HOME}/d"]),
        allow_private: true,
    });
    assert_eq!(config.sources[0].source, Ok(mine));
    assert_eq!((config.sources[0].original_name.as_str(), config.sources[0].line), ("My-Server", 3));
    assert_eq!(config.sources[1].source.as_ref().map(|source| &source.kind), Ok(&local));
    assert_eq!(config.warnings, []);
}

#[test]
fn disable_is_another_word_for_hide() {
    let config = parse_toolcrib("sources: { git: { command: x, tools: { drop: disable } } }").unwrap();
    let rules = &config.sources[0].source.as_ref().unwrap().settings.tools;
    assert_eq!(rules.verdict(&["drop"], Verdict::Allow), Verdict::Hide);
}

#[test]
fn every_authentication_method_is_parsed() {
    for (auth, expected) in [
        ("{ bearer: 123 }", Auth::Bearer("123".into())),
        ("{ basic: { user: me, password: p } }", Auth::Basic { user: "me".into(), password: "p".into() }),
        (
            "{ api_key: { name: X-Key, in: query, value: v } }",
            Auth::ApiKey { name: "X-Key".into(), location: Some(KeyLocation::Query), value: "v".into() },
        ),
    ] {
        let config = parse_toolcrib(&format!("sources: {{ a: {{ url: http://x, auth: {auth} }} }}")).unwrap();
        let kind =
            SourceKind::Http(RemoteSource { url: "http://x".into(), auth: Some(expected), ..RemoteSource::default() });
        assert_eq!(config.sources[0].source.as_ref().unwrap().kind, kind);
    }
}

#[test]
fn the_same_config_may_be_yaml_toml_or_json() {
    let yaml = parse_toolcrib("sources: { a: { command: x, env: { N: 1 } } }\nexpose: { mode: full }").unwrap();
    let parse = |text, syntax| {
        let mut config =
            Config::parse(text, "toolcrib.yaml", Path::new("/p"), syntax, ConfigDialect::Toolcrib).unwrap();
        config.sources[0].line = 1;
        config.origins = yaml.origins.clone();
        config
    };
    let toml = "[expose]\nmode = 'full'\n[sources.a]\ncommand = 'x'\n[sources.a.env]\nN = 1";
    let json = "{ \"$schema\": \"x\", \"mcpServers\": { \"a\": { \"command\": \"x\", \"env\": { \"N\": 1 } } }, // c\n \
                \"expose\": { \"mode\": \"full\" }, }";
    assert_eq!(parse(toml, Syntax::Toml), yaml);
    assert_eq!(parse(json, Syntax::Json), yaml);
}

/// The configuration of a file without content.
fn empty_file() -> Config {
    Config { replaces_rules: true, ..Config::default() }
}

#[test]
fn an_empty_file_is_an_empty_config() {
    for text in ["", "# nothing", "{}", "sources:", "sources: {}\ndefaults:\nexpose: ~"] {
        assert_eq!(parse_toolcrib(text), Ok(empty_file()), "{text}");
    }
}

#[test]
fn a_project_config_wins_over_the_user_config() {
    let upper =
        parse_toolcrib("sources: { a: { command: up } }\ndefaults: { ttl: 1m }\nexpose: { prefix: false }").unwrap();
    let lower = Config::parse(
        "sources: { A: { url: http://x }, b: { command: low } }\ndefaults: { ttl: 9m, idle: 2m }\n\
         expose: { prefix: true, mode: search }",
        "user.yaml",
        Path::new("/u"),
        Syntax::Yaml,
        ConfigDialect::Toolcrib,
    )
    .unwrap();
    let merged = upper.merge_over(lower);
    let places: Vec<_> = merged.sources.iter().map(|d| (d.id.as_str(), d.file.as_str())).collect();
    assert_eq!(places, [("a", "toolcrib.yaml"), ("b", "user.yaml")]);
    assert_eq!(merged.defaults.ttl, Some(Duration::from_secs(60)));
    assert_eq!(merged.defaults.idle, Some(Duration::from_secs(120)));
    assert_eq!(merged.expose, Expose { mode: ExposeMode::Search, prefix: false, ..Expose::default() });
    let origins: Vec<_> = merged.origins.iter().map(|(key, origin)| format!("{key} {origin}")).collect();
    assert_eq!(
        origins,
        [
            "defaults.idle user.yaml:2",
            "defaults.ttl toolcrib.yaml:2",
            "expose.mode user.yaml:3",
            "expose.prefix toolcrib.yaml:3",
        ]
    );
}

#[test]
fn a_file_of_another_client_works_unchanged() {
    let text = r#"{
  "mcpServers": {
    "a": { "type": "stdio", "command": "npx", "args": [], "disabled": true, "autoApprove": ["x"] },
    "b": { "type": "streamable-http", "url": "http://x/${NAME}", "env": {"A": "1"} },
    "c": { "type": "sse", "url": "http://x", "headers": {"K": "${workspaceFolder}"} }
  },
  "theme": "dark",
  "inputs": []
}"#;
    let config = Config::read(text, "x/.mcp.json", Path::new("/p")).unwrap();
    assert_eq!(Config::read(text, "x/servers.json", Path::new("/p")).unwrap().sources.len(), 3);
    let kinds: Vec<_> =
        config.valid_sources().map(|source| (source.kind.transport(), source.settings.enabled)).collect();
    assert_eq!(kinds, [("stdio", Some(false)), ("http", None), ("sse", None)]);
    assert_eq!(
        all_messages(Ok(config)),
        "x/.mcp.json:3: mcpServers.a: unknown key `autoApprove`; ignored\n\
         x/.mcp.json:4: mcpServers.b: `env` belongs to a source with `command`, not `url`; ignored\n\
         x/.mcp.json:7: unknown key `theme`; ignored\n\
         x/.mcp.json:8: inputs: prompting is not supported; use `${env:NAME}` instead of an input"
    );
}

proptest! {
    #[test]
    fn parsing_never_panics(text in "\\PC*", lines in "([a-z:{}\\[\\]\", \\n\\-&*<!|>#=.']|sources|command|url|: ){0,60}") {
        for syntax in [Syntax::Yaml, Syntax::Toml, Syntax::Json] {
            for dialect in [ConfigDialect::Toolcrib, ConfigDialect::Client] {
                for text in [&text, &lines, &format!("sources: {lines}")] {
                    let _ = Config::parse(text, "f", Path::new("/p"), syntax, dialect);
                }
            }
        }
        for client in McpClientKind::ALL {
            let _ = client.read(&lines, "f", Path::new("/p"), Path::new("/p"));
        }
    }
}

#[test]
fn paths_of_file_references_are_relative_to_the_configuration() {
    let text =
        "sources: { a: { command: x, env: { T: \"${file:secret.txt}\", U: \"${file:~/u}\", V: \"${file:/v}\" } } }";
    let config = Config::parse(text, "toolcrib.yaml", Path::new("/p"), Syntax::Yaml, ConfigDialect::Toolcrib).unwrap();
    let SourceKind::Stdio(stdio) = &config.valid_sources().next().unwrap().kind else { panic!() };
    let values: Vec<&str> = stdio.env.values().map(String::as_str).collect();
    assert_eq!(values, ["${file:/p/secret.txt}", "${file:~/u}", "${file:/v}"]);
}

#[test]
fn nodes_are_labels_without_duplicates() {
    let config = parse_toolcrib("sources: { gpu: { command: x, nodes: [b.example, a_1, b.example] } }").unwrap();
    let settings = &config.valid_sources().next().unwrap().settings;
    assert_eq!(settings.nodes, strings(&["b.example", "a_1"]));
    assert!(settings.is_allowed_on("a_1") && !settings.is_allowed_on("c"));
    assert!(SourceSettings::default().is_allowed_on("c"));
}

#[test]
fn the_store_of_the_upper_file_wins_and_is_shown_without_its_password() {
    let read = |text: &str| parse_toolcrib(text).unwrap();
    let upper = read("sources: {}\nstore: \"postgres://me:hunter2@db/x\"");
    let lower = read("store: data");
    let merged = read("{}").merge_over(lower.clone());
    assert_eq!(crate::show::show_config(&merged)["store"], json!({ "value": "/p/data", "origin": "toolcrib.yaml:1" }));
    let merged = upper.merge_over(lower);
    let shown = crate::show::show_config(&merged);
    assert_eq!(shown["store"], json!({ "value": "postgres://***@db/x", "origin": "toolcrib.yaml:2" }));
    assert_eq!(crate::show::show_config(&read("{}"))["store"], json!({ "value": null, "origin": "default" }));
}

#[test]
fn warm_is_parsed_and_the_upper_file_wins() {
    let read = |text: &str| parse_toolcrib(text).unwrap();
    assert_eq!(read("sources: {}").warm, WarmPolicy::Demand);
    for warm in WarmPolicy::ALL {
        assert_eq!(read(&format!("warm: {}", warm.as_str())).warm, warm);
    }
    assert_eq!(read("warm: demand").merge_over(read("warm: start")).warm, WarmPolicy::Demand);
    assert_eq!(read("sources: {}").merge_over(read("warm: start")).warm, WarmPolicy::Start);
    assert_eq!(
        show::show_config(&read("\nwarm: client"))["warm"],
        json!({ "value": "client", "origin": "toolcrib.yaml:2" })
    );
}

#[test]
fn a_project_can_restrict_a_user_source_and_never_widen_it() {
    let lower = || {
        Config::parse(
            "sources:\n  a: { command: x, tools: { 'delete_*': ask } }\n  off: { command: y, enabled: false }",
            "user.yaml",
            Path::new("/u"),
            Syntax::Yaml,
            ConfigDialect::Toolcrib,
        )
        .unwrap()
    };
    let source = |text: &str, id: &str| -> Result<Source, String> {
        let merged = parse_toolcrib(text).unwrap().merge_over(lower());
        let configured = merged.sources.into_iter().find(|configured| configured.id.as_str() == id).unwrap();
        configured.source.map_err(|errors| errors[0].to_string())
    };
    let verdict = |source: &Source, tool: &str| source.settings.tools.verdict(&[tool], Verdict::Allow);

    let narrowed =
        source("sources: { a: { enabled: false, tools: { 'delete_*': allow, create: deny } } }", "a").unwrap();
    assert_eq!((narrowed.kind.transport(), narrowed.settings.enabled), ("stdio", Some(false)));
    assert_eq!(verdict(&narrowed, "delete_x"), Verdict::Ask, "`allow` in a narrowing lifts no restriction");
    assert_eq!(verdict(&narrowed, "create"), Verdict::Deny);

    assert_eq!(source("sources: { off: { enabled: true } }", "off").unwrap().settings.enabled, Some(false));
    let warnings = parse_toolcrib("sources:\n  off: { enabled: true }").unwrap().merge_over(lower()).warnings;
    assert_eq!(
        warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["toolcrib.yaml:2: sources.off.enabled: cannot enable a source that `user.yaml` disables"]
    );

    let redefined = source("sources: { a: { url: 'http://x', tools: { '*': allow, create: deny } } }", "a").unwrap();
    assert_eq!(redefined.kind.transport(), "http");
    assert_eq!(verdict(&redefined, "delete_x"), Verdict::Ask, "the user's rules still apply");
    assert_eq!(verdict(&redefined, "create"), Verdict::Deny);

    assert_eq!(
        source("sources:\n  b: { enabled: false }", "b").unwrap_err(),
        "toolcrib.yaml:2: sources.b: needs one of `command`, `url`, `openapi`, `workflow` or `builtin`, or a source `b` \
         in your user configuration to restrict"
    );
    assert!(
        parse_toolcrib("sources: { a: { enabled: false } }").unwrap().sources[0].source.is_err(),
        "a narrowing alone is not a source"
    );
    assert!(source("sources: { a: { tools: { x: maybe } } }", "a").unwrap_err().contains("found `maybe`"));
    let wrong = parse_toolcrib("sources: { a: { comand: x, tools: { 'delete_*': deny } } }").unwrap();
    let over_wrong = parse_toolcrib("sources: { a: { command: x } }").unwrap().merge_over(wrong);
    assert!(over_wrong.sources[0].source.is_err(), "unreadable rules of the lower file fail closed");
}

#[test]
fn identity_and_private_sources_are_parsed_and_the_upper_file_wins() {
    let read = |text: &str| parse_toolcrib(text).unwrap();
    assert_eq!(read("sources: {}").identity.loopback, LoopbackAccess::Owner);
    for loopback in LoopbackAccess::ALL {
        assert_eq!(read(&format!("identity: {{ loopback: {} }}", loopback.as_str())).identity.loopback, loopback);
    }
    let open = || read("\nidentity:\n  loopback: open\nallow_private_sources: true");
    assert_eq!(read("identity: { loopback: owner }").merge_over(open()).identity.loopback, LoopbackAccess::Owner);
    assert!(!read("allow_private_sources: false").merge_over(open()).allow_private_sources);
    let merged = read("identity: {}").merge_over(open());
    assert!(merged.identity.loopback == LoopbackAccess::Open && merged.allow_private_sources);
    let shown = show::show_config(&merged);
    assert_eq!(shown["identity"]["loopback"], json!({ "value": "open", "origin": "toolcrib.yaml:3" }));
    assert_eq!(shown["identity"]["issuers"], json!({ "value": [], "origin": "default" }));
    assert_eq!(shown["allow_private_sources"], json!({ "value": true, "origin": "toolcrib.yaml:4" }));
}

#[test]
fn references_are_resolved_in_every_scalar() {
    let lookup = |text: &str| {
        reference::resolve_references(text, |reference| match reference {
            reference::Reference::Env { name: "ON", .. } => Ok("true".to_owned()),
            reference::Reference::Env { name: "TIME", .. } => Ok("90s".to_owned()),
            reference::Reference::Env { name: "COUNT", .. } => Ok("17".to_owned()),
            reference::Reference::Env { name: "WORD", .. } => Ok("per_client".to_owned()),
            reference::Reference::Env { default: Some(default), .. } => Ok((*default).to_owned()),
            reference::Reference::Env { .. } | reference::Reference::File { .. } => {
                Err(format!("`{reference}` is not set"))
            }
        })
    };
    let read = |text: &str| Config::read_resolved(text, "toolcrib.yaml", Path::new("/p"), &lookup);
    let config = read(
        "sources:\n  a: { command: x, args: [\"${env:ON}\"], enabled: \"${env:ON}\", idle: \"${env:TIME}\", tags: [\"t${env:COUNT}\"], tools: { \"*\": \"${env:V:-ask}\" } }\n\
         \u{20} b: { openapi: ./x.yaml, allow_private: \"${env:ON}\", include: [\"${env:G:-a*}\"] }\n\
         \u{20} c: { builtin: \"${env:B:-all}\" }\n\
         defaults: { ttl: \"${env:TIME}\", result_limit: \"${env:COUNT}KiB\", lifecycle: \"${env:WORD}\" }\n\
         expose: { full_below_tokens: \"${env:COUNT}\", prefix: \"${env:OFF:-false}\", mode: \"${env:M:-full}\" }\n",
    )
    .unwrap();
    assert_eq!(config.defaults.ttl, Some(Duration::from_secs(90)));
    assert_eq!(
        (config.defaults.result_limit, config.defaults.lifecycle),
        (Some(17 * 1024), Some(Lifecycle::PerClient))
    );
    assert_eq!(
        (config.expose.full_below_tokens, config.expose.prefix, config.expose.mode),
        (17, false, ExposeMode::Full)
    );
    let sources: Vec<&Source> = config.valid_sources().collect();
    let [a, b, c] = sources.as_slice() else { panic!("{:?}", config.sources) };
    // Settings of a source stay references in its definition; each process resolves them.
    assert_eq!((a.settings.enabled, a.settings.idle), (None, None));
    assert_eq!(a.settings.references, string_map(&[("enabled", "${env:ON}"), ("idle", "${env:TIME}")]));
    let (resolved, errors) = resolve_settings(&a.settings, &lookup);
    assert_eq!((resolved.enabled, resolved.idle, errors.len()), (Some(true), Some(Duration::from_secs(90)), 0));
    assert_eq!((&a.settings.tags, a.settings.tools.is_empty()), (&strings(&["t17"]), false));
    assert!(matches!(&a.kind, SourceKind::Stdio(stdio) if stdio.args == ["${env:ON}"]), "texts are resolved at use");
    assert!(matches!(&b.kind, SourceKind::OpenApi(api) if api.allow_private && api.include == ["a*"]));
    assert!(matches!(&c.kind, SourceKind::Builtin(builtin) if builtin.tools == ["all"]));
    let exported = export_json(&[a], &AccessRules::default(), Secrets::Masked);
    assert_eq!(exported["sources"]["a"]["enabled"], "${env:ON}");

    let faults = read("sources:\n  a:\n    command: x\n    ttl: \"${env:NONE}\"\n  b: { command: x, call_timeout: \"${env:COUNT}\" }\n  c: { command: x }\n").unwrap();
    let messages: Vec<String> = faults
        .sources
        .iter()
        .filter_map(|source| source.source.as_ref().err())
        .flatten()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        messages,
        [
            "toolcrib.yaml:4: sources.a.ttl: `${env:NONE}` is not set",
            "toolcrib.yaml:5: sources.b.call_timeout: expected a duration such as `30s` or `5m`, found another value of `${env:COUNT}`",
        ]
    );
    assert_eq!(faults.valid_sources().count(), 1);
    assert_eq!(read("expose: { prefix: \"${env:COUNT}\" }\n").unwrap_err()[0].line, 1);
}

#[test]
fn disabled_in_a_clients_file_is_read_or_fails_the_source() {
    let lookup = |text: &str| {
        let value = |reference: &reference::Reference<'_>| match reference {
            reference::Reference::Env { name: "ON", .. } => Ok("true".to_owned()),
            reference::Reference::Env { name: "OFF", .. } => Ok("0".to_owned()),
            reference::Reference::Env { default: Some(default), .. } => Ok((*default).to_owned()),
            reference::Reference::Env { .. } | reference::Reference::File { .. } => {
                Err(format!("`{reference}` cannot be resolved"))
            }
        };
        reference::resolve_references(text, value)
    };
    let enabled = |disabled: &str| {
        let text = format!(r#"{{ "mcpServers": {{ "a": {{ "command": "x", "disabled": {disabled} }} }} }}"#);
        let config = Config::read_resolved(&text, ".mcp.json", Path::new("/p"), &lookup).unwrap();
        assert_eq!(config.warnings, []);
        config.sources[0].source.clone().map(|source| source.settings.enabled).map_err(|errors| errors[0].to_string())
    };
    for disabled in ["true", "\"true\"", "1", "\"${ON}\"", "\"${env:ON}\"", "\"${X:-true}\""] {
        assert_eq!(enabled(disabled), Ok(Some(false)), "{disabled}");
    }
    for disabled in ["false", "\"no\"", "\"${OFF}\""] {
        assert_eq!(enabled(disabled), Ok(Some(true)), "{disabled}");
    }
    assert_eq!(enabled("null"), Ok(None));
    for (disabled, message) in [
        ("\"maybe\"", "expected true or false, found text"),
        ("[]", "expected true or false, found a list"),
        ("\"${MISSING}\"", "`${env:MISSING}` cannot be resolved"),
    ] {
        assert_eq!(enabled(disabled), Err(format!(".mcp.json:1: mcpServers.a.disabled: {message}")));
    }
}

#[test]
fn a_rule_may_have_the_name_that_is_shown() {
    let rules = |tools: &str| {
        let text = format!("sources: {{ shop: {{ command: x, tools: {tools}, tags: [a, b, a] }} }}");
        let config = Config::read(&text, "toolcrib.yaml", Path::new("/p")).unwrap();
        let source = config.sources[0].source.clone().unwrap();
        assert_eq!(source.settings.tags, ["a", "b"]);
        source.settings.tools
    };
    let verdict = |tools: &str, name: &str| rules(tools).verdict(&[name], Verdict::Allow);
    assert_eq!(verdict("{ shop__wipe: hide }", "wipe"), Verdict::Hide);
    assert_eq!(verdict("{ shop__wipe: hide }", "shop__wipe"), Verdict::Hide);
    assert_eq!(verdict("{ shop__wipe: hide, wipe: allow }", "wipe"), Verdict::Hide);
    assert_eq!(verdict("{ 'shop__*': deny, 'get_*': allow }", "get_x"), Verdict::Allow);
    assert_eq!(verdict("{ 'shop__*': deny, 'get_*': allow }", "set_x"), Verdict::Deny);
    assert_eq!(verdict("{ other__wipe: hide }", "wipe"), Verdict::Allow);
}

#[test]
fn limits_are_read_and_the_lower_one_of_two_files_applies() {
    let read = |text: &str| Config::read(text, "toolcrib.yaml", Path::new("/")).unwrap();
    let limits = |calls_per_minute, concurrent_calls| CallLimits { calls_per_minute, concurrent_calls };
    let user =
        || read("limits: { calls_per_minute: 60 }\nsources: { a: { command: x, limits: { concurrent_calls: 2 } } }");
    assert_eq!((user().limits, read("limits: {}").limits), (limits(Some(60), None), limits(None, None)));
    let project = read(
        "limits:\n  calls_per_minute: 600\n  concurrent_calls: 4\n\
         sources: { a: { command: x, ttl: \"${env:TTL}\", limits: { concurrent_calls: 8, calls_per_minute: 9 } } }",
    );
    let merged = project.merge_over(Config { ..user() });
    assert_eq!(merged.limits, limits(Some(60), Some(4)));
    let origins = ["calls_per_minute", "concurrent_calls"].map(|key| merged.origins[&format!("limits.{key}")].line);
    assert_eq!(origins, [1, 3]);
    let source = merged.sources[0].source.as_ref().unwrap();
    assert_eq!(source.settings.limits, limits(Some(9), Some(2)));
    // Regression: a setting by reference must not drop the limits.
    let (resolved, errors) = crate::resolve_settings(&source.settings, &|_| Ok("1m".into()));
    assert_eq!((resolved.limits, errors), (limits(Some(9), Some(2)), Vec::new()));
}
