//! A source in the words of a configuration file: the way back from what `source` and `settings` read.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::auth::place_name;
use super::mask::{masked, shown_args, shown_text, shown_url};
use super::settings::{lifecycle_name, on_conflict_name, results_name};
use super::size::format_size;
use crate::policy::{Rule, Rules};
use crate::source::{Auth, Kind, OpenApi, Poll, Remote, Settings, Source};
use crate::time::format_duration;

/// Whether values that may be secret are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Secrets {
    /// References stay, anything literal becomes `***`.
    Masked,
    Plain,
}

pub(super) fn definition(source: &Source, secrets: Secrets) -> Map<String, Value> {
    let mut keys = Map::new();
    match &source.kind {
        Kind::Stdio(stdio) => {
            keys.insert("command".into(), json!(plain(&stdio.command, secrets)));
            let args = match secrets {
                Secrets::Masked => shown_args(&stdio.args),
                Secrets::Plain => stdio.args.clone(),
            };
            put(&mut keys, "args", !args.is_empty(), json!(args));
            put(&mut keys, "env", !stdio.env.is_empty(), pairs(&stdio.env, secrets));
            let cwd = stdio.cwd.as_deref().map(|cwd| plain(cwd, secrets));
            put(&mut keys, "cwd", cwd.is_some(), json!(cwd));
            put(&mut keys, "inherit_env", !stdio.inherit_env.is_empty(), json!(stdio.inherit_env));
        }
        Kind::Http(remote) => remote_keys(&mut keys, remote, secrets),
        Kind::Sse(remote) => {
            remote_keys(&mut keys, remote, secrets);
            keys.insert("transport".into(), json!("sse"));
        }
        Kind::OpenApi(openapi) => openapi_keys(&mut keys, openapi, secrets),
        Kind::Workflow(workflow) => {
            keys.insert("workflow".into(), json!(plain(&workflow.document, secrets)));
        }
        Kind::Builtin(builtin) => {
            let all = builtin.tools == ["all"];
            keys.insert("builtin".into(), if all { json!("all") } else { json!(builtin.tools) });
            let roots: Vec<String> = builtin.roots.iter().map(|root| plain(root, secrets)).collect();
            put(&mut keys, "roots", !roots.is_empty(), json!(roots));
            put(&mut keys, "allow_private", builtin.allow_private, json!(true));
        }
    }
    settings_keys(&mut keys, &source.settings);
    keys
}

fn settings_keys(keys: &mut Map<String, Value>, settings: &Settings) {
    let durations = [
        ("ttl", settings.ttl),
        ("connect_timeout", settings.connect_timeout),
        ("first_start_timeout", settings.first_start_timeout),
        ("discovery_timeout", settings.discovery_timeout),
        ("call_timeout", settings.call_timeout),
        ("idle", settings.idle),
    ];
    for (key, duration) in durations {
        put(keys, key, duration.is_some(), json!(duration.map(format_duration)));
    }
    put(keys, "result_limit", settings.result_limit.is_some(), json!(settings.result_limit.map(format_size)));
    put(keys, "on_conflict", settings.on_conflict.is_some(), json!(settings.on_conflict.map(on_conflict_name)));
    put(keys, "lifecycle", settings.lifecycle.is_some(), json!(settings.lifecycle.map(lifecycle_name)));
    put(keys, "results", settings.results.is_some(), json!(settings.results.map(results_name)));
    put(keys, "enabled", settings.enabled.is_some(), json!(settings.enabled));
    put(keys, "title", settings.title.is_some(), json!(settings.title));
    put(keys, "tags", !settings.tags.is_empty(), json!(settings.tags));
    put(keys, "essential", !settings.essential.is_empty(), json!(settings.essential));
    put(keys, "tools", !settings.tools.is_empty(), rules_keys(&settings.tools));
}

/// One map; where other files restrict the source too, a list of maps.
pub(super) fn rules_keys(rules: &Rules) -> Value {
    let map = |list: &[Rule]| -> Map<String, Value> {
        list.iter().map(|rule| (rule.glob.clone(), json!(rule.verdict.as_str()))).collect()
    };
    let mut lists: Vec<Value> = rules.lists().map(|list| map(list).into()).collect();
    if lists.len() > 1 { lists.into() } else { lists.pop().unwrap_or_default() }
}

fn remote_keys(keys: &mut Map<String, Value>, remote: &Remote, secrets: Secrets) {
    keys.insert("url".into(), json!(address(&remote.url, secrets)));
    put(keys, "headers", !remote.headers.is_empty(), pairs(&remote.headers, secrets));
    if let Some(auth) = &remote.auth {
        keys.insert("auth".into(), auth_keys(auth, secrets));
    }
}

fn openapi_keys(keys: &mut Map<String, Value>, openapi: &OpenApi, secrets: Secrets) {
    keys.insert("openapi".into(), json!(address(&openapi.document, secrets)));
    let base_url = openapi.base_url.as_ref().map(|url| address(url, secrets));
    put(keys, "base_url", base_url.is_some(), json!(base_url));
    let lists = [
        ("include", &openapi.include),
        ("exclude", &openapi.exclude),
        ("include_tags", &openapi.include_tags),
        ("methods", &openapi.methods),
    ];
    for (key, list) in lists {
        put(keys, key, !list.is_empty(), json!(list));
    }
    let allow_refs: Vec<String> = openapi.allow_refs.iter().map(|place| address(place, secrets)).collect();
    put(keys, "allow_refs", !allow_refs.is_empty(), json!(allow_refs));
    put(keys, "headers", !openapi.headers.is_empty(), pairs(&openapi.headers, secrets));
    put(keys, "variables", !openapi.variables.is_empty(), pairs(&openapi.variables, secrets));
    if let Some(auth) = &openapi.auth {
        keys.insert("auth".into(), auth_keys(auth, secrets));
    }
    put(keys, "allow_private", openapi.allow_private, json!(true));
    let polls: Map<String, Value> =
        openapi.poll.iter().map(|(glob, poll)| (glob.clone(), poll_keys(poll, secrets))).collect();
    put(keys, "poll", !polls.is_empty(), Value::Object(polls));
}

fn poll_keys(poll: &Poll, secrets: Secrets) -> Value {
    let mut keys = Map::new();
    keys.insert("url".into(), json!(plain(&poll.url, secrets)));
    keys.insert("status".into(), json!(poll.status));
    put(&mut keys, "result", poll.result.is_some(), json!(poll.result));
    keys.insert("done".into(), json!(poll.done));
    put(&mut keys, "failed", !poll.failed.is_empty(), json!(poll.failed));
    put(&mut keys, "interval", poll.interval.is_some(), json!(poll.interval.map(format_duration)));
    keys.into()
}

fn auth_keys(auth: &Auth, secrets: Secrets) -> Value {
    match auth {
        Auth::Bearer(token) => json!({ "bearer": shown(token, secrets) }),
        Auth::Basic { user, password } => {
            // Some services take their key as the user's name.
            json!({ "basic": { "user": shown(user, secrets), "password": shown(password, secrets) } })
        }
        Auth::ApiKey { name, place, value } => {
            json!({ "api_key": { "name": name, "in": place_name(*place), "value": shown(value, secrets) } })
        }
        Auth::Oauth2 { token_url, client_id, client_secret, scopes } => {
            let mut keys = Map::new();
            keys.insert("token_url".into(), json!(address(token_url, secrets)));
            keys.insert("client_id".into(), json!(shown(client_id, secrets)));
            keys.insert("client_secret".into(), json!(shown(client_secret, secrets)));
            put(&mut keys, "scopes", !scopes.is_empty(), json!(scopes));
            json!({ "oauth2": keys })
        }
        Auth::Schemes(schemes) => {
            let each = schemes.iter().map(|(name, auth)| (name.clone(), auth_keys(auth, secrets)));
            json!({ "schemes": each.collect::<Map<_, _>>() })
        }
    }
}

fn pairs(pairs: &BTreeMap<String, String>, secrets: Secrets) -> Value {
    pairs.iter().map(|(name, value)| (name.clone(), json!(shown(value, secrets)))).collect::<Map<_, _>>().into()
}

fn address(url: &str, secrets: Secrets) -> String {
    match secrets {
        Secrets::Masked => shown_url(url),
        Secrets::Plain => url.to_owned(),
    }
}

/// A text that is rarely secret, such as a path.
fn plain(text: &str, secrets: Secrets) -> String {
    match secrets {
        Secrets::Masked => shown_text(text),
        Secrets::Plain => text.to_owned(),
    }
}

fn shown(text: &str, secrets: Secrets) -> String {
    match secrets {
        Secrets::Masked => masked(text),
        Secrets::Plain => text.to_owned(),
    }
}

fn put(keys: &mut Map<String, Value>, key: &str, is_set: bool, value: Value) {
    if is_set {
        keys.insert(key.to_owned(), value);
    }
}
