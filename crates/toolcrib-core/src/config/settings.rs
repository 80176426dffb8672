//! The settings of a source, those under `defaults`, `expose`, and `identity`.

use super::node::{Node, Value, joined};
use super::reader::{Reader, Section, Zero};
use super::{Expose, Identity, Loopback, Mode, source};
use crate::policy::{Rule, Rules, Verdict};
use crate::source::{Lifecycle, OnConflict, ResultText, Settings};
use crate::text::did_you_mean;

/// What may stand under `defaults` and on a source.
const DEFAULTS: [&str; 10] = [
    "ttl",
    "connect_timeout",
    "first_start_timeout",
    "discovery_timeout",
    "call_timeout",
    "idle",
    "result_limit",
    "on_conflict",
    "lifecycle",
    "results",
];
const IDENTITY: [&str; 1] = ["loopback"];
const EXPOSE: [&str; 4] = ["mode", "full_below_tokens", "essential", "prefix"];

const ON_CONFLICT: [(&str, OnConflict); 2] = [("exclude", OnConflict::Exclude), ("keep", OnConflict::Keep)];
const LIFECYCLE: [(&str, Lifecycle); 3] =
    [("shared", Lifecycle::Shared), ("transient", Lifecycle::Transient), ("per_client", Lifecycle::PerClient)];
const RESULTS: [(&str, ResultText); 2] = [("clean", ResultText::Clean), ("raw", ResultText::Raw)];
const VERDICTS: [(&str, Verdict); 4] =
    [("allow", Verdict::Allow), ("ask", Verdict::Ask), ("deny", Verdict::Deny), ("hide", Verdict::Hide)];

pub(super) fn read(reader: &mut Reader<'_>, section: &Section<'_>) -> Settings {
    Settings {
        enabled: reader.flag(section, "enabled"),
        title: reader.text(section, "title"),
        tags: reader.texts(section, "tags"),
        essential: reader.texts(section, "essential"),
        tools: rules(reader, section),
        ..shared(reader, section)
    }
}

pub(super) fn read_defaults(reader: &mut Reader<'_>, section: &Section<'_>) -> Settings {
    for entry in section.entries.iter().filter(|entry| !DEFAULTS.contains(&entry.key.as_str())) {
        let message = if source::KEYS.contains(&entry.key.as_str()) {
            format!("`{}` stands on a source, not here", entry.key)
        } else {
            format!("unknown key `{}`{}", entry.key, did_you_mean(&entry.key, DEFAULTS))
        };
        reader.complain(entry.line, &section.path, message);
    }
    shared(reader, section)
}

pub(super) fn read_expose(reader: &mut Reader<'_>, section: &Section<'_>) -> Expose {
    reader.unknown_keys(section, &EXPOSE);
    let usual = Expose::default();
    let modes = Mode::ALL.map(|mode| (mode.as_str(), mode));
    let mode = section.get("mode").and_then(|node| reader.choice(node, &joined(&section.path, "mode"), &modes));
    Expose {
        mode: mode.unwrap_or(usual.mode),
        full_below_tokens: reader.count(section, "full_below_tokens").unwrap_or(usual.full_below_tokens),
        essential: reader.texts(section, "essential"),
        prefix: reader.flag(section, "prefix").unwrap_or(usual.prefix),
    }
}

pub(super) fn read_identity(reader: &mut Reader<'_>, section: &Section<'_>) -> Identity {
    reader.unknown_keys(section, &IDENTITY);
    let choices = Loopback::ALL.map(|loopback| (loopback.as_str(), loopback));
    let at = joined(&section.path, "loopback");
    let loopback = section.get("loopback").and_then(|node| reader.choice(node, &at, &choices));
    Identity { loopback: loopback.unwrap_or_default() }
}

fn shared(reader: &mut Reader<'_>, section: &Section<'_>) -> Settings {
    let at = |key: &str| joined(&section.path, key);
    let lifecycle = section.get("lifecycle").and_then(|node| reader.choice(node, &at("lifecycle"), &LIFECYCLE));
    Settings {
        ttl: reader.duration(section, "ttl", Zero::Allowed),
        connect_timeout: reader.duration(section, "connect_timeout", Zero::Refused),
        first_start_timeout: reader.duration(section, "first_start_timeout", Zero::Refused),
        discovery_timeout: reader.duration(section, "discovery_timeout", Zero::Refused),
        call_timeout: reader.duration(section, "call_timeout", Zero::Refused),
        idle: reader.duration(section, "idle", Zero::Allowed),
        result_limit: reader.size(section, "result_limit"),
        on_conflict: section.get("on_conflict").and_then(|node| reader.choice(node, &at("on_conflict"), &ON_CONFLICT)),
        lifecycle,
        results: section.get("results").and_then(|node| reader.choice(node, &at("results"), &RESULTS)),
        ..Settings::default()
    }
}

/// A map of globs and verdicts, or a list of such maps, of which all but the first only restrict.
pub(super) fn rules(reader: &mut Reader<'_>, section: &Section<'_>) -> Rules {
    let path = joined(&section.path, "tools");
    let Some(node) = section.get("tools") else { return Rules::default() };
    let Value::List(lists) = &node.value else { return rule_list(reader, node, &path) };
    let mut lists = lists.iter().enumerate().map(|(index, list)| rule_list(reader, list, &format!("{path}[{index}]")));
    let own = lists.next().unwrap_or_default();
    lists.fold(own, Rules::restricted_by)
}

fn rule_list(reader: &mut Reader<'_>, node: &Node, path: &str) -> Rules {
    let Some(globs) = reader.section(node, path) else { return Rules::default() };
    let rules = globs.entries.iter().filter_map(|entry| {
        let verdict = reader.choice(&entry.node, &joined(path, &entry.key), &VERDICTS)?;
        Some(Rule { glob: entry.key.clone(), verdict })
    });
    Rules::new(rules.collect())
}

pub(super) fn lifecycle_name(lifecycle: Lifecycle) -> &'static str {
    match lifecycle {
        Lifecycle::Shared => "shared",
        Lifecycle::Transient => "transient",
        Lifecycle::PerClient => "per_client",
    }
}

pub(super) fn results_name(results: ResultText) -> &'static str {
    match results {
        ResultText::Clean => "clean",
        ResultText::Raw => "raw",
    }
}

pub(super) fn on_conflict_name(on_conflict: OnConflict) -> &'static str {
    match on_conflict {
        OnConflict::Exclude => "exclude",
        OnConflict::Keep => "keep",
    }
}
