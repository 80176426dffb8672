//! Overrides of single sources by environment variables, for this process only: `TOOLCRIB_SOURCE_<ID>_ENABLED`, `_URL`,
//! `_COMMAND` and `_TOKEN`. They are applied to a copy of the source and never stored. `_URL` or `_COMMAND` of an id that
//! no source has declares one.
//!
//! ```text
//! TOOLCRIB_SOURCE_MY_API_URL=http://localhost:8080    the source `my_api`, at another address, or declared by this
//! TOOLCRIB_SOURCE_FILES_COMMAND="npx 'my server' ."   a line quoted as in a shell
//! TOOLCRIB_SOURCE_MY_API_ENABLED=false                not in this process
//! ```
//!
//! A variable that cannot be used is an error of its own and affects no other; the library logs it and continues.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use toolcrib_core::source::{Auth, RemoteSource, Source, SourceId, SourceKind, SourceSettings, StdioSource};
use toolcrib_core::text::did_you_mean;

use super::diagnostic::ConfigDiagnostic;
use super::secret_mask::mask_args;
use super::url_check;

/// All overrides of an environment, and the variables that cannot be used.
/// Sources without an override have no entry.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Overrides {
    pub by_source: BTreeMap<SourceId, Override>,
    /// Sources that only the environment declares, with their overrides applied.
    pub declared: BTreeMap<SourceId, Source>,
    /// Unknown sources, unknown settings and invalid values.
    pub errors: Vec<ConfigDiagnostic>,
}

/// Override of one source. `None` leaves a setting as it is.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Override {
    /// Takes precedence over the declaration and over commands such as `toolcrib disable`.
    pub enabled: Option<bool>,
    /// Replaces the URL of a server, or the base URL of an OpenAPI source.
    pub url: Option<String>,
    /// Replaces program and arguments of a stdio server.
    pub command: Option<Vec<String>>,
    /// Replaces the authentication by this bearer token.
    pub token: Option<String>,
}

/// Reads the overrides of known sources from an environment. An empty variable counts as unset.
/// `known` are the ids of all sources, for the lookup and for suggestions.
pub fn overrides_from_env<'a>(
    environment: impl IntoIterator<Item = (String, String)>,
    known: impl IntoIterator<Item = &'a SourceId>,
) -> Overrides {
    let known: BTreeMap<String, &SourceId> =
        known.into_iter().map(|id| (id.as_str().to_ascii_uppercase(), id)).collect();
    // Sorted, so that the order of errors does not depend on the environment.
    let variables: BTreeMap<String, String> = environment
        .into_iter()
        .filter(|(name, value)| name.starts_with("TOOLCRIB_SOURCE_") && !value.trim().is_empty())
        .collect();
    let declaring: BTreeSet<String> =
        variables.keys().filter(|name| name.ends_with("_URL") || name.ends_with("_COMMAND")).cloned().collect();
    let mut overrides = Overrides::default();
    for (name, value) in variables {
        // The setting is behind the last underscore: ids contain underscores themselves.
        let Some((id, setting)) = name.strip_prefix("TOOLCRIB_SOURCE_").and_then(|rest| rest.rsplit_once('_')) else {
            let message = "expected `TOOLCRIB_SOURCE_<ID>_ENABLED`, `…_URL`, `…_COMMAND` or `…_TOKEN`";
            overrides.add_error(&name, message);
            continue;
        };
        let is_declared = |setting: &str| declaring.contains(&format!("TOOLCRIB_SOURCE_{id}_{setting}"));
        let source = match known.get(id) {
            Some(source) => (*source).clone(),
            None if is_declared("URL") || is_declared("COMMAND") => match SourceId::from_name(id) {
                Ok(source) => source,
                Err(error) => {
                    overrides.add_error(&name, error.message);
                    continue;
                }
            },
            None => {
                let id = id.to_ascii_lowercase();
                let near = did_you_mean(&id, known.values().map(|id| id.as_str()));
                overrides.add_error(&name, format!("no source has the id `{id}`{near}"));
                continue;
            }
        };
        let mut source_override = overrides.by_source.get(&source).cloned().unwrap_or_default();
        match setting {
            "ENABLED" => match parse_flag(&value) {
                Some(enabled) => source_override.enabled = Some(enabled),
                None => overrides.add_error(&name, format!("expected `true` or `false`, found `{value}`")),
            },
            "URL" => source_override.url = Some(value),
            // The value is not quoted: arguments may be secrets.
            "COMMAND" => match shlex::split(&value).filter(|words| !words.is_empty()) {
                Some(words) => source_override.command = Some(words),
                None => overrides.add_error(&name, "is not a command line: a quote is not closed, or it ends in `\\`"),
            },
            "TOKEN" => source_override.token = Some(value),
            _ => overrides.add_error(&name, "ends in neither `_ENABLED`, `_URL`, `_COMMAND` nor `_TOKEN`"),
        }
        // A variable with an invalid value leaves no empty override behind.
        if source_override != Override::default() {
            overrides.by_source.insert(source, source_override);
        }
    }
    let is_known = |id: &SourceId| known.values().any(|known| *known == id);
    let undeclared = overrides.by_source.iter().filter(|(id, _)| !is_known(id));
    let declared = undeclared.map(|(id, source_override)| (id.clone(), source_override.declare(id)));
    for (id, declared) in declared.collect::<Vec<_>>() {
        match declared {
            Ok(source) => drop(overrides.declared.insert(id, source)),
            Err(message) => {
                overrides.by_source.remove(&id);
                let name = format!("TOOLCRIB_SOURCE_{}_…", id.as_str().to_ascii_uppercase());
                overrides.add_error(&name, message);
            }
        }
    }
    overrides
}

impl Override {
    /// Whether it changes what the source connects to, so that its tools hold for this process alone.
    pub fn changes_connection(&self) -> bool {
        self.url.is_some() || self.command.is_some() || self.token.is_some()
    }

    /// Builds the source that only this override declares. Fails with the reason.
    fn declare(&self, id: &SourceId) -> Result<Source, String> {
        let kind = match (&self.url, &self.command) {
            (Some(_), Some(_)) => return Err("`_URL` and `_COMMAND` are mutually exclusive; keep one".to_owned()),
            (Some(url), None) => {
                if let Some(message) = url_check::find_url_error(url) {
                    return Err(message.to_owned());
                }
                SourceKind::Http(RemoteSource { url: url.clone(), ..RemoteSource::default() })
            }
            (None, _) => SourceKind::Stdio(StdioSource::default()),
        };
        let source = Source { id: id.clone(), kind, settings: SourceSettings::default() };
        if self.url.is_none() && self.command.is_none() {
            return Err("declares no source".to_owned());
        }
        Ok(self.apply(&source))
    }

    /// Returns the source with this override applied. URL and token are ignored for a source that is not remote, and the
    /// command for one that is not a stdio server.
    /// The result is for this process and must not be stored.
    pub fn apply(&self, source: &Source) -> Source {
        let mut source = source.clone();
        source.settings.enabled = self.enabled.or(source.settings.enabled);
        match &mut source.kind {
            SourceKind::Http(remote) | SourceKind::Sse(remote) => self.apply_to_remote(remote),
            SourceKind::OpenApi(openapi) => {
                if let Some(url) = &self.url {
                    openapi.base_url = Some(url.clone());
                }
                self.apply_token(&mut openapi.headers, &mut openapi.auth);
            }
            SourceKind::Stdio(stdio) => {
                if let Some((program, args)) = self.command.as_deref().and_then(<[String]>::split_first) {
                    stdio.command = program.clone();
                    stdio.args = args.to_vec();
                }
            }
            SourceKind::Workflow(_) | SourceKind::Builtin(_) => {}
        }
        source
    }

    /// Replaces URL and authentication of an MCP server.
    fn apply_to_remote(&self, remote: &mut RemoteSource) {
        if let Some(url) = &self.url {
            remote.url = url.clone();
        }
        self.apply_token(&mut remote.headers, &mut remote.auth);
    }

    /// Sets the token and removes an `Authorization` header, which would conflict with it.
    /// It also replaces other methods such as `api_key`.
    fn apply_token(&self, headers: &mut BTreeMap<String, String>, auth: &mut Option<Auth>) {
        if let Some(token) = &self.token {
            headers.retain(|name, _| !name.eq_ignore_ascii_case("authorization"));
            *auth = Some(Auth::Bearer(token.clone()));
        }
    }
}

impl Overrides {
    fn add_error(&mut self, name: &str, message: impl AsRef<str>) {
        self.errors.push(ConfigDiagnostic::new("environment", 0, name, message));
    }
}

/// Prints `***` for the token, so that it reaches no log.
impl fmt::Debug for Override {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Override")
            .field("enabled", &self.enabled)
            .field("url", &self.url)
            .field("command", &self.command.as_ref().map(|words| mask_args(words)))
            .field("token", &self.token.as_ref().map(|_| "***"))
            .finish()
    }
}

/// Parses a boolean in the usual spellings, ignoring case.
pub(super) fn parse_flag(value: &str) -> Option<bool> {
    match value.trim().to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Some(true),
        "false" | "0" | "no" | "off" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source_id(id: &str) -> SourceId {
        SourceId::parse(id).unwrap()
    }

    fn check(variables: &[(&str, &str)], expected: &str) {
        let known = [source_id("docs"), source_id("my_docs"), source_id("my_url")];
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let overrides = overrides_from_env(variables, &known);
        let mut lines: Vec<String> =
            overrides.by_source.iter().map(|(id, source_override)| format!("{id} {source_override:?}")).collect();
        lines.extend(overrides.errors.iter().map(ConfigDiagnostic::to_string));
        assert_eq!(lines.join("\n"), expected);
    }

    #[test]
    fn variables_override_the_source_with_that_id() {
        check(&[("PATH", "/bin"), ("TOOLCRIB_DATA", "/x"), ("TOOLCRIB_SOURCE_DOCS_URL", "")], "");
        check(
            &[
                ("TOOLCRIB_SOURCE_DOCS_ENABLED", "False"),
                ("TOOLCRIB_SOURCE_MY_URL_TOKEN", "hunter2"),
                ("TOOLCRIB_SOURCE_MY_DOCS_URL", "http://x"),
            ],
            "docs Override { enabled: Some(false), url: None, command: None, token: None }\n\
             my_docs Override { enabled: None, url: Some(\"http://x\"), command: None, token: None }\n\
             my_url Override { enabled: None, url: None, command: None, token: Some(\"***\") }",
        );
    }

    #[test]
    fn a_url_or_a_command_of_an_unknown_id_declares_a_source() {
        let declare = |variables: &[(&str, &str)]| {
            let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            overrides_from_env(variables, &[source_id("docs")])
        };
        let overrides = declare(&[
            ("TOOLCRIB_SOURCE_NEW_API_URL", "http://127.0.0.1:8080/mcp"),
            ("TOOLCRIB_SOURCE_NEW_API_TOKEN", "t"),
            ("TOOLCRIB_SOURCE_FILES_COMMAND", "npx -y 'my server' \"a b\" c\\ d"),
            ("TOOLCRIB_SOURCE_FILES_ENABLED", "false"),
            ("TOOLCRIB_SOURCE_DOCS_URL", "http://x"),
        ]);
        assert_eq!(overrides.errors, []);
        assert_eq!(overrides.declared.keys().map(SourceId::as_str).collect::<Vec<_>>(), ["files", "new_api"]);
        let api = RemoteSource {
            url: "http://127.0.0.1:8080/mcp".into(),
            auth: Some(Auth::Bearer("t".into())),
            ..RemoteSource::default()
        };
        assert_eq!(overrides.declared[&source_id("new_api")].kind, SourceKind::Http(api));
        let files = &overrides.declared[&source_id("files")];
        let args = ["-y", "my server", "a b", "c d"].map(str::to_owned).to_vec();
        let stdio = StdioSource { command: "npx".into(), args, ..StdioSource::default() };
        assert_eq!((&files.kind, files.settings.enabled), (&SourceKind::Stdio(stdio), Some(false)));

        for (variables, message) in [
            (&[("TOOLCRIB_SOURCE_A_COMMAND", "x 'y")][..], "a quote is not closed"),
            (&[("TOOLCRIB_SOURCE_A_URL", "ftp://x")], "TOOLCRIB_SOURCE_A_"),
            (&[("TOOLCRIB_SOURCE_A_URL", "http://x"), ("TOOLCRIB_SOURCE_A_COMMAND", "x")], "mutually exclusive"),
            (&[("TOOLCRIB_SOURCE_A_TOKEN", "x")], "no source has the id `a`"),
            (&[("TOOLCRIB_SOURCE_CALL_TOOL_URL", "http://x")], "that name is reserved"),
        ] {
            let overrides = declare(variables);
            assert!(overrides.declared.is_empty(), "{variables:?}");
            assert!(overrides.errors[0].to_string().contains(message), "{:?}", overrides.errors);
        }
    }

    #[test]
    fn unusable_variables_are_reported() {
        check(
            &[
                ("TOOLCRIB_SOURCE_DOC_TOKEN", "x"),
                ("TOOLCRIB_SOURCE_DOCS_ENABLED", "maybe"),
                ("TOOLCRIB_SOURCE_DOCS_COLOUR", "red"),
                ("TOOLCRIB_SOURCE_URL", "x"),
            ],
            "environment: TOOLCRIB_SOURCE_DOCS_COLOUR: ends in neither `_ENABLED`, `_URL`, `_COMMAND` nor `_TOKEN`\n\
             environment: TOOLCRIB_SOURCE_DOCS_ENABLED: expected `true` or `false`, found `maybe`\n\
             environment: TOOLCRIB_SOURCE_DOC_TOKEN: no source has the id `doc`; did you mean `docs`?\n\
             environment: TOOLCRIB_SOURCE_URL: expected `TOOLCRIB_SOURCE_<ID>_ENABLED`, `…_URL`, `…_COMMAND` or `…_TOKEN`",
        );
    }

    #[test]
    fn a_token_replaces_the_authorization_header() {
        let change = Override {
            enabled: Some(false),
            url: Some("http://b".into()),
            token: Some("t".into()),
            ..Override::default()
        };
        let headers = BTreeMap::from([("authorization".into(), "x".into()), ("Accept".into(), "y".into())]);
        let kind = SourceKind::Sse(RemoteSource { url: "http://a".into(), headers, auth: None });
        let remote = Source { id: source_id("docs"), kind, settings: SourceSettings::default() };
        let expected = Source {
            id: source_id("docs"),
            kind: SourceKind::Sse(RemoteSource {
                url: "http://b".into(),
                headers: BTreeMap::from([("Accept".into(), "y".into())]),
                auth: Some(Auth::Bearer("t".into())),
            }),
            settings: SourceSettings { enabled: Some(false), ..SourceSettings::default() },
        };
        assert_eq!(change.apply(&remote), expected);
        let local = Source { kind: SourceKind::Stdio(StdioSource::default()), ..remote };
        assert_eq!(change.apply(&local).kind, local.kind);
    }
}
