use std::path::Path;

use super::*;
use crate::{ConfigDialect, Syntax};

const TRUSTED_TEXT: &str = r#"
sources:
  files: { command: npx, args: [-y, server, .], env: { LOG: debug }, cwd: ., inherit_env: [A, B], ttl: 5m, title: Files }
  docs:  { url: "https://docs.example.com/mcp", headers: { Authorization: "Bearer ${env:TOKEN}" }, tools: { "delete_*": deny, "create_*": ask } }
  shop:  { openapi: ./shop.yaml, auth: { bearer: "${env:SHOP}" }, include: ["orders*", "items*"], exclude: ["*delete*"] }
  core:  { builtin: all, roots: [/a, /b] }
  off:   { command: later, enabled: false }
  gpu:   { command: gpu, nodes: [a, b] }
  mine:  { enabled: false, tools: { "x_*": deny } }
defaults: { ttl: 5m }
expose: { mode: search, essential: ["files__*"] }
groups: { staff: { select: { source: "docs" } }, all: { select: {} } }
access: [{ name: staff, groups: [staff], when: [{ claim: team, equals: a }] }, { name: idle, groups: [all], active: false }]
policies: [{ name: ask-all, verdict: ask }]
"#;

fn trusted_file(text: &str, servers: &[&str]) -> TrustedFile {
    let config = Config::parse(text, "toolcrib.yaml", Path::new("/p"), Syntax::Yaml, ConfigDialect::Toolcrib).unwrap();
    let servers = servers.iter().map(|server| (*server).to_owned()).collect();
    let document = LocalDocument { servers, ..LocalDocument::default() };
    TrustedFile::new(&config, [(SourceId::parse("shop").unwrap(), document)].into())
}

/// Single changes of a trusted file, each with the keys that need approval.
#[test]
fn changes_need_approval_unless_they_only_restrict() {
    let servers = ["https://shop.example.com"];
    let trusted = trusted_file(TRUSTED_TEXT, &servers);
    let changes: &[(&str, &str, &str)] = &[
        // Changes of what runs and which hosts are contacted.
        ("command: npx", "command: /tmp/npx", "sources.files.command"),
        ("[-y, server, .]", "[-y, server, /]", "sources.files.args"),
        ("[-y, server, .]", "[-y, server]", "sources.files.args"),
        ("{ LOG: debug }", "{ LOG: trace }", "sources.files.env"),
        ("{ LOG: debug }", "{ LOG: debug, LD_PRELOAD: ./x.so }", "sources.files.env"),
        ("cwd: .,", "cwd: /,", "sources.files.cwd"),
        ("inherit_env: [A, B]", "inherit_env: [A, B, SECRET]", "sources.files.inherit_env"),
        ("https://docs.example.com", "https://evil.example.com", "sources.docs.url"),
        ("docs:  {", "docs:  { transport: sse,", "sources.docs.transport"),
        (
            "headers: { Authorization: \"Bearer ${env:TOKEN}\" }",
            "auth: { bearer: x }",
            "sources.docs.auth sources.docs.headers",
        ),
        ("Bearer ${env:TOKEN}", "Bearer ${env:OTHER}", "sources.docs.headers"),
        ("./shop.yaml", "./other.yaml", "sources.shop.openapi"),
        ("${env:SHOP}", "${env:OTHER}", "sources.shop.auth"),
        ("builtin: all, roots: [/a, /b]", "builtin: all, roots: [/a, /b, /]", "sources.core.roots"),
        ("  off: ", "  new: { command: x }\n  off: ", "sources.new"),
        ("  mine:  {", "  mine:  { command: x,", "sources.mine"),
        // Changes that allow more.
        ("\"delete_*\": deny", "\"delete_*\": allow", "sources.docs.tools"),
        ("\"delete_*\": deny, ", "", "sources.docs.tools"),
        ("\"delete_*\": deny, ", "\"delete_*\": deny, \"delete_one\": allow, ", "sources.docs.tools"),
        ("later, enabled: false", "later, enabled: true", "sources.off.enabled"),
        ("later, enabled: false", "later", "sources.off.enabled"),
        ("mine:  { enabled: false", "mine:  { enabled: true", "sources.mine.enabled"),
        ("\"x_*\": deny", "\"x_*\": ask", "sources.mine.tools"),
        ("  mine:  { enabled: false, tools: { \"x_*\": deny } }\n", "", "sources.mine.enabled sources.mine.tools"),
        ("title: Files", "title: Files, essential: [\"*\"]", "sources.files.essential"),
        ("title: Files", "title: Files, lifecycle: per_client", "sources.files.lifecycle"),
        ("title: Files", "title: Files, on_conflict: keep", "sources.files.on_conflict"),
        ("nodes: [a, b]", "nodes: [a, b, c]", "sources.gpu.nodes"),
        ("nodes: [a, b]", "nodes: [c]", "sources.gpu.nodes"),
        (", nodes: [a, b]", "", "sources.gpu.nodes"),
        ("expose:", "store: \"postgres://db/x\"\nexpose:", "store"),
        ("builtin: all,", "builtin: all, allow_private: true,", "sources.core.allow_private"),
        ("builtin: all,", "builtin: all, tools: { bash: allow },", "sources.core.tools"),
        ("[\"orders*\", \"items*\"]", "[\"*\"]", "sources.shop.include"),
        ("include: [\"orders*\", \"items*\"], ", "", "sources.shop.include"),
        ("exclude: [\"*delete*\"]", "exclude: []", "sources.shop.exclude"),
        ("defaults: { ttl: 5m }", "defaults: { ttl: 6m }", "defaults"),
        ("defaults: { ttl: 5m }", "", "defaults"),
        ("mode: search", "mode: full", "expose"),
        ("[\"files__*\"]", "[]", "expose"),
        ("expose:", "warm: start\nexpose:", "warm"),
        ("expose:", "allow_commands: true\nexpose:", "allow_commands"),
        ("expose:", "allow_private_sources: true\nexpose:", "allow_private_sources"),
        ("expose:", "identity: { loopback: open }\nexpose:", "identity"),
        ("title: Files", "title: Files, trust_hints: true", "sources.files.trust_hints"),
        ("defaults: { ttl: 5m }", "defaults: { ttl: 5m, trust_hints: true }", "defaults"),
        // Every change of rules.
        ("{ source: \"docs\" }", "{ source: \"*\" }", "groups"),
        ("{ source: \"docs\" }", "{ source: \"docs\", name: \"get_*\" }", "groups"),
        ("staff: {", "staff: { title: Staff,", "groups"),
        ("equals: a", "equals: b", "access"),
        (", active: false", "", "access"),
        (", { name: idle, groups: [all], active: false }", "", "access"),
        ("verdict: ask }", "verdict: allow }", "policies"),
        ("verdict: ask }", "verdict: deny }", "policies"),
        ("policies: [{ name: ask-all, verdict: ask }]\n", "", "policies"),
        (
            "staff: { select: { source: \"docs\" } }, all: { select: {} }",
            "all: { select: [{}] }, staff: { select: [{ source: docs }] }",
            "",
        ),
        ("expose:", "identity: { issuers: [{ issuer: \"https://id.example\" }] }\nexpose:", "identity.issuers"),
        ("expose:", "public_url: \"https://tools.example\"\nexpose:", "public_url"),
        // Changes without effect on trust, and changes that only restrict.
        ("sources:", "# a comment\nsources:", ""),
        ("ttl: 5m, title", "ttl: 1h, title", ""),
        ("title: Files", "title: All files, tags: [x], call_timeout: 9s", ""),
        ("title: Files", "title: Files, enabled: false", ""),
        ("title: Files", "title: Files, nodes: [a]", ""),
        ("nodes: [a, b]", "nodes: [b]", ""),
        ("nodes: [a, b]", "nodes: [b, a]", ""),
        ("inherit_env: [A, B]", "inherit_env: [B]", ""),
        ("\"delete_*\": deny", "\"delete_*\": hide", ""),
        ("\"create_*\": ask", "\"create_*\": deny, \"*\": ask", ""),
        ("\"x_*\": deny", "\"*\": deny", ""),
        ("\"orders*\", \"items*\"", "\"orders*\"", ""),
        ("[\"*delete*\"]", "[\"*delete*\", \"*put*\"]", ""),
        ("builtin: all, roots: [/a, /b]", "builtin: [file_read], roots: [/b]", ""),
        ("  off:   { command: later, enabled: false }\n", "", ""),
        ("expose:", "allow_commands: false\nexpose:", ""),
        (
            "  core:  { builtin: all, roots: [/a, /b] }\n  off:   { command: later, enabled: false }\n",
            "  off:   { enabled: false, command: later }\n  core:  { roots: [/a, /b], builtin: all }\n",
            "",
        ),
    ];
    for (from, to, expected) in changes {
        assert!(TRUSTED_TEXT.contains(from), "{from}");
        let changed = TRUSTED_TEXT.replacen(from, to, 1);
        let uncovered = trusted.uncovered_keys(&trusted_file(&changed, &servers)).join(" ");
        assert_eq!(uncovered, *expected, "`{from}` -> `{to}`");
    }
    for (servers, expected) in [
        (&["https://shop.example.com", "https://evil.example.com"][..], "sources.shop.servers"),
        (&["https://evil.example.com"][..], "sources.shop.servers"),
        (&[][..], ""),
    ] {
        assert_eq!(trusted.uncovered_keys(&trusted_file(TRUSTED_TEXT, servers)).join(" "), expected);
    }
}

#[test]
fn stored_trust_contains_no_values_and_round_trips() {
    let text = "sources: { a: { command: x, args: [--token, hunter2], env: { T: hunter2 } } }";
    let trusted = trusted_file(text, &[]);
    let stored = serde_json::to_string(&trusted).unwrap();
    assert!(!stored.contains("hunter2"), "{stored}");
    assert_eq!(serde_json::from_str::<TrustedFile>(&stored).unwrap(), trusted);
}

/// The store of trust of a version without rules has no hashes for them.
#[test]
fn a_file_without_rules_has_no_state_of_rules() {
    let stored = serde_json::to_value(trusted_file("groups: {}\naccess: []\ndefaults: { ttl: 5m }", &[])).unwrap();
    assert_eq!(stored["settings"].as_object().unwrap().keys().collect::<Vec<_>>(), ["defaults"]);
}

/// A changed or removed `store` needs approval, and so does a file of the project whose content is part of it.
#[test]
fn a_store_is_trusted_as_it_is() {
    let file = |store: &str| trusted_file(&format!("sources: {{}}\nstore: \"{store}\""), &[]);
    let trusted = file("postgres://a:${env:PW}@db/x");
    for (other, expected) in [
        ("postgres://a:${env:PW}@db/x", ""),
        ("postgres://a:${env:PW}@other/x", "store"),
        ("postgres://a:${env:OTHER}@db/x", "store"),
    ] {
        assert_eq!(trusted.uncovered_keys(&file(other)).join(" "), expected, "{other}");
    }
    assert_eq!(trusted.uncovered_keys(&trusted_file("sources: {}", &[])), ["store"]);
    let with_content = |content: &str| {
        let files = [("/p/url".to_owned(), Fingerprint::digest(content))].into();
        file("${file:url}").with_store_files(&files)
    };
    assert_eq!(with_content("a").uncovered_keys(&with_content("a")), [""; 0]);
    assert_eq!(with_content("a").uncovered_keys(&with_content("b")), ["store.references"]);
    let config = Config::parse(
        "store: \"postgres://me:hunter2@db/x\"",
        "toolcrib.yaml",
        Path::new("/p"),
        Syntax::Yaml,
        ConfigDialect::Toolcrib,
    );
    assert_eq!(settings_to_trust(&config.unwrap())["store"], "postgres://***@db/x");
}

#[test]
fn rules_are_shown_before_they_are_trusted() {
    let config = Config::parse(TRUSTED_TEXT, "toolcrib.yaml", Path::new("/p"), Syntax::Yaml, ConfigDialect::Toolcrib);
    let shown = settings_to_trust(&config.unwrap());
    assert_eq!(shown["groups"]["staff"], json!({ "select": [{ "source": "docs" }] }));
    assert_eq!(shown["policies"], json!([{ "name": "ask-all", "match": {}, "verdict": "ask" }]));
}

/// A file that was trusted before `identity` had issuers stays trusted, and no issuer changes without approval.
#[test]
fn issuers_are_part_of_the_trust_only_where_they_are_set() {
    let file = |identity: &str| trusted_file(&format!("sources: {{}}\nidentity: {{ loopback: open{identity} }}"), &[]);
    let settings: Vec<String> = file("").settings.into_keys().collect();
    assert_eq!(settings, ["identity"]);
    let one = file(", issuers: [{ issuer: \"https://a.example\", roles: { default: viewer } }]");
    for (other, expected) in [
        (", issuers: [{ issuer: \"https://a.example\", roles: { default: viewer }, leeway: 30s }]", ""),
        (", issuers: [{ issuer: \"https://a.example\", roles: { default: admin } }]", "identity.issuers"),
        (", issuers: [{ issuer: \"https://b.example\", roles: { default: viewer } }]", "identity.issuers"),
        ("", "identity.issuers"),
    ] {
        assert_eq!(one.uncovered_keys(&file(other)).join(" "), expected, "{other}");
    }
}
