//! Display and export of configurations: exports parse back, secrets are masked.

use toolcrib_core::limits::CallLimits;

use super::*;
use crate::show::show_config;

fn any_words() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(".{1,12}", 0..4)
}

fn any_map() -> impl Strategy<Value = BTreeMap<String, String>> {
    prop::collection::btree_map("[A-Za-z][A-Za-z0-9_ #:'\"-]{0,8}", any::<String>(), 0..4)
}

/// Pattern of valid header values.
const HEADER_VALUE: &str = "[^\\p{Cc}]{0,12}";

fn any_kind() -> impl Strategy<Value = SourceKind> {
    let path = prop::option::of("/[a-z .\u{e9}]{0,8}");
    let stdio = ("[a-z]{1,8}|/[a-z/]{1,8}|/p/\\./\\$\\{env:X\\}", any_words(), any_map(), path, any_words()).prop_map(
        |(command, args, env, cwd, inherit_env)| {
            SourceKind::Stdio(StdioSource { command, args, env, cwd, inherit_env })
        },
    );
    let plain = prop_oneof![
        HEADER_VALUE.prop_map(Auth::Bearer),
        any::<(String, String)>().prop_map(|(user, password)| Auth::Basic { user, password }),
        ("[^\\p{Cc}]{1,12}", HEADER_VALUE).prop_map(|(name, value)| Auth::ApiKey {
            name,
            location: Some(KeyLocation::Cookie),
            value
        }),
    ]
    .boxed();
    let headers = prop::collection::btree_map("[A-Za-z][A-Za-z0-9_'#-]{0,8}", HEADER_VALUE, 0..4);
    let remote = ("https?://[a-z]{1,8}/[a-z?=&]{0,8}", headers, prop::option::of(plain.clone()), any::<bool>())
        .prop_map(|(url, headers, auth, sse)| {
            let remote = RemoteSource { url, headers, auth };
            if sse { SourceKind::Sse(remote) } else { SourceKind::Http(remote) }
        });
    let roots = prop::collection::vec("/[a-z]{0,5}", 0..3);
    let builtin = (any_words(), roots, any::<bool>())
        .prop_map(|(tools, roots, allow_private)| SourceKind::Builtin(BuiltinSource { tools, roots, allow_private }));
    let workflow = "/[a-z .]{1,8}".prop_map(|document| SourceKind::Workflow(WorkflowSource { document }));
    prop_oneof![stdio, remote, any_openapi(plain), workflow, builtin]
}

fn any_openapi(plain: BoxedStrategy<Auth>) -> impl Strategy<Value = SourceKind> {
    let secrets = any::<(String, String)>();
    let oauth2 =
        ("https?://[a-z]{1,8}", secrets, any_words()).prop_map(|(token_url, (client_id, client_secret), scopes)| {
            Auth::Oauth2 { token_url, client_id, client_secret, scopes }
        });
    let single = prop_oneof![plain, oauth2].boxed();
    let schemes = prop::collection::btree_map("[A-Za-z][a-z_. ]{0,5}", single.clone(), 1..3).prop_map(Auth::Schemes);
    // A header that `auth` sets too is an error, so these names never collide with one.
    let headers = prop::collection::btree_map("X-[a-z]{1,5}", HEADER_VALUE, 0..3);
    let interval = prop::option::of((100u64..10_000_000).prop_map(Duration::from_millis));
    let poll =
        ("/[a-z{}$#.]{0,9}", "(/[a-z]{1,3}){0,2}", prop::option::of("(/[a-z]{1,3}){0,2}"), any_words(), interval);
    let poll = poll.prop_map(|(url, status, result, failed, interval)| {
        let done = vec!["done".to_owned(), "true".to_owned()];
        PollSettings { url, status, result, done, failed, interval }
    });
    let addresses = (
        "/[a-z .]{1,8}|https?://[a-z]{1,8}/[a-z?=&]{0,8}",
        prop::option::of("https?://[a-z]{1,8}/[a-z{} ]{0,8}|\\{\\{ [a-z]{1,5} \\}\\}/[a-z]{0,3}"),
    );
    let lists = [
        any_words().boxed(),
        any_words().boxed(),
        any_words().boxed(),
        prop::collection::vec("/[a-z]{0,5}", 0..3).boxed(),
    ];
    let methods = prop::sample::subsequence(vec!["HEAD".to_owned(), "OPTIONS".to_owned(), "TRACE".to_owned()], 0..=3);
    let polls = prop::collection::btree_map("[a-z_*]{1,6}", poll, 0..2);
    let rest = (methods, any::<bool>(), any_map(), polls);
    (addresses, lists, headers, prop::option::of(prop_oneof![single, schemes]), rest).prop_map(
        |((document, base_url), [include, exclude, include_tags, allow_refs], headers, auth, rest)| {
            let (methods, allow_private, variables, poll) = rest;
            SourceKind::OpenApi(OpenApiSource {
                document,
                base_url,
                include,
                exclude,
                include_tags,
                methods,
                headers,
                auth,
                allow_private,
                allow_refs,
                variables,
                poll,
            })
        },
    )
}

fn any_settings() -> impl Strategy<Value = SourceSettings> {
    let time = || prop::option::of((1u64..10_000_000).prop_map(Duration::from_millis));
    let verdict = prop::sample::select(Verdict::ALL.to_vec());
    // A pattern with the prefix of its source is read as two rules.
    let glob = "[a-z_*?\"{},:]{1,8}".prop_filter("without a prefix", |glob| !glob.contains("__"));
    let rules = prop::collection::btree_map(glob, verdict, 0..4)
        .prop_map(|rules| Rules::new(rules.into_iter().map(|(glob, verdict)| Rule { glob, verdict }).collect()));
    let lifecycle = prop::option::of(prop::sample::select(vec![Lifecycle::Shared, Lifecycle::PerClient]));
    let results = prop::option::of(prop::sample::select(vec![ResultText::Clean, ResultText::Raw]));
    let protocol = prop::option::of(prop::sample::select(ProtocolVersion::ALL.to_vec()));
    let validate =
        prop::option::of(prop::sample::select(vec![ArgumentValidation::Strict, ArgumentValidation::Lenient]));
    let title = prop::option::of("[^ \\s].{0,9}");
    let limit = || prop::option::of(1..=CallLimits::MAX);
    let limits = (limit(), limit())
        .prop_map(|(calls_per_minute, concurrent_calls)| CallLimits { calls_per_minute, concurrent_calls });
    (
        time(),
        time(),
        prop::option::of(1u64..u64::MAX),
        prop::option::of(any::<bool>()),
        any_words(),
        rules,
        (lifecycle, results, protocol, validate, limits),
        (title, prop::collection::btree_set("[A-Za-z0-9._-]{1,6}", 0..3)),
    )
        .prop_map(
            |(
                ttl,
                call_timeout,
                result_limit,
                enabled,
                tags,
                tools,
                (lifecycle, results, protocol, validate, limits),
                (title, nodes),
            )| {
                SourceSettings {
                    ttl,
                    call_timeout,
                    result_limit,
                    enabled,
                    tags,
                    tools,
                    lifecycle,
                    results,
                    protocol,
                    validate,
                    limits,
                    title,
                    nodes: nodes.into_iter().collect(),
                    ..SourceSettings::default()
                }
            },
        )
}

proptest! {
    #[test]
    fn an_export_reads_back_to_the_same_sources(kinds in prop::collection::vec((any_kind(), any_settings()), 0..4)) {
        let ids = ["a", "b_1", "null", "9"];
        let sources: Vec<Source> = kinds
            .into_iter()
            .zip(ids)
            .map(|((kind, mut settings), name)| {
                // A key of MCP sources alone.
                settings.protocol = settings.protocol.filter(|_| kind.name() == "mcp");
                Source { id: source_id(name), kind, settings }
            })
            .collect();
        let text = export(&sources.iter().collect::<Vec<_>>(), &AccessRules::default(), Secrets::Plain);
        let config = parse_toolcrib(&text).unwrap_or_else(|errors| panic!("{errors:?}\n{text}"));
        let masked = export(&sources.iter().collect::<Vec<_>>(), &AccessRules::default(), Secrets::Masked);
        let read = parse_toolcrib(&masked).map(|config| config.sources.iter().all(|configured| configured.source.is_ok()));
        prop_assert_eq!(read, Ok(true), "{}", masked);
        let mut sorted = sources;
        sorted.sort_by(|a, b| a.id.cmp(&b.id));
        let back: Vec<_> = config.sources.into_iter().map(|configured| configured.source).collect();
        prop_assert_eq!(back, sorted.into_iter().map(Ok).collect::<Vec<_>>(), "{}", text);
    }
}

#[test]
fn an_export_has_one_line_per_source() {
    let config = parse_toolcrib(
        "sources: { b: { url: 'http://x', auth: { bearer: '${env:T}' } }, a: { command: x, args: [-y], ttl: 90s, first_start_timeout: 3m } }",
    );
    let config = config.unwrap();
    assert_eq!(
        export(&config.valid_sources().collect::<Vec<_>>(), &AccessRules::default(), Secrets::Plain),
        "# Written by `toolcrib export --secrets`. It may hold secrets: keep it safe.\n\
         sources:\n  \
           a: { command: \"x\", args: [\"-y\"], ttl: \"90s\", first_start_timeout: \"3m\" }\n  \
           b: { url: \"http://x\", auth: { bearer: \"${env:T}\" } }\n"
    );
    assert_eq!(parse_toolcrib(&export(&[], &AccessRules::default(), Secrets::Plain)).unwrap(), super::empty_file());
}

#[test]
fn shown_configuration_has_origins_and_no_secrets() {
    let text = r#"sources:
  a: { command: x, args: [--token, hunter2], env: { KEY: hunter2, REF: "${env:T}" }, ttl: 1m }
  b: { url: "https://me:hunter2@x/mcp?key=hunter2", headers: { Authorization: "Bearer hunter2" }, auth: { api_key: { name: k, value: hunter2 } } }
  c: { command: [] }
  d: { url: "http://x", auth: { basic: { user: "${env:U}", password: hunter2 } } }
defaults: { ttl: 9m }
expose:
  essential: [x]
"#;
    let shown = show_config(&parse_toolcrib(text).unwrap());
    assert!(!shown.to_string().contains("hunter2"));
    let lines = ["sources", "defaults", "expose"].iter().flat_map(|section| {
        let keys = shown[section].as_object().unwrap().iter();
        keys.map(move |(key, value)| format!("{section}.{key} {value}"))
    });
    insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"), @r#"
    sources.a {"command":"x","args":["--token","***"],"env":{"KEY":"***","REF":"${env:T}"},"ttl":"1m","origin":"toolcrib.yaml:2"}
    sources.b {"url":"https://***@x/mcp?key=***","headers":{"Authorization":"Bearer ***"},"auth":{"api_key":{"name":"k","in":"header","value":"***"}},"origin":"toolcrib.yaml:3"}
    sources.c {"faults":["toolcrib.yaml:4: sources.c.command: expected text, found a list; the program goes into `command` and the rest into `args`"],"origin":"toolcrib.yaml:4"}
    sources.d {"url":"http://x","auth":{"basic":{"user":"${env:U}","password":"***"}},"origin":"toolcrib.yaml:5"}
    defaults.ttl {"value":"9m","origin":"toolcrib.yaml:6"}
    defaults.connect_timeout {"value":"5s","origin":"default"}
    defaults.first_start_timeout {"value":"2m","origin":"default"}
    defaults.discovery_timeout {"value":"30s","origin":"default"}
    defaults.call_timeout {"value":"1m","origin":"default"}
    defaults.idle {"value":"5m","origin":"default"}
    defaults.result_limit {"value":"256KiB","origin":"default"}
    defaults.on_conflict {"value":"exclude","origin":"default"}
    defaults.lifecycle {"value":"shared","origin":"default"}
    defaults.results {"value":"clean","origin":"default"}
    defaults.validate {"value":"strict","origin":"default"}
    defaults.trust_hints {"value":false,"origin":"default"}
    expose.mode {"value":"auto","origin":"default"}
    expose.full_below_tokens {"value":4000,"origin":"default"}
    expose.essential {"value":["x"],"origin":"toolcrib.yaml:8"}
    expose.essential_patterns {"value":["search","github","slack","confluence","jira","calendar","email"],"origin":"default"}
    expose.prefix {"value":true,"origin":"default"}
    "#);
}

#[test]
fn defaults_in_references_of_settings_survive_a_masked_export() {
    let keys = json!({
        "command": "npx", "env": { "TOKEN": "${env:TOKEN:-hunter2}" },
        "enabled": "${env:ON:-true}", "ttl": "${env:TTL:-10m}", "title": "${env:TITLE:-My server}",
    });
    let source = crate::parse_source("git", &keys, Path::new("/")).unwrap();
    let text = export(&[&source], &AccessRules::default(), Secrets::Masked);
    for kept in ["${env:ON:-true}", "${env:TTL:-10m}", "${env:TITLE:-My server}", "${env:TOKEN:-***}"] {
        assert!(text.contains(kept), "{kept} is not in {text}");
    }
    assert_eq!(masked_keys(&source), ["env.TOKEN"]);
}
