//! What the environment says of single sources, for this process only: `TOOLCRIB_SOURCE_<ID>_ENABLED`, `_URL`, `_TOKEN`.

use std::collections::BTreeMap;
use std::fmt;

use super::fault::Fault;
use crate::source::{Auth, Kind, Remote, Source, SourceId};
use crate::text::did_you_mean;

/// The overrides by source, and the variables that make no sense.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Overrides {
    pub by_source: BTreeMap<SourceId, Override>,
    pub faults: Vec<Fault>,
}

#[derive(Clone, PartialEq, Eq, Default)]
pub struct Override {
    pub enabled: Option<bool>,
    pub url: Option<String>,
    pub token: Option<String>,
}

/// Picks the overrides of known sources out of an environment. An empty variable counts as unset.
pub fn overrides<'a>(
    environment: impl IntoIterator<Item = (String, String)>,
    known: impl IntoIterator<Item = &'a SourceId>,
) -> Overrides {
    let known: BTreeMap<String, &SourceId> =
        known.into_iter().map(|id| (id.as_str().to_ascii_uppercase(), id)).collect();
    // Sorted, so that faults come in one order whatever the environment's.
    let variables: BTreeMap<String, String> = environment
        .into_iter()
        .filter(|(name, value)| name.starts_with("TOOLCRIB_SOURCE_") && !value.trim().is_empty())
        .collect();
    let mut overrides = Overrides::default();
    for (name, value) in variables {
        let Some((id, what)) = name.strip_prefix("TOOLCRIB_SOURCE_").and_then(|rest| rest.rsplit_once('_')) else {
            overrides.fault(&name, "expected `TOOLCRIB_SOURCE_<ID>_ENABLED`, `…_URL` or `…_TOKEN`");
            continue;
        };
        let Some(source) = known.get(id) else {
            let id = id.to_ascii_lowercase();
            let near = did_you_mean(&id, known.values().map(|id| id.as_str()));
            overrides.fault(&name, format!("no source has the id `{id}`{near}"));
            continue;
        };
        let mut changed = overrides.by_source.get(*source).cloned().unwrap_or_default();
        match what {
            "ENABLED" => match flag(&value) {
                Some(enabled) => changed.enabled = Some(enabled),
                None => overrides.fault(&name, format!("expected `true` or `false`, found `{value}`")),
            },
            "URL" => changed.url = Some(value),
            "TOKEN" => changed.token = Some(value),
            _ => overrides.fault(&name, "ends in neither `_ENABLED`, `_URL` nor `_TOKEN`"),
        }
        if changed != Override::default() {
            overrides.by_source.insert((*source).clone(), changed);
        }
    }
    overrides
}

impl Override {
    /// The source as it is for this process. An address or a token changes nothing about a source without an address.
    pub fn apply(&self, source: &Source) -> Source {
        let mut source = source.clone();
        source.settings.enabled = self.enabled.or(source.settings.enabled);
        match &mut source.kind {
            Kind::Http(remote) | Kind::Sse(remote) => self.redirect(remote),
            Kind::OpenApi(openapi) => {
                if let Some(url) = &self.url {
                    openapi.base_url = Some(url.clone());
                }
                self.present(&mut openapi.headers, &mut openapi.auth);
            }
            Kind::Stdio(_) | Kind::Workflow(_) | Kind::Builtin(_) => {}
        }
        source
    }

    fn redirect(&self, remote: &mut Remote) {
        if let Some(url) = &self.url {
            remote.url = url.clone();
        }
        self.present(&mut remote.headers, &mut remote.auth);
    }

    fn present(&self, headers: &mut BTreeMap<String, String>, auth: &mut Option<Auth>) {
        if let Some(token) = &self.token {
            headers.retain(|name, _| !name.eq_ignore_ascii_case("authorization"));
            *auth = Some(Auth::Bearer(token.clone()));
        }
    }
}

impl Overrides {
    fn fault(&mut self, name: &str, message: impl AsRef<str>) {
        self.faults.push(Fault::new("environment", 0, name, message));
    }
}

/// Without the token, so that it reaches no log.
impl fmt::Debug for Override {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Override")
            .field("enabled", &self.enabled)
            .field("url", &self.url)
            .field("token", &self.token.as_ref().map(|_| "***"))
            .finish()
    }
}

fn flag(value: &str) -> Option<bool> {
    match value.trim().to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Some(true),
        "false" | "0" | "no" | "off" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{Settings, Stdio};

    fn id(id: &str) -> SourceId {
        SourceId::parse(id).unwrap()
    }

    fn check(variables: &[(&str, &str)], expected: &str) {
        let known = [id("docs"), id("my_docs"), id("my_url")];
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let found = overrides(variables, &known);
        let mut lines: Vec<String> = found.by_source.iter().map(|(id, change)| format!("{id} {change:?}")).collect();
        lines.extend(found.faults.iter().map(Fault::to_string));
        assert_eq!(lines.join("\n"), expected);
    }

    #[test]
    fn variables_belong_to_the_source_with_that_id() {
        check(&[("PATH", "/bin"), ("TOOLCRIB_DATA", "/x"), ("TOOLCRIB_SOURCE_DOCS_URL", "")], "");
        check(
            &[
                ("TOOLCRIB_SOURCE_DOCS_ENABLED", "False"),
                ("TOOLCRIB_SOURCE_MY_URL_TOKEN", "hunter2"),
                ("TOOLCRIB_SOURCE_MY_DOCS_URL", "http://x"),
            ],
            "docs Override { enabled: Some(false), url: None, token: None }\n\
             my_docs Override { enabled: None, url: Some(\"http://x\"), token: None }\n\
             my_url Override { enabled: None, url: None, token: Some(\"***\") }",
        );
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        check(
            &[
                ("TOOLCRIB_SOURCE_DOC_URL", "x"),
                ("TOOLCRIB_SOURCE_DOCS_ENABLED", "maybe"),
                ("TOOLCRIB_SOURCE_DOCS_COLOUR", "red"),
                ("TOOLCRIB_SOURCE_URL", "x"),
            ],
            "environment: TOOLCRIB_SOURCE_DOCS_COLOUR: ends in neither `_ENABLED`, `_URL` nor `_TOKEN`\n\
             environment: TOOLCRIB_SOURCE_DOCS_ENABLED: expected `true` or `false`, found `maybe`\n\
             environment: TOOLCRIB_SOURCE_DOC_URL: no source has the id `doc`; did you mean `docs`?\n\
             environment: TOOLCRIB_SOURCE_URL: expected `TOOLCRIB_SOURCE_<ID>_ENABLED`, `…_URL` or `…_TOKEN`",
        );
    }

    #[test]
    fn a_token_takes_the_place_of_a_header() {
        let change = Override { enabled: Some(false), url: Some("http://b".into()), token: Some("t".into()) };
        let headers = BTreeMap::from([("authorization".into(), "x".into()), ("Accept".into(), "y".into())]);
        let kind = Kind::Sse(Remote { url: "http://a".into(), headers, auth: None });
        let remote = Source { id: id("docs"), kind, settings: Settings::default() };
        let expected = Source {
            id: id("docs"),
            kind: Kind::Sse(Remote {
                url: "http://b".into(),
                headers: BTreeMap::from([("Accept".into(), "y".into())]),
                auth: Some(Auth::Bearer("t".into())),
            }),
            settings: Settings { enabled: Some(false), ..Settings::default() },
        };
        assert_eq!(change.apply(&remote), expected);
        let local = Source { kind: Kind::Stdio(Stdio::default()), ..remote };
        assert_eq!(change.apply(&local).kind, local.kind);
    }
}
