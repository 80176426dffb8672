//! JSON view of the merged configuration for `toolcrib config --json` and `GET /api/config`: every value with its
//! origin, literals that may be secret masked.
//!
//! ```json
//! {"sources": {"files": {"command": "npx", "origin": "toolcrib.yaml:2"}},
//!  "defaults": {"ttl": {"value": "10m", "origin": "toolcrib.yaml:4"},
//!               "idle": {"value": "5m", "origin": "default"}}}
//! ```
//!
//! Also the public entry to the masking functions of `secret_mask`.

use serde_json::{Map, Value, json};
use toolcrib_core::access_rules::NamedRule;
use toolcrib_core::source::Source;
use toolcrib_core::time::format_duration;

pub use super::secret_mask::{
    is_secret_name, mask_args, mask_args_for_trust, mask_literals, mask_text, mask_url, mask_variable_for_trust,
    secrets_in_args, secrets_in_url,
};

use super::rules::rules_to_sections;
use super::size::format_size;
use super::source_keys::{Secrets, source_to_keys};
use super::{Config, ConfigDiagnostic, ConfiguredSource, ConfiguredStore};

/// Renders the whole configuration, sources sorted by id.
pub fn show_config(config: &Config) -> Value {
    let mut sources: Vec<&ConfiguredSource> = config.sources.iter().collect();
    sources.sort_by(|a, b| a.id.cmp(&b.id));
    let sources: Map<String, Value> =
        sources.into_iter().map(|source| (source.id.to_string(), show_source(source))).collect();
    let rules = config.rules.iter();
    let rules = rules.map(|configured| (&configured.rule, format!("{}:{}", configured.file, configured.line)));
    let mut shown = json!({
        "sources": sources,
        "defaults": show_defaults(config),
        "expose": show_expose(config),
        "allow_commands": with_origin(config, "allow_commands", json!(config.allow_commands)),
        "allow_private_sources": with_origin(config, "allow_private_sources", json!(config.allow_private_sources)),
        "identity": show_identity(config),
        "public_url": with_origin(config, "public_url", json!(config.public_url)),
        "store": with_origin(config, "store", json!(config.store.as_ref().map(ConfiguredStore::mask_password))),
        "limits": with_origins(
            config,
            "limits",
            [
                ("calls_per_minute", json!(config.limits.calls_per_minute)),
                ("concurrent_calls", json!(config.limits.concurrent_calls)),
            ],
        ),
        "search": with_origins(config, "search", [("model", json!(config.search_model))]),
        "warm": with_origin(config, "warm", json!(config.warm.as_str())),
        "warnings": config.warnings.iter().map(ConfigDiagnostic::to_string).collect::<Vec<_>>(),
    });
    for (section, value) in show_rules(rules) {
        shown[section] = value;
    }
    shown
}

/// Renders rules with their origins, as the sections `groups`, `access` and `policies`.
pub fn show_rules<'r>(rules: impl IntoIterator<Item = (&'r NamedRule, String)>) -> Map<String, Value> {
    let rules: Vec<_> = rules.into_iter().map(|(rule, origin)| (rule, Some(origin))).collect();
    rules_to_sections(&rules)
}

/// Renders the keys of one source as a file would have them, with secrets masked.
pub fn show_source_keys(source: &Source) -> Value {
    source_to_keys(source, Secrets::Masked).into()
}

/// Renders a source, or the errors of an invalid one, with its origin.
/// `faults` and `origin` are no keys of a source, so a reader can tell them apart.
fn show_source(configured: &ConfiguredSource) -> Value {
    let mut keys = match &configured.source {
        Ok(source) => source_to_keys(source, Secrets::Masked),
        Err(errors) => {
            let errors: Vec<String> = errors.iter().map(ConfigDiagnostic::to_string).collect();
            Map::from_iter([("faults".to_owned(), json!(errors))])
        }
    };
    keys.insert("origin".into(), json!(format!("{}:{}", configured.file, configured.line)));
    keys.into()
}

/// Renders `defaults` with the values that apply, set or not.
/// A key that no file sets has the origin `default`.
fn show_defaults(config: &Config) -> Value {
    let defaults = &config.defaults;
    with_origins(
        config,
        "defaults",
        [
            ("ttl", json!(format_duration(defaults.ttl()))),
            ("connect_timeout", json!(format_duration(defaults.connect_timeout()))),
            ("first_start_timeout", json!(format_duration(defaults.first_start_timeout()))),
            ("discovery_timeout", json!(format_duration(defaults.discovery_timeout()))),
            ("call_timeout", json!(format_duration(defaults.call_timeout()))),
            ("idle", json!(format_duration(defaults.idle()))),
            ("result_limit", json!(format_size(defaults.result_limit()))),
            ("on_conflict", json!(defaults.on_conflict())),
            ("lifecycle", json!(defaults.lifecycle())),
            ("results", json!(defaults.results())),
            ("validate", json!(defaults.validate())),
            ("trust_hints", json!(defaults.trust_hints())),
        ],
    )
}

/// Renders `expose`.
fn show_expose(config: &Config) -> Value {
    let expose = &config.expose;
    with_origins(
        config,
        "expose",
        [
            ("mode", json!(expose.mode.as_str())),
            ("full_below_tokens", json!(expose.full_below_tokens)),
            ("essential", json!(expose.essential)),
            ("essential_patterns", json!(expose.essential_patterns)),
            ("prefix", json!(expose.prefix)),
        ],
    )
}

/// Renders `identity`.
fn show_identity(config: &Config) -> Value {
    let issuers: Vec<Value> = config.identity.issuers.iter().map(|issuer| issuer.to_keys(Secrets::Masked)).collect();
    let loopback = config.identity.loopback.as_str();
    with_origins(config, "identity", [("loopback", json!(loopback)), ("issuers", json!(issuers))])
}

/// Renders a section as `{key: {value, origin}}`.
fn with_origins<const N: usize>(config: &Config, section: &str, values: [(&str, Value); N]) -> Value {
    let keys = values
        .into_iter()
        .map(|(key, value)| (key.to_owned(), with_origin(config, &format!("{section}.{key}"), value)));
    keys.collect::<Map<_, _>>().into()
}

/// Pairs a value with the file and line that set it, or with `default`.
fn with_origin(config: &Config, path: &str, value: Value) -> Value {
    let origin = config.origins.get(path).map(ToString::to_string);
    json!({ "value": value, "origin": origin.as_deref().unwrap_or("default") })
}
