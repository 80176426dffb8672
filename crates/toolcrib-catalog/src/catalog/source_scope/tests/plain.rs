//! The rules as the documentation states them, evaluated on their JSON. Simple rather than fast, and without code of the
//! real evaluation, so that both can only agree if both are right.

use super::*;

fn glob(pattern: &[char], text: &[char]) -> bool {
    match pattern {
        [] => text.is_empty(),
        ['*', rest @ ..] => (0..=text.len()).any(|skipped| glob(rest, &text[skipped..])),
        ['?', rest @ ..] => !text.is_empty() && glob(rest, &text[1..]),
        [letter, rest @ ..] => text.first() == Some(letter) && glob(rest, &text[1..]),
    }
}

fn pattern_matches(pattern: &Value, text: &str) -> bool {
    let pattern = pattern.as_str().unwrap();
    match pattern {
        "regex:^(get|list)_" => text.starts_with("get_") || text.starts_with("list_"),
        "regex:delete" => text.contains("delete"),
        glob_text => {
            let letters = |text: &str| text.chars().collect::<Vec<_>>();
            glob(&letters(glob_text), &letters(text))
        }
    }
}

fn shown_name(source: &RuledSource, tool: &RuledTool) -> String {
    let name = tool.name.replace('.', "_");
    if source.kind == "builtin" { name } else { format!("{}__{name}", source.id) }
}

fn tags(source: &RuledSource, tool: &RuledTool) -> BTreeSet<&'static str> {
    let own = if source.kind == "openapi" { tool.tags.as_slice() } else { &[] };
    source.tags.iter().chain(own).copied().collect()
}

fn risks(source: &RuledSource, tool: &RuledTool) -> Vec<&'static str> {
    if source.kind == "openapi" {
        return vec![match tool.method {
            "GET" | "HEAD" => "read_only",
            "DELETE" => "destructive",
            _ => "writes",
        }];
    }
    if !source.trust_hints {
        return vec!["destructive", "open_world"];
    }
    let [read_only, destructive, open_world] = tool.hints;
    let effect = match (read_only.unwrap_or(false), destructive.unwrap_or(true)) {
        (true, _) => "read_only",
        (false, false) => "writes",
        (false, true) => "destructive",
    };
    let mut risks = vec![effect];
    if open_world.unwrap_or(true) {
        risks.push("open_world");
    }
    risks
}

fn selector_matches(selector: &Value, source: &RuledSource, tool: &RuledTool) -> bool {
    let shown = shown_name(source, tool);
    let is_openapi = source.kind == "openapi";
    let names =
        |value: &Value| value.as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect();
    selector.as_object().unwrap().iter().all(|(key, value)| match key.as_str() {
        "source" => pattern_matches(value, source.id),
        "name" => pattern_matches(value, &shown) || pattern_matches(value, tool.name),
        "tags" => {
            let wanted: Vec<String> = names(value);
            wanted.iter().all(|tag| tags(source, tool).contains(tag.as_str()))
        }
        "without_tags" => {
            let unwanted: Vec<String> = names(value);
            unwanted.iter().all(|tag| !tags(source, tool).contains(tag.as_str()))
        }
        "method" => is_openapi && value == tool.method,
        "path" => is_openapi && pattern_matches(value, tool.path),
        "risk" => {
            let wanted: Vec<String> = names(value);
            wanted.iter().all(|risk| risks(source, tool).contains(&risk.as_str()))
        }
        // Of policies; looked at elsewhere.
        "group" | "when" => true,
        other => panic!("{other}"),
    })
}

fn is_in_group(group: &Value, source: &RuledSource, tool: &RuledTool) -> bool {
    let shown = shown_name(source, tool);
    let list = |key: &str| group[key].as_array().unwrap().clone();
    let is_named = list("tools").iter().any(|name| match name.as_str().unwrap() {
        "zendesk_eu/a.b" => source.id == "zendesk_eu" && tool.name == "a.b",
        name => name == shown,
    });
    let is_selected = list("select").iter().any(|selector| selector_matches(selector, source, tool));
    let is_excluded =
        list("exclude").iter().any(|pattern| pattern_matches(pattern, &shown) || pattern_matches(pattern, tool.name));
    (is_named || is_selected) && !is_excluded
}

fn find_claim(claim: &str, caller: &SampleCaller) -> Value {
    match claim {
        "caller.kind" => json!(caller.kind),
        "caller.role" => json!(caller.role.as_str()),
        "caller.issuer" if caller.kind == "jwt" => json!("https://id"),
        // The name and the id of the token, also of the one that a session of the console was opened with.
        "caller.token" if ["token", "console"].contains(&caller.kind) => json!(["ada", "0123456789ab"]),
        "caller.issuer" | "caller.token" => Value::Null,
        "deep.a\\.b" => caller.claims["deep"]["a.b"].clone(),
        name => caller.claims[name].clone(),
    }
}

fn condition_holds(condition: &Value, caller: &SampleCaller) -> bool {
    let claim = find_claim(condition["claim"].as_str().unwrap(), caller);
    let elements: Vec<Value> = match &claim {
        Value::Null => Vec::new(),
        Value::Array(elements) => elements.clone(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => vec![claim.clone()],
    };
    let (test, value) = condition.as_object().unwrap().iter().find(|(key, _)| *key != "claim").unwrap();
    let equals = || claim == *value || elements.contains(value);
    let contains = || match (&claim, value) {
        (Value::String(text), Value::String(part)) => text.contains(part.as_str()),
        (Value::Array(elements), part) => elements.contains(part),
        _ => false,
    };
    let is_listed = || value.as_array().unwrap().iter().any(|listed| elements.contains(listed));
    match test.as_str() {
        "equals" => equals(),
        "not_equals" => !equals(),
        "contains" => contains(),
        "not_contains" => !contains(),
        "matches" => {
            let mut texts = elements.iter().filter_map(Value::as_str);
            texts.any(|text| pattern_matches(value, text))
        }
        "exists" => claim.is_null() != value.as_bool().unwrap(),
        "in" => is_listed(),
        "not_in" => !is_listed(),
        other => panic!("{other}"),
    }
}

fn all_hold(conditions: &Value, caller: &SampleCaller) -> bool {
    conditions.as_array().unwrap().iter().all(|condition| condition_holds(condition, caller))
}

/// Groups that the caller sees; `None` for everything.
fn visible_groups(rules: &SampleRules, caller: &SampleCaller) -> Option<Vec<String>> {
    if !caller.groups.is_empty() {
        return Some(caller.groups.iter().map(|group| (*group).to_owned()).collect());
    }
    if caller.role == Role::Admin || rules.access.is_empty() {
        return None;
    }
    let applicable = rules.access.iter().filter(|rule| rule["active"] == true && all_hold(&rule["when"], caller));
    let names = applicable.flat_map(|rule| rule["groups"].as_array().unwrap().clone());
    Some(names.map(|name| name.as_str().unwrap().to_owned()).collect())
}

/// Whether the caller's groups have a tool, and what narrows its view leaves it in.
pub(super) fn is_included(rules: &SampleRules, caller: &SampleCaller, source: &RuledSource, tool: &RuledTool) -> bool {
    let has_tool =
        |name: &String| rules.groups.get(name.as_str()).is_some_and(|group| is_in_group(group, source, tool));
    let groups = visible_groups(rules, caller);
    let ViewNarrowing { group, only, .. } = &caller.narrowing;
    let shown = shown_name(source, tool);
    // The endpoint of a group that the caller does not see has no tools.
    let is_at_endpoint =
        group.as_ref().is_none_or(|name| groups.as_ref().is_none_or(|groups| groups.contains(name)) && has_tool(name));
    let is_named = |glob: &String| {
        let glob = json!(glob);
        pattern_matches(&glob, &shown) || pattern_matches(&glob, tool.name)
    };
    groups.as_ref().is_none_or(|groups| groups.iter().any(has_tool))
        && is_at_endpoint
        && (only.is_empty() || only.iter().any(is_named))
}

/// Policies that match, by their positions and with their verdicts. One about a group that does not exist matches
/// every tool that its other keys match.
pub(super) fn matching_policies(
    rules: &SampleRules,
    caller: &SampleCaller,
    source: &RuledSource,
    tool: &RuledTool,
) -> Vec<(usize, Verdict)> {
    let matching = rules.policies.iter().enumerate().filter(|(_, policy)| {
        let matches = &policy["match"];
        let group = matches.get("group").and_then(|name| rules.groups.get(name.as_str().unwrap()));
        let in_group = group.is_none_or(|group| is_in_group(group, source, tool));
        in_group && all_hold(&matches["when"], caller) && selector_matches(matches, source, tool)
    });
    let verdict = |policy: &Value| Verdict::parse(policy["verdict"].as_str().unwrap()).unwrap();
    matching.map(|(index, policy)| (index, verdict(policy))).collect()
}

/// The strictest of the source's verdict and those of all policies; of a tool that is not included, `hide`.
pub(super) fn verdict(
    rules: &SampleRules,
    caller: &SampleCaller,
    source: &RuledSource,
    tool: &RuledTool,
    source_verdict: Verdict,
) -> Verdict {
    if !is_included(rules, caller, source, tool) {
        return Verdict::Hide;
    }
    let policies = matching_policies(rules, caller, source, tool);
    policies.into_iter().map(|(_, verdict)| verdict).fold(source_verdict, Verdict::max)
}

/// Whether the caller sees a tool with this verdict.
pub(super) fn is_visible(
    rules: &SampleRules,
    caller: &SampleCaller,
    source: &RuledSource,
    tool: &RuledTool,
    verdict: Verdict,
) -> bool {
    let sees_all = caller.role == Role::Admin && !caller.narrowing.as_agent;
    is_included(rules, caller, source, tool) && (sees_all || verdict < Verdict::Deny)
}
