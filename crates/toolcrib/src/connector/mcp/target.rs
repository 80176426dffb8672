//! Where a source is and how it is reached: its process started through the guard, or its address with credentials.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::value::RawValue;
use tokio::task::JoinHandle;
use toolcrib_core::source::{Auth, KeyPlace, Kind, Remote, Stdio};
use toolcrib_core::{Code, Error, Result, ResultExt, Source};
use toolcrib_mcp::Target;
use url::Url;

use super::callers::CAPABILITIES;
use super::overheard::{FirstWords, Overheard};
use crate::guard::{Launch, Server, clean_env};
use crate::logs::{self, LastWords};
use crate::redact::{Redactor, SourceRedactor};
use crate::registry::Options;
use crate::secret::{basic, resolve_kind};

/// The way to a server, and what must be kept while it is used.
pub(super) struct Reached {
    pub(super) target: Target,
    pub(super) server: Option<Server>,
    pub(super) last_words: LastWords,
    pub(super) first_words: FirstWords,
    pub(super) stderr: Option<JoinHandle<()>>,
}

/// References are filled here, at the moment of use, and nowhere earlier.
pub(super) async fn reach(source: &Source, options: &Options, redactor: &SourceRedactor) -> Result<Reached> {
    let resolved = resolve_kind(&source.kind)?;
    redactor.update(&source.kind);
    match resolved {
        Kind::Stdio(stdio) => start(source, &stdio, options, redactor.get(&source.kind)).await,
        Kind::Http(remote) => {
            let (url, headers) = address(&remote)?;
            Ok(reached(Target::Http { url, headers }))
        }
        Kind::Sse(remote) => {
            let (url, headers) = address(&remote)?;
            Ok(reached(Target::Sse { url, headers }))
        }
        Kind::OpenApi(_) | Kind::Workflow(_) | Kind::Builtin(_) => {
            Err(Error::new(Code::Internal, format!("`{}` is not an MCP source", source.id)))
        }
    }
}

/// HTTP clients, one for each connect timeout: making one reads the machine's certificates, which takes a while.
#[derive(Debug, Default)]
pub(crate) struct HttpClients(Mutex<HashMap<Duration, reqwest::Client>>);

impl HttpClients {
    fn get(&self, connect_timeout: Duration) -> Option<reqwest::Client> {
        let mut clients = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(&connect_timeout) {
            return Some(client.clone());
        }
        // When none can be made the wire tries again, and says why not.
        let client = toolcrib_mcp::Options::http_client(connect_timeout).ok()?;
        clients.insert(connect_timeout, client.clone());
        Some(client)
    }
}

pub(super) fn wire_options(
    source: &Source,
    clients: &HttpClients,
    era: Option<String>,
    timeout: Duration,
) -> toolcrib_mcp::Options {
    let mut options = toolcrib_mcp::Options::new("toolcrib", env!("CARGO_PKG_VERSION"));
    options.connect_timeout = source.settings.connect_timeout();
    options.handshake_timeout = timeout;
    match &source.kind {
        Kind::Http(_) | Kind::Sse(_) => {
            options.http = clients.get(options.connect_timeout);
            options.handshake_timeout = timeout.min(options.connect_timeout);
        }
        // A process that was just started may have to install itself first.
        Kind::Stdio(_) | Kind::OpenApi(_) | Kind::Workflow(_) | Kind::Builtin(_) => {}
    }
    options.capabilities = RawValue::from_string(CAPABILITIES.to_owned()).unwrap_or_default();
    options.era = era.and_then(|era| era.parse().ok());
    options
}

async fn start(source: &Source, stdio: &Stdio, options: &Options, redactor: Arc<Redactor>) -> Result<Reached> {
    let mut env = clean_env(std::env::vars_os(), &stdio.inherit_env);
    env.extend(stdio.env.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))));
    let launch = Launch {
        program: OsString::from(&stdio.command),
        args: stdio.args.iter().map(OsString::from).collect(),
        env,
        cwd: stdio.cwd.as_ref().map(PathBuf::from),
    };
    let mut server = options.guard.start(launch).await?;
    let (Some(reader), Some(writer)) = (server.stdout.take(), server.stdin.take()) else {
        return Err(Error::new(Code::Internal, format!("`{}` was started without pipes", source.id)));
    };
    let last_words = LastWords::default();
    let file = options.logs.as_ref().map(|directory| logs::path(directory, &source.id));
    let stderr = server.stderr.take().map(|stderr| tokio::spawn(last_words.clone().follow(stderr, file, redactor)));
    let first_words = FirstWords::default();
    let reader = Overheard::new(reader, first_words.clone());
    let target = Target::Stream { reader: Box::new(reader), writer: Box::new(writer) };
    Ok(Reached { target, server: Some(server), last_words, first_words, stderr })
}

fn reached(target: Target) -> Reached {
    let (last_words, first_words) = (LastWords::default(), FirstWords::default());
    Reached { target, server: None, last_words, first_words, stderr: None }
}

fn address(remote: &Remote) -> Result<(Url, HeaderMap)> {
    // The cause is left out on purpose: it may repeat what a reference was filled with.
    let mut url =
        Url::parse(&remote.url).map_err(|_| Error::new(Code::ConfigInvalid, "the `url` is not a valid address"))?;
    let mut headers = HeaderMap::new();
    for (name, value) in &remote.headers {
        insert(&mut headers, name, value)?;
    }
    match &remote.auth {
        None => {}
        Some(Auth::Bearer(token)) => insert(&mut headers, "authorization", &format!("Bearer {token}"))?,
        Some(Auth::Basic { user, password }) => {
            insert(&mut headers, "authorization", &format!("Basic {}", basic(user, password)))?;
        }
        Some(Auth::ApiKey { name, place: KeyPlace::Header, value }) => insert(&mut headers, name, value)?,
        Some(Auth::ApiKey { name, place: KeyPlace::Cookie, value }) => {
            insert(&mut headers, "cookie", &format!("{name}={value}"))?;
        }
        Some(Auth::ApiKey { name, place: KeyPlace::Query, value }) => {
            url.query_pairs_mut().append_pair(name, value);
        }
        // The configuration does not take these for an MCP server.
        Some(Auth::Oauth2 { .. } | Auth::Schemes(_)) => {
            return Err(Error::new(Code::ConfigInvalid, "`oauth2` and `schemes` are for OpenAPI sources"));
        }
    }
    Ok((url, headers))
}

fn insert(headers: &mut HeaderMap, name: &str, value: &str) -> Result<()> {
    let wrong = || format!("the header `{name}` has a name or value that HTTP does not allow");
    let name = HeaderName::try_from(name).context(Code::ConfigInvalid, wrong())?;
    let mut value = HeaderValue::try_from(value).context(Code::ConfigInvalid, wrong())?;
    value.set_sensitive(true);
    headers.insert(name, value);
    Ok(())
}
