//! Compares `docs/configuration.md` with the keys that the parser knows, and parses the example of each key.

use std::collections::BTreeSet;

use super::*;
use crate::{auth, identity, openapi, rules, settings, source, top_level_keys};

/// A row of a table: key, default and example.
struct KeyRow {
    key: String,
    default: String,
    example: String,
}

/// Adds what an example needs to be a whole configuration.
type CompleteExample = dyn Fn(&str) -> String;

/// Reads the rows of all tables between a heading and the next one of the same or a higher level.
#[track_caller]
fn read_rows(page: &str, heading: &str) -> Vec<KeyRow> {
    let level = heading.split(' ').next().unwrap();
    let (_, section) = page.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no heading `{heading}`"));
    let is_end = |line: &&str| {
        let marks = line.split(' ').next().unwrap_or_default();
        !marks.is_empty() && marks.chars().all(|mark| mark == '#') && marks.len() <= level.len()
    };
    let lines = section.lines().take_while(|line| !is_end(line)).filter(|line| line.starts_with("| `"));
    lines
        .map(|line| {
            let cells: Vec<&str> =
                line.trim_matches('|').split(" | ").map(|cell| cell.trim().trim_matches('`')).collect();
            assert_eq!(cells.len(), 5, "{line}");
            KeyRow { key: cells[0].to_owned(), default: cells[2].to_owned(), example: cells[3].to_owned() }
        })
        .collect()
}

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn the_page_has_exactly_the_keys_of_the_parser() {
    let page = page();
    let check = |heading: &str, known: &[&str]| {
        let documented: BTreeSet<String> = read_rows(&page, heading).into_iter().map(|row| row.key).collect();
        assert_eq!(documented, known.iter().map(|key| (*key).to_owned()).collect(), "{heading}");
    };
    check("## Top level", &top_level_keys().collect::<Vec<_>>());
    check("## Defaults", &settings::DEFAULTS_KEYS);
    check("## Expose", &settings::EXPOSE_KEYS);
    check("### Groups", &rules::GROUP_KEYS);
    check("### Selectors", &rules::SELECTOR_KEYS);
    check("### Access rules", &rules::ACCESS_KEYS);
    check("### Policies", &rules::POLICY_KEYS);
    check("## Identity", &identity::IDENTITY_KEYS);
    check("## Issuer", &identity::ISSUER_KEYS);
    check("## Roles", &identity::ROLES_KEYS);
    check("## Limits", &settings::LIMITS_KEYS);
    check("## Auth", &auth::AUTH_METHOD_KEYS);
    check("## Poll", &openapi::POLL_KEYS);
    let on_a_source: Vec<&str> = source::source_keys().filter(|key| !settings::DEFAULTS_KEYS.contains(key)).collect();
    check("## Source", &on_a_source);
}

#[test]
fn every_example_of_the_page_is_accepted() {
    let page = page();
    let sections: [(&str, &CompleteExample); 18] = [
        ("## Top level", &str::to_owned),
        ("### MCP server over stdio", &|example| on_source("command", "command: x", example)),
        ("### MCP server over HTTP", &|example| on_source("url", "url: \"http://x\"", example)),
        ("### OpenAPI document", &|example| on_source("openapi", "openapi: ./x.yaml", example)),
        ("### Workflow document", &|example| on_source("workflow", "workflow: ./x.yaml", example)),
        ("### Built-in tools", &|example| on_source("builtin", "builtin: all", example)),
        ("### Settings of any source", &|example| on_source("command", "command: x", example)),
        ("## Defaults", &|example| format!("defaults: {{ {example} }}")),
        ("## Expose", &|example| format!("expose: {{ {example} }}")),
        ("## Identity", &|example| format!("identity: {{ {example} }}")),
        ("### Groups", &|example| format!("groups: {{ x: {{ {example} }} }}")),
        ("### Selectors", &|example| format!("groups: {{ x: {{ select: {{ {example} }} }} }}")),
        ("### Access rules", &|example| on_rule("access", "name: x, groups: [x]", example)),
        ("### Policies", &|example| on_rule("policies", "name: x, verdict: deny", example)),
        ("## Issuer", &|example| on_issuer("issuer", "issuer: \"https://x\"", example)),
        ("## Roles", &|example| on_issuer("", "issuer: \"https://x\"", &on_roles(example))),
        ("## Limits", &|example| format!("limits: {{ {example} }}")),
        ("## Auth", &|example| on_source("openapi", "openapi: ./x.yaml", &format!("auth: {{ {example} }}"))),
    ];
    for (heading, complete) in sections {
        for KeyRow { key, example, .. } in read_rows(&page, heading) {
            assert!(example.starts_with(&format!("{key}:")), "the example of `{key}` is about another key: {example}");
            let text = complete(&example);
            let config = Config::read(&text, "toolcrib.yaml", Path::new("/p"))
                .unwrap_or_else(|faults| panic!("{text}: {faults:?}"));
            for source in &config.sources {
                assert!(source.source.is_ok(), "{text}: {:?}", source.source);
            }
            assert_eq!(config.warnings, [], "{text}");
        }
    }
}

#[test]
fn defaults_are_those_of_the_code() {
    let defaults = SourceSettings::default();
    let durations = [
        ("ttl", defaults.ttl()),
        ("connect_timeout", defaults.connect_timeout()),
        ("first_start_timeout", defaults.first_start_timeout()),
        ("discovery_timeout", defaults.discovery_timeout()),
        ("call_timeout", defaults.call_timeout()),
        ("idle", defaults.idle()),
    ];
    let rows = read_rows(&page(), "## Defaults");
    for (key, duration) in durations {
        let row = rows.iter().find(|row| row.key == key).unwrap();
        assert_eq!(row.default, toolcrib_core::time::format_duration(duration), "{key}");
    }
    let expose = crate::Expose::default();
    let rows = read_rows(&page(), "## Expose");
    let default_of = |key: &str| rows.iter().find(|row| row.key == key).unwrap().default.clone();
    assert_eq!(default_of("full_below_tokens"), expose.full_below_tokens.to_string());
    assert_eq!(default_of("mode"), expose.mode.as_str());
    assert_eq!(default_of("prefix"), expose.prefix.to_string());
}

/// A configuration with one source: of the given kind, unless the example is the key of the kind itself.
fn on_source(kind: &str, base: &str, example: &str) -> String {
    let keys = if example.starts_with(&format!("{kind}:")) { example.to_owned() } else { format!("{base}, {example}") };
    format!("sources: {{ x: {{ {keys} }} }}")
}

/// A configuration with one rule in a list. The keys of the example replace those of `base`.
fn on_rule(section: &str, base: &str, example: &str) -> String {
    let is_other = |key: &&str| key.split(':').next() != example.split(':').next();
    let keys: Vec<&str> = base.split(", ").filter(is_other).chain([example]).collect();
    format!("{section}: [{{ {} }}]", keys.join(", "))
}

/// Completes the example of a key of an issuer. An issuer that gives no role would be warned about.
fn on_issuer(own_key: &str, base: &str, example: &str) -> String {
    let is_own = !own_key.is_empty() && example.starts_with(&format!("{own_key}:"));
    let keys = if is_own { example.to_owned() } else { format!("{base}, {example}") };
    let roles = if keys.contains("roles:") { "" } else { ", roles: { default: agent }" };
    format!("identity: {{ issuers: [{{ {keys}{roles} }}] }}")
}

/// Completes the example of a key of `roles`.
fn on_roles(example: &str) -> String {
    let needs_claim = !example.starts_with("claim:") && !example.starts_with("default:");
    let claim = if needs_claim { "claim: roles, " } else { "" };
    let default = if example.starts_with("default:") { "" } else { ", default: agent" };
    format!("roles: {{ {claim}{example}{default} }}")
}
