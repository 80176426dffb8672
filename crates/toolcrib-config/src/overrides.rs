//! Overrides of single sources by environment variables, for this process only: `TOOLCRIB_SOURCE_<ID>_ENABLED`, `_URL`,
//! `_COMMAND` and `_TOKEN`. They are applied to a copy of the source and never stored. `_URL` or `_COMMAND` of an id that
//! no source has declares one. A setting that does not fit the kind of source is not applied, and reported.
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

/// Beginning of every variable that overrides a source.
const PREFIX: &str = "TOOLCRIB_SOURCE_";

/// All overrides of an environment, and the variables that cannot be used.
/// Sources without an override have no entry.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Overrides {
    pub by_source: BTreeMap<SourceId, Override>,
    /// Sources that only the environment declares, with their overrides applied.
    pub declared: BTreeMap<SourceId, Source>,
    /// Unknown sources, unknown settings, invalid values, and settings that do not fit the kind of source.
    pub errors: Vec<ConfigDiagnostic>,
}

/// Override of one source. `None` leaves a setting as it is.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Override {
    /// Takes precedence over the declaration and over commands such as `toolcrib disable`.
    pub enabled: Option<bool>,
    /// Replaces the URL of a server, or the base URL of an OpenAPI source. A stdio server is not started then.
    pub url: Option<String>,
    /// Replaces program and arguments of a stdio server, or the connection to a remote one.
    pub command: Option<Vec<String>>,
    /// Replaces the authentication by this bearer token.
    pub token: Option<String>,
}

/// A declared source, which variables may override.
#[derive(Debug, Clone, Copy)]
pub struct OverridableSource<'a> {
    pub id: &'a SourceId,
    pub kind: &'a SourceKind,
    /// Name in the configuration file. The id of a long name is cut and ends in a hash, so a variable may have the whole
    /// name in its place.
    pub name: Option<&'a str>,
}

/// Reads the overrides of known sources from an environment. An empty variable counts as unset.
/// `known` are all declared sources.
pub fn overrides_from_env<'a>(
    environment: impl IntoIterator<Item = (String, String)>,
    known: impl IntoIterator<Item = OverridableSource<'a>>,
) -> Overrides {
    let known: Vec<OverridableSource<'_>> = known.into_iter().collect();
    let names = known.iter().filter_map(|source| Some((SourceId::uncut_form(source.name?), source)));
    // Ids come last and so take precedence.
    let by_variable: BTreeMap<String, &OverridableSource<'_>> = names
        .chain(known.iter().map(|source| (source.id.to_string(), source)))
        .map(|(name, source)| (name.to_ascii_uppercase(), source))
        .collect();
    // Sorted, so that the order of errors does not depend on the environment.
    let variables: BTreeMap<String, String> =
        environment.into_iter().filter(|(name, value)| name.starts_with(PREFIX) && !value.trim().is_empty()).collect();
    let declaring: BTreeSet<String> =
        variables.keys().filter(|name| name.ends_with("_URL") || name.ends_with("_COMMAND")).cloned().collect();
    let mut overrides = Overrides::default();
    // Each source as its variables spell it.
    let mut spellings: BTreeMap<SourceId, String> = BTreeMap::new();
    for (name, value) in variables {
        // The setting is behind the last underscore: ids contain underscores themselves.
        let Some((id, setting)) = name.strip_prefix(PREFIX).and_then(|rest| rest.rsplit_once('_')) else {
            let message = "expected `TOOLCRIB_SOURCE_<ID>_ENABLED`, `…_URL`, `…_COMMAND` or `…_TOKEN`";
            overrides.add_error(&name, message);
            continue;
        };
        let is_declared = |setting: &str| declaring.contains(&format!("{PREFIX}{id}_{setting}"));
        let source = match by_variable.get(id) {
            Some(source) => source.id.clone(),
            None if is_declared("URL") || is_declared("COMMAND") => match SourceId::from_name(id) {
                Ok(source) => source,
                Err(error) => {
                    overrides.add_error(&name, error.message);
                    continue;
                }
            },
            None => {
                let id = id.to_ascii_lowercase();
                let near = did_you_mean(&id, known.iter().map(|source| source.id.as_str()));
                overrides.add_error(&name, format!("no source has the id `{id}`{near}"));
                continue;
            }
        };
        spellings.insert(source.clone(), id.to_owned());
        let source_override = overrides.by_source.entry(source).or_default();
        let error = match setting {
            "ENABLED" => {
                source_override.enabled = parse_flag(&value).or(source_override.enabled);
                parse_flag(&value).is_none().then(|| format!("expected `true` or `false`, found `{value}`"))
            }
            "URL" => {
                source_override.url = Some(value);
                None
            }
            "COMMAND" => {
                source_override.command = shlex::split(&value).filter(|words| !words.is_empty());
                // The value is not quoted: arguments may be secrets.
                let message = || "is not a command line: a quote is not closed, or it ends in `\\`".to_owned();
                source_override.command.is_none().then(message)
            }
            "TOKEN" => {
                source_override.token = Some(value);
                None
            }
            _ => Some("ends in neither `_ENABLED`, `_URL`, `_COMMAND` nor `_TOKEN`".to_owned()),
        };
        if let Some(message) = error {
            overrides.add_error(&name, message);
        }
    }
    for (id, mut source_override) in std::mem::take(&mut overrides.by_source) {
        let kind = known.iter().find(|source| *source.id == id).map(|source| source.kind);
        for (setting, reason) in source_override.remove_unusable(kind) {
            let spelling = spellings.get(&id).map_or(id.as_str(), String::as_str);
            overrides.add_error(&format!("{PREFIX}{spelling}_{setting}"), reason);
        }
        if kind.is_none() {
            let Some(source) = source_override.declare(&id) else { continue };
            overrides.declared.insert(id.clone(), source);
        }
        // A variable with an invalid value leaves no empty override behind.
        if source_override != Override::default() {
            overrides.by_source.insert(id, source_override);
        }
    }
    overrides
}

impl Override {
    /// Whether it changes what the source connects to, so that its tools hold for this process alone.
    pub fn changes_connection(&self) -> bool {
        self.url.is_some() || self.command.is_some() || self.token.is_some()
    }

    /// Removes the settings that a source cannot use, and returns the end of each variable's name with the reason.
    /// `kind` is `None` for a source that only the environment declares.
    fn remove_unusable(&mut self, kind: Option<&SourceKind>) -> Vec<(&'static str, &'static str)> {
        let mut unusable = Vec::new();
        if self.url.is_some() && self.command.is_some() {
            self.command = None;
            self.url = None;
            unusable.push(("URL", "`_URL` and `_COMMAND` are mutually exclusive; keep one"));
        }
        // The base URL of an OpenAPI source may begin with a template.
        let is_template =
            |url: &str| matches!(kind, Some(SourceKind::OpenApi(_))) && url_check::starts_with_template(url);
        let url_error =
            self.url.as_deref().filter(|url| !is_template(url)).and_then(|url| url_check::find_url_error(url));
        let (url, command, token) = match kind {
            Some(SourceKind::Workflow(_) | SourceKind::Builtin(_)) => {
                let reason = Some("the source has no connection of its own; unset the variable");
                (reason, reason, reason)
            }
            Some(SourceKind::OpenApi(_)) => {
                (url_error, Some("an OpenAPI source starts no program; unset the variable"), None)
            }
            Some(SourceKind::Stdio(_) | SourceKind::Http(_) | SourceKind::Sse(_)) | None => {
                let is_remote = matches!(kind, Some(SourceKind::Http(_) | SourceKind::Sse(_)));
                let has_url = self.url.is_some() || (is_remote && self.command.is_none());
                let reason = "a program gets no bearer token; set a variable in `env` of the source";
                (url_error, None, (!has_url).then_some(reason))
            }
        };
        let removed = [
            ("URL", url.filter(|_| self.url.is_some())),
            ("COMMAND", command.filter(|_| self.command.is_some())),
            ("TOKEN", token.filter(|_| self.token.is_some())),
        ];
        self.url = self.url.take().filter(|_| url.is_none());
        self.command = self.command.take().filter(|_| command.is_none());
        self.token = self.token.take().filter(|_| token.is_none());
        unusable.extend(removed.into_iter().filter_map(|(setting, reason)| Some((setting, reason?))));
        unusable
    }

    /// Builds the source that only this override declares; `None` without a URL and a command.
    fn declare(&self, id: &SourceId) -> Option<Source> {
        if self.url.is_none() && self.command.is_none() {
            return None;
        }
        let kind = SourceKind::Stdio(StdioSource::default());
        Some(self.apply(&Source { id: id.clone(), kind, settings: SourceSettings::default() }))
    }

    /// Returns the source with this override applied. The URL of a stdio server makes it a remote one, and the command
    /// of a remote server a stdio one. Settings that the source cannot use were removed when the variables were read.
    /// The result is for this process and must not be stored.
    pub fn apply(&self, source: &Source) -> Source {
        let mut source = source.clone();
        source.settings.enabled = self.enabled.or(source.settings.enabled);
        match &mut source.kind {
            SourceKind::OpenApi(openapi) => {
                if let Some(url) = &self.url {
                    openapi.base_url = Some(url.clone());
                }
                self.apply_token(&mut openapi.headers, &mut openapi.auth);
            }
            SourceKind::Http(_) | SourceKind::Sse(_) | SourceKind::Stdio(_) => {
                source.kind = self.apply_to_server(source.kind);
            }
            SourceKind::Workflow(_) | SourceKind::Builtin(_) => {}
        }
        source
    }

    /// Replaces the connection of an MCP server. A connection of the other transport starts without the environment or
    /// the headers of the declared one, which may hold its credentials.
    fn apply_to_server(&self, kind: SourceKind) -> SourceKind {
        if let Some((program, args)) = self.command.as_deref().and_then(<[String]>::split_first) {
            let declared = if let SourceKind::Stdio(stdio) = kind { stdio } else { StdioSource::default() };
            return SourceKind::Stdio(StdioSource { command: program.clone(), args: args.to_vec(), ..declared });
        }
        let mut kind = match (kind, &self.url) {
            (SourceKind::Stdio(_), Some(_)) => SourceKind::Http(RemoteSource::default()),
            (kind, _) => kind,
        };
        if let SourceKind::Http(remote) | SourceKind::Sse(remote) = &mut kind {
            if let Some(url) = &self.url {
                remote.url = url.clone();
            }
            self.apply_token(&mut remote.headers, &mut remote.auth);
        }
        kind
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
    use toolcrib_core::source::{BuiltinSource, OpenApiSource};

    use super::*;

    fn source_id(id: &str) -> SourceId {
        SourceId::parse(id).unwrap()
    }

    fn owned(variables: &[(&str, &str)]) -> Vec<(String, String)> {
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn check(variables: &[(&str, &str)], expected: &str) {
        let ids = ["docs", "my_docs", "my_url"].map(source_id);
        let remote = SourceKind::Http(RemoteSource::default());
        let known = ids.iter().map(|id| OverridableSource { id, kind: &remote, name: None });
        let overrides = overrides_from_env(owned(variables), known);
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
            let kind = SourceKind::Http(RemoteSource::default());
            overrides_from_env(
                owned(variables),
                [OverridableSource { id: &source_id("docs"), kind: &kind, name: None }],
            )
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
    }

    /// Applies variables to a source `a` of this kind, and returns the effective kind with the errors.
    fn apply_to(kind: &SourceKind, variables: &[(&str, &str)]) -> (SourceKind, Vec<String>) {
        let id = source_id("a");
        let overrides = overrides_from_env(owned(variables), [OverridableSource { id: &id, kind, name: None }]);
        let source = Source { id: id.clone(), kind: kind.clone(), settings: SourceSettings::default() };
        let applied = overrides.by_source.get(&id);
        // Exactly the overrides that were applied make the list one of this process alone.
        assert_eq!(
            applied.is_some_and(Override::changes_connection),
            applied.is_some_and(|o| o.apply(&source) != source)
        );
        let errors = overrides.errors.iter().map(ConfigDiagnostic::to_string).collect();
        (applied.map_or(source.kind.clone(), |applied| applied.apply(&source).kind), errors)
    }

    #[test]
    fn a_url_or_a_command_replaces_the_connection_of_a_server() {
        let env = BTreeMap::from([("TOKEN".to_owned(), "x".to_owned())]);
        let stdio = SourceKind::Stdio(StdioSource { command: "npx".into(), env, ..StdioSource::default() });
        let headers = BTreeMap::from([("X-Key".to_owned(), "x".to_owned())]);
        let remote = RemoteSource { url: "http://a".into(), headers, auth: None };
        let expected =
            RemoteSource { url: "http://b".into(), auth: Some(Auth::Bearer("t".into())), ..RemoteSource::default() };
        let variables = [("TOOLCRIB_SOURCE_A_URL", "http://b"), ("TOOLCRIB_SOURCE_A_TOKEN", "t")];
        assert_eq!(apply_to(&stdio, &variables), (SourceKind::Http(expected), Vec::new()));
        let expected = StdioSource { command: "uvx".into(), args: vec!["x".into()], ..StdioSource::default() };
        let variables = [("TOOLCRIB_SOURCE_A_COMMAND", "uvx x")];
        for kind in [SourceKind::Http(remote.clone()), SourceKind::Sse(remote)] {
            assert_eq!(apply_to(&kind, &variables), (SourceKind::Stdio(expected.clone()), Vec::new()));
        }
    }

    #[test]
    fn settings_that_do_not_fit_the_source_are_reported_and_not_applied() {
        let stdio = SourceKind::Stdio(StdioSource { command: "npx".into(), ..StdioSource::default() });
        let remote = SourceKind::Http(RemoteSource { url: "http://a".into(), ..RemoteSource::default() });
        let openapi = SourceKind::OpenApi(OpenApiSource { document: "/a.yaml".into(), ..OpenApiSource::default() });
        let builtin = SourceKind::Builtin(BuiltinSource::default());
        let url = "expected a URL that begins with `http://` or `https://`";
        for (kind, name, value, message) in [
            (&stdio, "TOKEN", "t", "a program gets no bearer token; set a variable in `env` of the source"),
            (&stdio, "URL", "nonsense", url),
            (&remote, "URL", "nonsense", url),
            (&openapi, "URL", "nonsense", url),
            (&openapi, "COMMAND", "npx", "an OpenAPI source starts no program; unset the variable"),
            (&builtin, "URL", "http://b", "the source has no connection of its own; unset the variable"),
            (&builtin, "TOKEN", "t", "the source has no connection of its own; unset the variable"),
        ] {
            let name = format!("TOOLCRIB_SOURCE_A_{name}");
            let errors = vec![format!("environment: {name}: {message}")];
            assert_eq!(apply_to(kind, &[(&name, value)]), (kind.clone(), errors));
        }
        let both = [("TOOLCRIB_SOURCE_A_URL", "http://b"), ("TOOLCRIB_SOURCE_A_COMMAND", "npx")];
        let (kind, errors) = apply_to(&remote, &both);
        assert_eq!((kind, errors.len()), (remote, 1));
        let template = [("TOOLCRIB_SOURCE_A_URL", "{{ base }}/v1")];
        assert_eq!(apply_to(&openapi, &template).1, Vec::<String>::new());
    }

    #[test]
    fn a_variable_may_have_the_whole_name_of_a_source() {
        let name = "My Very Long Source Name That Exceeds Thirty-Two";
        let id = SourceId::from_name(name).unwrap();
        let kind = SourceKind::Stdio(StdioSource::default());
        let long = "TOOLCRIB_SOURCE_MY_VERY_LONG_SOURCE_NAME_THAT_EXCEEDS_THIRTY_TWO";
        for prefix in [long.to_owned(), format!("TOOLCRIB_SOURCE_{}", id.as_str().to_ascii_uppercase())] {
            let (enabled, command) = (format!("{prefix}_ENABLED"), format!("{prefix}_COMMAND"));
            let variables = owned(&[(&enabled, "false"), (&command, "npx")]);
            let source = OverridableSource { id: &id, kind: &kind, name: Some(name) };
            let overrides = overrides_from_env(variables, [source]);
            assert_eq!((overrides.errors, overrides.declared), (Vec::new(), BTreeMap::new()));
            let expected = Override { enabled: Some(false), command: Some(vec!["npx".into()]), ..Override::default() };
            assert_eq!(overrides.by_source, BTreeMap::from([(id.clone(), expected)]));
        }
    }
}
