//! Exact messages of errors in groups, access rules and policies.

use super::*;

#[track_caller]
fn check(text: &str, expected: &str) {
    let messages = match parse(text, "toolcrib.yaml").and_then(|config| config.check_rules()) {
        Ok(()) => String::new(),
        Err(errors) => errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
    };
    assert_eq!(messages, expected, "{text}");
}

/// Checks the message for a group with these keys in line 3.
#[track_caller]
fn check_group(keys: &str, expected: &str) {
    check(&format!("groups:\n  support:\n    {keys}"), &format!("toolcrib.yaml:3: groups.support{expected}"));
}

/// Checks the message for an access rule with these conditions in line 3.
#[track_caller]
fn check_when(conditions: &str, expected: &str) {
    let text = format!("groups: {{ g: }}\naccess:\n  - {{ name: a, groups: [g], when: {conditions} }}");
    check(&text, &format!("toolcrib.yaml:3: access[0].when{expected}"));
}

/// Checks the message for a policy with these keys in line 2.
#[track_caller]
fn check_policy(keys: &str, expected: &str) {
    check(&format!("policies:\n  - {{ name: p, {keys} }}"), &format!("toolcrib.yaml:2: policies[0]{expected}"));
}

#[test]
fn unknown_keys_suggest_the_nearest_key() {
    check("group: {}", "toolcrib.yaml:1: unknown key `group`; did you mean `groups`?");
    check("polices: []", "toolcrib.yaml:1: unknown key `polices`; did you mean `policies`?");
    check_group("{ selct: {} }", ": unknown key `selct`; did you mean `select`?");
    check_group("{ select: [{}, { sorce: x }] }", ".select[1]: unknown key `sorce`; did you mean `source`?");
    check_group("{ select: { tag: x } }", ".select: unknown key `tag`; did you mean `tags`?");
    check(
        "groups: { g: }\naccess: [{ name: a, group: [g], groups: [g] }]",
        "toolcrib.yaml:2: access[0]: unknown key `group`; did you mean `groups`?",
    );
    check_when("[{ claim: x, contain: y }]", "[0]: unknown key `contain`; did you mean `contains`?");
    check_policy("verdct: deny, verdict: deny", ": unknown key `verdct`; did you mean `verdict`?");
    check_policy("verdict: deny, match: { groups: x }", ".match: unknown key `groups`; did you mean `group`?");
    // In a file of another client too: a rule must not be read in part.
    let client = Config::read("{ \"groups\": { \"a\": { \"tool\": [] } } }", ".mcp.json", Path::new("/p"));
    assert_eq!(client.unwrap_err()[0].to_string(), ".mcp.json:1: groups.a: unknown key `tool`; did you mean `tools`?");
}

#[test]
fn wrong_types_name_what_was_expected_and_found() {
    check("groups: [a]", "toolcrib.yaml:1: groups: expected a map of keys, found a list");
    check("groups: { a: x }", "toolcrib.yaml:1: groups.a: expected a map of keys, found text");
    check("access: { a: {} }", "toolcrib.yaml:1: access: expected a list, found a map of keys");
    check("policies: [deny]", "toolcrib.yaml:1: policies[0]: expected a map of keys, found text");
    check_group("{ tools: a__b }", ".tools: expected a list, found text");
    check_group("{ tools: [[a]] }", ".tools[0]: expected text, found a list");
    check_group("{ title: 5 }", ".title: expected text, found a number; write it in quotes: \"5\"");
    check_group("{ select: x }", ".select: expected a map of keys, found text");
    check_group("{ select: [~] }", ".select[0]: expected a map of keys, found nothing");
    check_group("{ select: { tags: {} } }", ".select.tags: expected text or a list, found a map of keys");
    check_group("{ select: { tags: ['', a] } }", ".select.tags[0]: expected text, found an empty string");
    check_when("{ claim: x, equals: y }", ": expected a list, found a map of keys");
    check(
        "groups: { g: }\naccess: [{ name: a, groups: [g], active: maybe }]",
        "toolcrib.yaml:2: access[0].active: expected true or false, found text",
    );
}

#[test]
fn a_condition_without_a_value_is_no_condition_that_always_holds() {
    let message = "has no value; write one, or remove the key";
    check_group("{ select: { source: } }", &format!(".select.source: {message}"));
    check_group("{ select: { without_tags: ~ } }", &format!(".select.without_tags: {message}"));
    check_when("", &format!(": {message}"));
    check_policy("verdict: allow, match:", &format!(".match: {message}"));
    check_policy("verdict: allow, match: { group: }", &format!(".match.group: {message}"));
    check_when("[{ claim: x, equals: }]", "[0].equals: `null` means that a claim is missing; use `exists: false`");
}

#[test]
fn words_and_patterns_are_checked() {
    check_group("{ mode: serch }", ".mode: expected `auto`, `search` or `full`, found `serch`; did you mean `search`?");
    check_group(
        "{ select: { risk: readonly } }",
        ".select.risk: expected `read_only`, `writes`, `destructive` or `open_world`, found `readonly`; did you mean `read_only`?",
    );
    check_group(
        "{ select: { risk: [writes, bad] } }",
        ".select.risk[1]: expected `read_only`, `writes`, `destructive` or `open_world`, found `bad`",
    );
    check_group(
        "{ select: { method: gett } }",
        ".select.method: expected `GET`, `HEAD`, `POST`, `PUT`, `PATCH`, `DELETE`, `OPTIONS` or `TRACE`, found `gett`; did you mean `GET`?",
    );
    check_policy(
        "verdict: dny",
        ".verdict: expected `allow`, `ask`, `deny` or `hide`, found `dny`; did you mean `deny`?",
    );
    check_group("{ select: { name: 'regex:(' } }", ".select.name: the regular expression is invalid: unclosed group");
    check_group(
        "{ exclude: [a, 'regex:['] }",
        ".exclude[1]: the regular expression is invalid: unclosed character class",
    );
    check_group(
        &format!("{{ select: {{ path: {} }} }}", "x".repeat(501)),
        ".select.path: a pattern has at most 500 bytes, and this one has 501",
    );
    check_group(
        "{ tools: [git__] }",
        ".tools[0]: `git__` is not a tool name: the tool is missing after the separator; write `source__tool`",
    );
    check_group("{ tools: ['git__*'] }", ".tools[0]: `git__*` is a glob; write it as `name` under `select`");
}

#[test]
fn a_condition_has_a_claim_and_one_test() {
    check_when(
        "[{ claim: x }]",
        "[0]: needs a test: one of `equals`, `not_equals`, `contains`, `not_contains`, `matches`, `exists`, `in` or `not_in`",
    );
    check_when(
        "[{ claim: x, equals: 1, in: [2] }]",
        "[0]: has two tests, `equals` and `in`; write a condition for each",
    );
    check_when(
        "[{ equals: 1 }]",
        "[0]: needs `claim`: the path of a claim, such as `realm_access.roles` or `caller.kind`",
    );
    check_when(
        "[{ claim: a..b, equals: 1 }]",
        "[0].claim: the path of a claim has an empty part; write a literal dot as `\\.`",
    );
    check_when(
        "[{ claim: caller.name, equals: 1 }]",
        "[0].claim: there is no fact `caller.name`; the known ones are caller.kind, caller.role, caller.issuer, caller.token",
    );
    check_when("[{ claim: a, in: x }]", "[0].in: expected a list with at least one value");
    check_when("[{ claim: a, exists: 1 }]", "[0].exists: expected true or false, found a number");
    check_when("[{ claim: a, matches: 1 }]", "[0].matches: expected a pattern as text");
    check_when(
        "[{ claim: a, matches: 'regex:*' }]",
        "[0].matches: the regular expression is invalid: repetition operator missing expression",
    );
}

#[test]
fn names_are_required_valid_and_unique() {
    let allowed = "use lower-case letters, digits, `_` and `-`, at most 64 characters";
    check("groups: { Support: }", &format!("toolcrib.yaml:1: groups: `Support` is not a valid group name: {allowed}"));
    check(
        "groups: { g: }\naccess: [{ groups: [g] }]",
        "toolcrib.yaml:2: access[0]: needs `name`: it stands in messages, commands and the history",
    );
    check(
        "policies:\n  - verdict: deny",
        "toolcrib.yaml:2: policies[0]: needs `name`: it stands in messages, commands and the history",
    );
    check(
        "policies:\n  - { name: a b, verdict: deny }",
        &format!("toolcrib.yaml:2: policies[0].name: `a b` is not a valid policy name: {allowed}"),
    );
    check(
        "policies:\n  - { name: a, verdict: deny }\n  - { name: a, verdict: ask }",
        "toolcrib.yaml:3: policies[1].name: there is another policy `a` in line 2; rename one",
    );
    check("groups:\n  a: {}\n  a: {}", "toolcrib.yaml:3: groups: duplicate key `a`, first set in line 2; keep one");
}

#[test]
fn unknown_groups_suggest_the_nearest_group() {
    check(
        "groups: { support: }\naccess:\n  - name: a\n    groups:\n      - support\n      - suport",
        "toolcrib.yaml:6: access[0].groups[1]: unknown group `suport`; did you mean `support`?",
    );
    check(
        "groups: { support: }\npolicies: [{ name: a, match: { group: x }, verdict: deny }]",
        "toolcrib.yaml:2: policies[0].match.group: unknown group `x`",
    );
    let none = "needs `groups`: an access rule gives at least one group";
    check("access: [{ name: a }]", &format!("toolcrib.yaml:1: access[0]: {none}"));
    check("access: [{ name: a, groups: [] }]", &format!("toolcrib.yaml:1: access[0]: {none}"));
}

#[test]
fn contradictions_name_the_line_of_the_selector_or_condition() {
    check(
        "groups:\n  g:\n    select:\n      - {}\n      - { tags: a, without_tags: [b, a] }",
        "toolcrib.yaml:5: groups.g.select[1]: `a` is both in `tags` and in `without_tags`",
    );
    check_group(
        "{ select: { method: get, risk: destructive } }",
        ".select: an operation with `method: GET` is `read_only`, not `destructive`",
    );
    check(
        "groups:\n  g:\n    exclude: [a__c]\n    tools:\n      - a__b\n      - a__c",
        "toolcrib.yaml:6: groups.g.tools[1]: `a__c` is both in `tools` and in `exclude`",
    );
    check(
        "groups: { g: }\naccess:\n  - name: a\n    groups: [g]\n    when:\n      - { claim: x, equals: 1 }\n      - { claim: y, equals: 1 }\n      - { claim: x, not_equals: 1 }",
        "toolcrib.yaml:8: access[0].when[2]: no caller can meet both `x: equals 1` and `x: not_equals 1`",
    );
    check_policy(
        "verdict: deny, match: { risk: [writes, read_only] }",
        ".match: no tool is both `writes` and `read_only`",
    );
    check_policy(
        "verdict: deny, match: { when: [{ claim: x, exists: false }, { claim: x, equals: 1 }] }",
        ".match.when[1]: no caller can meet both `x: exists false` and `x: equals 1`",
    );
}

#[test]
fn long_lists_and_texts_are_refused() {
    let list = |item: &str, count: usize| vec![item; count].join(", ");
    let tools = (0..1001).map(|index| format!("a__{index}")).collect::<Vec<_>>().join(", ");
    check_group(&format!("{{ select: [{}] }}", list("{}", 101)), ".select: at most 100 are allowed, found 101");
    check_group(&format!("{{ tools: [{tools}] }}"), ".tools: at most 1000 are allowed, found 1001");
    check_group(&format!("{{ exclude: [{}] }}", list("a", 101)), ".exclude: at most 100 are allowed, found 101");
    check_group(&format!("{{ essential: [{}] }}", list("a", 101)), ".essential: at most 100 are allowed, found 101");
    check_group(&format!("{{ title: {} }}", "é".repeat(201)), ".title: has 201 characters; at most 200 are allowed");
    check_group(
        &format!("{{ instructions: {} }}", "x".repeat(8193)),
        ".instructions: has 8193 bytes; at most 8192 are allowed",
    );
    check_when(&format!("[{}]", list("{ claim: a, equals: 1 }", 33)), ": at most 32 are allowed, found 33");
    let groups = (0..1001).map(|index| format!("g{index}: {{}}")).collect::<Vec<_>>().join(", ");
    check(&format!("groups: {{ {groups} }}"), "toolcrib.yaml:1: groups: at most 1000 are allowed, found 1001");
}

#[test]
fn all_errors_of_a_file_are_reported_together() {
    check(
        "groups: { A: { mode: x } }\naccess: [{ name: a }]\npolicies: [{ verdict: no }]\ndefaults: { tll: 1m }",
        "toolcrib.yaml:1: groups: `A` is not a valid group name: use lower-case letters, digits, `_` and `-`, at most 64 characters\n\
         toolcrib.yaml:1: groups.A.mode: expected `auto`, `search` or `full`, found `x`\n\
         toolcrib.yaml:2: access[0]: needs `groups`: an access rule gives at least one group\n\
         toolcrib.yaml:3: policies[0]: needs `name`: it stands in messages, commands and the history\n\
         toolcrib.yaml:3: policies[0].verdict: expected `allow`, `ask`, `deny` or `hide`, found `no`\n\
         toolcrib.yaml:4: defaults: unknown key `tll`; did you mean `ttl`?",
    );
}
