//! Writes a source as the keys of a configuration file: the inverse of the modules `source` and `settings`.
//!
//! The result parses back to an equal source, which a round-trip test checks. The exports, the display of the
//! configuration, and trust all use it, so a key that is forgotten here is neither exported nor asked about.
//!
//! Each text is written in one of three ways, by how likely it is to be a secret:
//!
//! ```text
//! secret_text   env values, headers, credentials: masked as a whole
//! url_text      URLs: login, query and key-like segments are masked
//! plain_text    commands and paths: masked only where they look like a secret
//! ```

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use toolcrib_core::policy::{Rule, Rules};
use toolcrib_core::source::{
    Auth, OpenApiSource, PollSettings, ProtocolVersion, RemoteSource, Source, SourceKind, SourceSettings,
};
use toolcrib_core::time::format_duration;

use super::secret_mask::{mask_args, mask_literals, mask_text, mask_url};
use super::size::format_size;

/// How literal values that may be secret are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Secrets {
    /// Literals become `***`; references stay.
    Masked,
    /// Literals are written unchanged.
    Plain,
}

/// Returns the keys that a file has under the source's name. Unset keys are left out.
/// The order of the keys is fixed, so that exports and hashes are stable.
pub(super) fn source_to_keys(source: &Source, secrets: Secrets) -> Map<String, Value> {
    let mut keys = Map::new();
    match &source.kind {
        SourceKind::Stdio(stdio) => {
            keys.insert("command".into(), json!(plain_text(&stdio.command, secrets)));
            let args = match secrets {
                Secrets::Masked => mask_args(&stdio.args),
                Secrets::Plain => stdio.args.clone(),
            };
            insert_if(&mut keys, "args", !args.is_empty(), json!(args));
            insert_if(&mut keys, "env", !stdio.env.is_empty(), pairs_to_value(&stdio.env, secrets));
            let cwd = stdio.cwd.as_deref().map(|cwd| plain_text(cwd, secrets));
            insert_if(&mut keys, "cwd", cwd.is_some(), json!(cwd));
            insert_if(&mut keys, "inherit_env", !stdio.inherit_env.is_empty(), json!(stdio.inherit_env));
        }
        SourceKind::Http(remote) => insert_remote(&mut keys, remote, secrets),
        SourceKind::Sse(remote) => {
            insert_remote(&mut keys, remote, secrets);
            // Streamable HTTP is the default of a URL, so only the older transport is written.
            keys.insert("transport".into(), json!("sse"));
        }
        SourceKind::OpenApi(openapi) => insert_openapi(&mut keys, openapi, secrets),
        SourceKind::Workflow(workflow) => {
            keys.insert("workflow".into(), json!(plain_text(&workflow.document, secrets)));
        }
        SourceKind::Builtin(builtin) => {
            // The reader accepts the word `all` or a list of names.
            let all = builtin.tools == ["all"];
            keys.insert("builtin".into(), if all { json!("all") } else { json!(builtin.tools) });
            let roots: Vec<String> = builtin.roots.iter().map(|root| plain_text(root, secrets)).collect();
            insert_if(&mut keys, "roots", !roots.is_empty(), json!(roots));
            insert_if(&mut keys, "allow_private", builtin.allow_private, json!(true));
        }
    }
    insert_settings(&mut keys, &source.settings);
    // Times, switches and titles are no secrets, and neither are the default values in their references.
    for (key, reference) in &source.settings.references {
        keys.insert(key.clone(), json!(reference));
    }
    keys
}

/// Inserts the settings that are set. Values that equal a default are written if the definition sets them.
/// Whether a setting was set matters: unset ones follow `defaults`.
fn insert_settings(keys: &mut Map<String, Value>, settings: &SourceSettings) {
    let durations = [
        ("ttl", settings.ttl),
        ("connect_timeout", settings.connect_timeout),
        ("first_start_timeout", settings.first_start_timeout),
        ("discovery_timeout", settings.discovery_timeout),
        ("call_timeout", settings.call_timeout),
        ("idle", settings.idle),
    ];
    for (key, duration) in durations {
        insert_if(keys, key, duration.is_some(), json!(duration.map(format_duration)));
    }
    insert_if(keys, "result_limit", settings.result_limit.is_some(), json!(settings.result_limit.map(format_size)));
    insert_if(keys, "on_conflict", settings.on_conflict.is_some(), json!(settings.on_conflict));
    insert_if(keys, "lifecycle", settings.lifecycle.is_some(), json!(settings.lifecycle));
    insert_if(keys, "results", settings.results.is_some(), json!(settings.results));
    let protocol = settings.protocol.map(ProtocolVersion::as_str);
    insert_if(keys, "protocol", protocol.is_some(), json!(protocol));
    insert_if(keys, "validate", settings.validate.is_some(), json!(settings.validate));
    insert_if(keys, "trust_hints", settings.trust_hints.is_some(), json!(settings.trust_hints));
    insert_if(keys, "enabled", settings.enabled.is_some(), json!(settings.enabled));
    insert_if(keys, "title", settings.title.is_some(), json!(settings.title));
    insert_if(keys, "tags", !settings.tags.is_empty(), json!(settings.tags));
    insert_if(keys, "essential", !settings.essential.is_empty(), json!(settings.essential));
    insert_if(keys, "tools", !settings.tools.is_empty(), rules_to_value(&settings.tools));
    insert_if(keys, "nodes", !settings.nodes.is_empty(), json!(settings.nodes));
    insert_if(keys, "limits", !settings.limits.is_empty(), json!(settings.limits));
}

/// Writes rules as one map, or as a list of maps where other files restrict the source too.
/// Both forms are read by `settings::read_rules`.
pub(super) fn rules_to_value(rules: &Rules) -> Value {
    let map = |list: &[Rule]| -> Map<String, Value> {
        list.iter().map(|rule| (rule.glob.clone(), json!(rule.verdict.as_str()))).collect()
    };
    // A single list is the usual case and is written without the outer list.
    let mut lists: Vec<Value> = rules.lists().map(|list| map(list).into()).collect();
    if lists.len() > 1 { lists.into() } else { lists.pop().unwrap_or_default() }
}

/// Inserts the keys of a server at a URL.
fn insert_remote(keys: &mut Map<String, Value>, remote: &RemoteSource, secrets: Secrets) {
    keys.insert("url".into(), json!(url_text(&remote.url, secrets)));
    insert_if(keys, "headers", !remote.headers.is_empty(), pairs_to_value(&remote.headers, secrets));
    if let Some(auth) = &remote.auth {
        keys.insert("auth".into(), auth_to_value(auth, secrets));
    }
}

/// Inserts the keys of an OpenAPI source.
fn insert_openapi(keys: &mut Map<String, Value>, openapi: &OpenApiSource, secrets: Secrets) {
    keys.insert("openapi".into(), json!(url_text(&openapi.document, secrets)));
    let base_url = openapi.base_url.as_ref().map(|url| url_text(url, secrets));
    insert_if(keys, "base_url", base_url.is_some(), json!(base_url));
    let lists = [
        ("include", &openapi.include),
        ("exclude", &openapi.exclude),
        ("include_tags", &openapi.include_tags),
        ("methods", &openapi.methods),
    ];
    for (key, list) in lists {
        insert_if(keys, key, !list.is_empty(), json!(list));
    }
    let allow_refs: Vec<String> = openapi.allow_refs.iter().map(|location| url_text(location, secrets)).collect();
    insert_if(keys, "allow_refs", !allow_refs.is_empty(), json!(allow_refs));
    insert_if(keys, "headers", !openapi.headers.is_empty(), pairs_to_value(&openapi.headers, secrets));
    insert_if(keys, "variables", !openapi.variables.is_empty(), pairs_to_value(&openapi.variables, secrets));
    if let Some(auth) = &openapi.auth {
        keys.insert("auth".into(), auth_to_value(auth, secrets));
    }
    insert_if(keys, "allow_private", openapi.allow_private, json!(true));
    // The globs of `poll` are names of tools and never secret.
    let polls: Map<String, Value> =
        openapi.poll.iter().map(|(glob, poll)| (glob.clone(), poll_to_value(poll, secrets))).collect();
    insert_if(keys, "poll", !polls.is_empty(), Value::Object(polls));
}

/// Writes one entry of `poll`.
fn poll_to_value(poll: &PollSettings, secrets: Secrets) -> Value {
    let mut keys = Map::new();
    keys.insert("url".into(), json!(plain_text(&poll.url, secrets)));
    keys.insert("status".into(), json!(poll.status));
    insert_if(&mut keys, "result", poll.result.is_some(), json!(poll.result));
    keys.insert("done".into(), json!(poll.done));
    insert_if(&mut keys, "failed", !poll.failed.is_empty(), json!(poll.failed));
    insert_if(&mut keys, "interval", poll.interval.is_some(), json!(poll.interval.map(format_duration)));
    keys.into()
}

/// Writes `auth`. Names of headers, parameters and schemes stay visible; they tell which credential is meant.
fn auth_to_value(auth: &Auth, secrets: Secrets) -> Value {
    match auth {
        Auth::Bearer(token) => json!({ "bearer": secret_text(token, secrets) }),
        Auth::Basic { user, password } => {
            // The user is masked too: some services take their API key as the user name.
            json!({ "basic": { "user": secret_text(user, secrets), "password": secret_text(password, secrets) } })
        }
        Auth::ApiKey { name, location, value } => {
            let mut keys = Map::new();
            insert_if(&mut keys, "name", !name.is_empty(), json!(name));
            insert_if(&mut keys, "in", location.is_some(), json!(location));
            keys.insert("value".into(), json!(secret_text(value, secrets)));
            json!({ "api_key": keys })
        }
        Auth::Oauth2 { token_url, client_id, client_secret, scopes } => {
            let mut keys = Map::new();
            insert_if(&mut keys, "token_url", !token_url.is_empty(), json!(url_text(token_url, secrets)));
            keys.insert("client_id".into(), json!(secret_text(client_id, secrets)));
            keys.insert("client_secret".into(), json!(secret_text(client_secret, secrets)));
            insert_if(&mut keys, "scopes", !scopes.is_empty(), json!(scopes));
            json!({ "oauth2": keys })
        }
        Auth::Schemes(schemes) => {
            let schemes = schemes.iter().map(|(name, auth)| (name.clone(), auth_to_value(auth, secrets)));
            json!({ "schemes": schemes.collect::<Map<_, _>>() })
        }
    }
}

/// Writes a map whose values may be secret, such as `env` and `headers`.
fn pairs_to_value(pairs: &BTreeMap<String, String>, secrets: Secrets) -> Value {
    pairs.iter().map(|(name, value)| (name.clone(), json!(secret_text(value, secrets)))).collect::<Map<_, _>>().into()
}

/// A URL, of which only the secret parts are masked.
pub(super) fn url_text(url: &str, secrets: Secrets) -> String {
    match secrets {
        Secrets::Masked => mask_url(url),
        Secrets::Plain => url.to_owned(),
    }
}

/// A text that is rarely secret, such as a path: masked only where it looks like a secret.
fn plain_text(text: &str, secrets: Secrets) -> String {
    match secrets {
        Secrets::Masked => mask_text(text),
        Secrets::Plain => text.to_owned(),
    }
}

/// A text that is masked as a whole, such as the value of a header.
fn secret_text(text: &str, secrets: Secrets) -> String {
    match secrets {
        Secrets::Masked => mask_literals(text),
        Secrets::Plain => text.to_owned(),
    }
}

/// Inserts a key unless it is unset, so that the result has only what a user would have written.
fn insert_if(keys: &mut Map<String, Value>, key: &str, is_set: bool, value: Value) {
    if is_set {
        keys.insert(key.to_owned(), value);
    }
}
