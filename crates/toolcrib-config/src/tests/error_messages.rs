//! Exact messages of all kinds of configuration errors.

use super::*;

fn check(text: &str, expected: &str) {
    assert_eq!(all_messages(parse_toolcrib(text)), expected, "{text}");
}

/// Checks the message for one source with these keys.
fn check_source(keys: &str, expected: &str) {
    check(&format!("sources:\n  files:\n    {keys}"), &format!("toolcrib.yaml:3: {expected}"));
}

#[test]
fn unknown_keys_suggest_the_nearest_key() {
    check("sauces: {}", "toolcrib.yaml:1: unknown key `sauces`; did you mean `sources`?");
    check("\nbanana: 1", "toolcrib.yaml:2: unknown key `banana`");
    check("defaults: { tll: 5m }", "toolcrib.yaml:1: defaults: unknown key `tll`; did you mean `ttl`?");
    check(
        "defaults: { first_start_timeot: 5m }",
        "toolcrib.yaml:1: defaults: unknown key `first_start_timeot`; did you mean `first_start_timeout`?",
    );
    check_source("{ command: x, first_start: 5m }", "sources.files: unknown key `first_start`");
    check_source(
        "{ command: x, first_start_timeout: 0s }",
        "sources.files.first_start_timeout: must be greater than zero, for example `30s`",
    );
    check(
        "defaults: { enabled: true }",
        "toolcrib.yaml:1: defaults: `enabled` is a key of a source, not of `defaults`",
    );
    check("expose: { mod: full }", "toolcrib.yaml:1: expose: unknown key `mod`; did you mean `mode`?");
    check(
        "sources:\n  files:\n    command: x\n    comand: npx",
        "toolcrib.yaml:4: sources.files: unknown key `comand`; did you mean `command`?",
    );
    check_source(
        "{ command: x, enabled: '${bogus:X}' }",
        "sources.files.enabled: `bogus` is no kind of reference; the known ones are `${env:NAME}`, \
         `${env:NAME:-default}` and `${file:PATH}`",
    );
    check_source("{ command: x, disabled: true }", "sources.files: unknown key `disabled`; write `enabled: false`");
    check_source(
        "{ url: http://x, auth: { baerer: t } }",
        concat!(
            "sources.files.auth: unknown key `baerer`; did you mean `bearer`?\n",
            "toolcrib.yaml:3: sources.files.auth: needs one of `bearer`, `basic` or `api_key`"
        ),
    );
}

#[test]
fn wrong_types_name_what_was_expected_and_found() {
    check("- a", "toolcrib.yaml:1: expected a map of keys, found a list");
    check("sources: 5", "toolcrib.yaml:1: sources: expected a map of keys, found a number");
    check("sources: { a: npx }", "toolcrib.yaml:1: sources.a: expected a map of keys, found text");
    check(
        "expose: { full_below_tokens: many }",
        "toolcrib.yaml:1: expose.full_below_tokens: expected a whole number such as `4000`, found `many`",
    );
    check_source("{ command: x, args: -y }", "sources.files.args: expected a list, found text");
    check_source("{ command: x, args: [a, [b]] }", "sources.files.args[1]: expected text, found a list");
    check_source("{ command: x, env: [A=b] }", "sources.files.env: expected a map of keys, found a list");
    check_source("{ command: x, env: { A: {} } }", "sources.files.env.A: expected text, found a map of keys");
    check_source(
        "{ command: x, cwd: 5 }",
        "sources.files.cwd: expected text, found a number; write it in quotes: \"5\"",
    );
    check_source("{ command: x, enabled: maybe }", "sources.files.enabled: expected true or false, found text");
    check_source("{ command: '' }", "sources.files.command: expected text, found an empty string");
    check_source(
        "{ command: [npx, -y] }",
        "sources.files.command: expected text, found a list; the program goes into `command` and the rest into `args`",
    );
    check_source("{ builtin: true }", "sources.files.builtin: expected `all` or a list of names, found true or false");
}

#[test]
fn a_source_needs_exactly_one_kind() {
    check_source(
        "{ command: x, url: http://x }",
        "sources.files: `command` and `url` are mutually exclusive; keep one",
    );
    check_source("{ title: x }", "sources.files: needs one of `command`, `url`, `openapi`, `workflow` or `builtin`");
    check(
        "sources: { files: }",
        "toolcrib.yaml:1: sources.files: needs one of `command`, `url`, `openapi`, `workflow` or `builtin`",
    );
    check_source("{ url: http://x, args: [] }", "sources.files: `args` belongs to a source with `command`, not `url`");
    check_source(
        "{ command: x, auth: {} }",
        "sources.files: `auth` belongs to a source with `url` or `openapi`, not `command`",
    );
    check_source(
        "{ url: http://x, base_url: http://y }",
        "sources.files: `base_url` belongs to a source with `openapi`, not `url`",
    );
    check_source(
        "{ workflow: x.yaml, variables: {} }",
        "sources.files: `variables` belongs to a source with `openapi`, not `workflow`",
    );
    check_source(
        "{ openapi: x.yaml, workflow: y.yaml }",
        "sources.files: `openapi` and `workflow` are mutually exclusive; keep one",
    );
}

#[test]
fn urls_and_transports_are_checked() {
    check_source("{ url: ftp://x }", "sources.files.url: expected a URL that begins with `http://` or `https://`");
    check_source("{ url: 'http:///x' }", "sources.files.url: expected a URL that begins with `http://` or `https://`");
    let unreadable = "is not a valid URL: check its host and its port";
    check_source("{ url: 'http://x:99999/mcp' }", &format!("sources.files.url: {unreadable}"));
    check_source("{ openapi: 'http://[x/api.json' }", &format!("sources.files.openapi: {unreadable}"));
    check_source("{ openapi: a.yaml, base_url: 'http://a b' }", &format!("sources.files.base_url: {unreadable}"));
    check_source(
        "{ url: http://x, transport: ws }",
        "sources.files.transport: expected `http`, `sse` or `stdio`, found `ws`",
    );
    check_source(
        "{ url: http://x, type: stdio }",
        "sources.files.type: does not match the source: `url` uses `http` or `sse`",
    );
    check_source(
        "{ command: x, type: sse }",
        "sources.files.type: does not match the source: `command` starts a server on stdio",
    );
    check_source(
        "{ url: http://x, type: sse, transport: http }",
        "sources.files: `transport` and `type` contradict each other; keep one",
    );
}

#[test]
fn authentication_is_checked_without_repeating_a_value() {
    let auth = |auth: &str, expected: &str| check_source(&format!("{{ url: http://x, auth: {auth} }}"), expected);
    auth("{ bearer: a, basic: {} }", "sources.files.auth: `bearer` and `basic` are mutually exclusive; keep one");
    auth("{ basic: { user: me } }", "sources.files.auth.basic: needs `password`");
    auth("{ api_key: { value: hunter2 } }", "sources.files.auth.api_key: needs `name`");
    auth(
        "{ api_key: { name: k, value: v, in: body } }",
        "sources.files.auth.api_key.in: expected `header`, `query` or `cookie`, found `body`",
    );
    for method in ["oauth2", "schemes"] {
        auth(
            &format!("{{ {method}: {{ client_secret: hunter2 }} }}"),
            &format!(
                "sources.files.auth.{method}: belongs to a source with `openapi`; beside `url` use `bearer` with a token"
            ),
        );
    }
    auth("hunter2", "sources.files.auth: expected a map of keys, found text");
    check_source(
        "{ url: http://x, headers: { authorization: x }, auth: { bearer: hunter2 } }",
        "sources.files: `auth` and `headers` both set `Authorization`; keep one",
    );
    check_source(
        "{ url: http://x, headers: { x-key: x }, auth: { api_key: { name: X-Key, value: hunter2 } } }",
        "sources.files: `auth` and `headers` both set `X-Key`; keep one",
    );
}

#[test]
fn headers_are_checked_without_repeating_a_value() {
    let name = "is not a valid header name: use letters, digits and `-`";
    let value = "a header cannot contain line breaks or other control characters";
    for kind in ["url: http://x", "openapi: a.yaml"] {
        let check = |keys: &str, expected: &str| check_source(&format!("{{ {kind}, {keys} }}"), expected);
        check("headers: { 'X Key': a }", &format!("sources.files.headers: `X Key` {name}"));
        check("headers: { '': a }", &format!("sources.files.headers: `` {name}"));
        check("headers: { 'Schlüssel:': a }", &format!("sources.files.headers: `Schlüssel:` {name}"));
        check(r#"headers: { X-Key: "hunter2\r\nX-Evil: 1" }"#, &format!("sources.files.headers.X-Key: {value}"));
        check(r#"auth: { bearer: "hunter2\n" }"#, &format!("sources.files.auth.bearer: {value}"));
        check(
            "auth: { api_key: { name: 'a b', in: header, value: hunter2 } }",
            &format!("sources.files.auth.api_key.name: `a b` {name}"),
        );
    }
    let valid = "sources:\n  a: { url: http://x, headers: { X-Key: \"${env:KEY}\\t\", x.y_z: 'Schlüssel' } }";
    assert_eq!(all_messages(parse_toolcrib(valid)), "");
}

#[test]
fn settings_are_checked() {
    let setting = |setting: &str, expected: &str| check_source(&format!("{{ command: x, {setting} }}"), expected);
    setting("ttl: 30", "sources.files.ttl: expected a duration, found the number 30; write `30s`");
    setting("ttl: soon", "sources.files.ttl: expected a duration such as `30s` or `5m`, found `soon`");
    setting("idle: []", "sources.files.idle: expected a duration such as `30s` or `5m`, found a list");
    setting("call_timeout: 0s", "sources.files.call_timeout: must be greater than zero, for example `30s`");
    setting(
        "result_limit: 1 TiB",
        "sources.files.result_limit: expected a size such as `256KiB` or `1MiB`, found `1 TiB`",
    );
    setting(
        "limits: { calls_per_minute: 1.5 }",
        "sources.files.limits.calls_per_minute: expected a whole number from 1 to 1000000, found `1.5`",
    );
    setting("result_limit: 0", "sources.files.result_limit: expected a size such as `256KiB` or `1MiB`, found `0`");
    setting(
        "tools: { 'rm_*': denny }",
        "sources.files.tools.rm_*: expected `allow`, `ask`, `deny` or `hide`, found `denny`; did you mean `deny`?",
    );
    setting("tools: { x: no }", "sources.files.tools.x: expected `allow`, `ask`, `deny` or `hide`, found `no`");
    setting(
        "lifecycle: share",
        "sources.files.lifecycle: expected `shared`, `transient` or `per_client`, found `share`; did you mean `shared`?",
    );
    setting(
        "results: cleaned",
        "sources.files.results: expected `clean` or `raw`, found `cleaned`; did you mean `clean`?",
    );
    setting(
        "protocol: 2025-11-26",
        "sources.files.protocol: expected `2024-11-05`, `2025-03-26`, `2025-06-18`, `2025-11-25` or `2026-07-28`, found `2025-11-26`; did you mean `2025-11-25`?",
    );
    setting(
        "nodes: []",
        "sources.files.nodes: is empty, so that no node could start the source; leave it out for every node",
    );
    setting("nodes: gpu", "sources.files.nodes: expected a list, found text");
    setting(
        "nodes: [gpu 1]",
        "sources.files.nodes: `gpu 1` is no label of a node; a label has 1 to 64 of the characters A-Z, a-z, 0-9, `.`, `_` and `-`",
    );
    setting("on_conflict: drop", "sources.files.on_conflict: expected `exclude` or `keep`, found `drop`");
    check(
        "expose: { mode: ful }",
        "toolcrib.yaml:1: expose.mode: expected `auto`, `search` or `full`, found `ful`; did you mean `full`?",
    );
    check(
        "sources: {}\nwarm: starts",
        "toolcrib.yaml:2: warm: expected `demand`, `client` or `start`, found `starts`; did you mean `start`?",
    );
    check("identity: { loopbak: open }", "toolcrib.yaml:1: identity: unknown key `loopbak`; did you mean `loopback`?");
    check(
        "sources: {}\nidentity:\n  loopback: opne",
        "toolcrib.yaml:3: identity.loopback: expected `owner`, `open` or `token`, found `opne`; did you mean `open`?",
    );
    check("limits: { calls: 5 }", "toolcrib.yaml:1: limits: unknown key `calls`");
    check(
        "limits: { concurrent_calls: 0 }",
        "toolcrib.yaml:1: limits.concurrent_calls: expected a whole number from 1 to 1000000, found `0`",
    );
    check("identity: open", "toolcrib.yaml:1: identity: expected a map of keys, found text");
    check("identiy: {}", "toolcrib.yaml:1: unknown key `identiy`; did you mean `identity`?");
    check("allow_private_sources: maybe", "toolcrib.yaml:1: allow_private_sources: expected true or false, found text");
    check("warn: start", "toolcrib.yaml:1: unknown key `warn`; did you mean `warm`?");
}

#[test]
fn names_must_become_different_ids() {
    check(
        "sources:\n  My-Server: { command: x }\n  my_server: { command: y }",
        "toolcrib.yaml:3: sources: `my_server` and `My-Server` (line 2) both become the source `my_server`; rename one",
    );
    check(
        "sources: { a: { command: x } }\nmcpServers: { A: { command: y } }",
        "toolcrib.yaml:2: sources: `A` and `a` (line 1) both become the source `a`; rename one",
    );
    check(
        "sources:\n  call-tool: { command: x }\n  '---': {}",
        "toolcrib.yaml:2: sources: `call-tool` cannot name a source: that name is reserved\n\
         toolcrib.yaml:3: sources: `---` cannot name a source: it has no letter or digit of a-z, 0-9",
    );
}

#[test]
fn all_errors_are_reported_and_an_invalid_source_does_not_affect_others() {
    check(
        "defaults: { ttl: 5, idle: x }\nexpose: 1\nwhat: 2",
        "toolcrib.yaml:1: defaults.ttl: expected a duration, found the number 5; write `5s`\n\
         toolcrib.yaml:1: defaults.idle: expected a duration such as `30s` or `5m`, found `x`\n\
         toolcrib.yaml:2: expose: expected a map of keys, found a number\n\
         toolcrib.yaml:3: unknown key `what`",
    );
    let config = parse_toolcrib("sources:\n  bad: { comand: x, ttl: 5 }\n  good: { command: x }").unwrap();
    assert_eq!(config.valid_sources().map(|source| source.id.as_str()).collect::<Vec<_>>(), ["good"]);
    assert_eq!(
        all_messages(Ok(config)),
        "toolcrib.yaml:2: sources.bad: unknown key `comand`; did you mean `command`?\n\
         toolcrib.yaml:2: sources.bad.ttl: expected a duration, found the number 5; write `5s`\n\
         toolcrib.yaml:2: sources.bad: needs one of `command`, `url`, `openapi`, `workflow` or `builtin`"
    );
}

#[test]
fn a_command_that_contains_arguments_is_a_warning() {
    check_source(
        "{ command: npx -y server }",
        "sources.files.command: is the name of one program, spaces included; put its arguments into `args`",
    );
}

#[test]
fn terminal_control_sequences_are_removed_from_messages() {
    check("\"a\\e[31mb\\nc\": 1", "toolcrib.yaml:1: unknown key `ab c`");
}

/// Checks the message for one OpenAPI source with these keys.
fn check_openapi(keys: &str, expected: &str) {
    check_source(&format!("{{ openapi: x.yaml, {keys} }}"), expected);
}

#[test]
fn keys_of_openapi_and_workflow_sources_are_checked() {
    let address = "expected a URL that begins with `http://` or `https://`";
    check_source(
        "{ openapi: file:///x.yaml }",
        "sources.files.openapi: expected a file or a URL that begins with `http://` or `https://`",
    );
    check_source("{ openapi: { paths: {} } }", "sources.files.openapi: expected text, found a map of keys");
    check_source(
        "{ workflow: http://x/y.yaml }",
        "sources.files.workflow: expected a file; download the document and give its path",
    );
    check_openapi(
        "transport: http",
        "sources.files.transport: does not match the source: an OpenAPI source has no transport",
    );
    check_openapi("base_url: api.example", &format!("sources.files.base_url: {address}"));
    check_openapi("base_url: /v1", &format!("sources.files.base_url: {address}"));
    check_openapi("include: orders", "sources.files.include: expected a list, found text");
    check_openapi("variables: [a]", "sources.files.variables: expected a map of keys, found a list");
    check_openapi("include_tag: [a]", "sources.files: unknown key `include_tag`; did you mean `include_tags`?");
    check_openapi(
        "methods: [head, get]",
        "sources.files.methods: expected `HEAD`, `OPTIONS` or `TRACE`, found `get`; that method is always included",
    );
    check_openapi(
        "methods: [OPTION]",
        "sources.files.methods: expected `HEAD`, `OPTIONS` or `TRACE`, found `OPTION`; did you mean `OPTIONS`?",
    );
    check_openapi(
        "headers: { authorization: x }, auth: { schemes: { a: { bearer: hunter2 } } }",
        "sources.files: `auth` and `headers` both set `Authorization`; keep one",
    );
}

#[test]
fn polling_is_checked() {
    let poll = |keys: &str, expected: &str| check_openapi(&format!("poll: {{ 'start_*': {keys} }}"), expected);
    poll("5", "sources.files.poll.start_*: expected a map of keys, found a number");
    poll("{ url: /x, status: /s }", "sources.files.poll.start_*: needs `done`");
    poll(
        "{ url: /x, status: /s, done: [] }",
        "sources.files.poll.start_*.done: needs at least one status value that means done",
    );
    poll(
        "{ url: /x, status: state, done: [a] }",
        "sources.files.poll.start_*.status: expected a JSON pointer such as `/state`, found `state`",
    );
    poll(
        "{ url: /x, status: /s, done: [a], interval: 0s }",
        "sources.files.poll.start_*.interval: must be greater than zero, for example `30s`",
    );
    poll(
        "{ url: /x, status: /s, done: [a], interval: 99ms }",
        "sources.files.poll.start_*.interval: must be `100ms` or more",
    );
    poll(
        "{ url: /x, status: /s, done: [a], intervall: 1s }",
        "sources.files.poll.start_*: unknown key `intervall`; did you mean `interval`?",
    );
}

#[test]
fn credentials_for_an_api_are_checked_without_repeating_a_value() {
    let auth = |auth: &str, expected: &str| check_openapi(&format!("auth: {auth}"), expected);
    auth("{}", "sources.files.auth: needs one of `bearer`, `basic`, `api_key`, `oauth2` or `schemes`");
    auth(
        "{ oauth2: { token_url: hunter2, client_id: a, client_secret: hunter2 } }",
        "sources.files.auth.oauth2.token_url: expected a URL that begins with `http://` or `https://`",
    );
    auth("{ oauth2: { token_url: http://x, client_secret: hunter2 } }", "sources.files.auth.oauth2: needs `client_id`");
    auth(
        "{ schemes: {} }",
        "sources.files.auth.schemes: lists no scheme; use the names under `securitySchemes` in the document",
    );
    auth(
        "{ schemes: { a: { schemes: { b: { bearer: hunter2 } } } } }",
        "sources.files.auth.schemes.a.schemes: cannot be nested in `schemes`; list the schemes side by side",
    );
    auth(
        "{ schemes: { a: { baerer: hunter2 } } }",
        concat!(
            "sources.files.auth.schemes.a: unknown key `baerer`; did you mean `bearer`?\n",
            "toolcrib.yaml:3: sources.files.auth.schemes.a: needs one of `bearer`, `basic`, `api_key` or `oauth2`"
        ),
    );
}

#[test]
fn durations_are_limited_to_one_year() {
    for key in ["ttl", "connect_timeout", "first_start_timeout", "discovery_timeout", "call_timeout", "idle"] {
        for time in ["9223372036854775807s", "8761h"] {
            check_source(
                &format!("{{ command: x, {key}: {time} }}"),
                &format!("sources.files.{key}: must be at most one year; write `8760h` or less"),
            );
        }
        assert!(parse_toolcrib(&format!("sources: {{ files: {{ command: x, {key}: 8760h }} }}")).is_ok());
    }
}
