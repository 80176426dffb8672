//! Where a source is and how it is reached: its process started through the guard, or its address with credentials.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::value::RawValue;
use tokio::task::JoinHandle;
use toolcrib_core::source::{Auth, KeyLocation, RemoteSource, SourceKind, StdioSource};
use toolcrib_core::{Code, Error, Result, ResultExt, Source};
use toolcrib_mcp::ConnectTarget;
use url::Url;

use super::active_calls::CLIENT_CAPABILITIES;
use super::output_sniffer::{FirstOutput, OutputSniffer};
use crate::guard::{Launch, ServerProcess, clean_env};
use crate::redact::{Redactor, SourceRedactor};
use crate::registry::RegistryOptions;
use crate::secret::{basic_credentials, resolve_kind};
use crate::server_logs::{self, StderrTail};

/// The way to a server, and what must be kept while it is used.
pub(super) struct OpenTarget {
    pub(super) target: ConnectTarget,
    pub(super) server: Option<ServerProcess>,
    pub(super) stderr_tail: StderrTail,
    pub(super) first_output: FirstOutput,
    pub(super) stderr_task: Option<JoinHandle<()>>,
}

/// References are filled here, at the moment of use, and nowhere earlier.
pub(super) async fn open_target(
    source: &Source,
    options: &RegistryOptions,
    redactor: &SourceRedactor,
) -> Result<OpenTarget> {
    let resolved = resolve_kind(&source.kind)?;
    redactor.update(&source.kind);
    match resolved {
        SourceKind::Stdio(stdio) => start_process(source, &stdio, options, redactor.get(&source.kind)).await,
        SourceKind::Http(remote) => {
            let (url, headers) = parse_remote(&remote)?;
            Ok(remote_target(ConnectTarget::Http { url, headers }))
        }
        SourceKind::Sse(remote) => {
            let (url, headers) = parse_remote(&remote)?;
            Ok(remote_target(ConnectTarget::Sse { url, headers }))
        }
        SourceKind::OpenApi(_) | SourceKind::Workflow(_) | SourceKind::Builtin(_) => {
            Err(Error::new(Code::Internal, format!("`{}` is not an MCP source", source.id)))
        }
    }
}

/// HTTP clients, one for each connect timeout: making one reads the machine's certificates, which takes a while.
#[derive(Debug, Default)]
pub(crate) struct McpHttpClients(Mutex<HashMap<Duration, reqwest::Client>>);

impl McpHttpClients {
    fn get(&self, connect_timeout: Duration) -> Option<reqwest::Client> {
        let mut clients = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(&connect_timeout) {
            return Some(client.clone());
        }
        // When none can be made the wire tries again, and says why not.
        let client = toolcrib_mcp::ClientOptions::http_client(connect_timeout).ok()?;
        clients.insert(connect_timeout, client.clone());
        Some(client)
    }
}

pub(super) fn wire_options(
    source: &Source,
    clients: &McpHttpClients,
    era: Option<String>,
    timeout: Duration,
) -> toolcrib_mcp::ClientOptions {
    let mut options = toolcrib_mcp::ClientOptions::new("toolcrib", env!("CARGO_PKG_VERSION"));
    options.connect_timeout = source.settings.connect_timeout();
    options.handshake_timeout = timeout;
    match &source.kind {
        SourceKind::Http(_) | SourceKind::Sse(_) => {
            options.http = clients.get(options.connect_timeout);
            options.handshake_timeout = timeout.min(options.connect_timeout);
        }
        // A process that was just started may have to install itself first.
        SourceKind::Stdio(_) | SourceKind::OpenApi(_) | SourceKind::Workflow(_) | SourceKind::Builtin(_) => {}
    }
    options.capabilities = RawValue::from_string(CLIENT_CAPABILITIES.to_owned()).unwrap_or_default();
    options.era = era.and_then(|era| era.parse().ok());
    options
}

async fn start_process(
    source: &Source,
    stdio: &StdioSource,
    options: &RegistryOptions,
    redactor: Arc<Redactor>,
) -> Result<OpenTarget> {
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
    let last_words = StderrTail::default();
    let file = options.logs_directory.as_ref().map(|directory| server_logs::log_path(directory, &source.id));
    let stderr = server.stderr.take().map(|stderr| tokio::spawn(last_words.clone().follow(stderr, file, redactor)));
    let first_words = FirstOutput::default();
    let reader = OutputSniffer::new(reader, first_words.clone());
    let target = ConnectTarget::Stream { reader: Box::new(reader), writer: Box::new(writer) };
    Ok(OpenTarget {
        target,
        server: Some(server),
        stderr_tail: last_words,
        first_output: first_words,
        stderr_task: stderr,
    })
}

fn remote_target(target: ConnectTarget) -> OpenTarget {
    let last_words = StderrTail::default();
    let first_words = FirstOutput::default();
    OpenTarget { target, server: None, stderr_tail: last_words, first_output: first_words, stderr_task: None }
}

fn parse_remote(remote: &RemoteSource) -> Result<(Url, HeaderMap)> {
    // The cause is left out on purpose: it may repeat what a reference was filled with.
    let mut url =
        Url::parse(&remote.url).map_err(|_| Error::new(Code::ConfigInvalid, "the `url` is not a valid address"))?;
    let mut headers = HeaderMap::new();
    for (name, value) in &remote.headers {
        insert_header(&mut headers, name, value)?;
    }
    match &remote.auth {
        None => {}
        Some(Auth::Bearer(token)) => insert_header(&mut headers, "authorization", &format!("Bearer {token}"))?,
        Some(Auth::Basic { user, password }) => {
            insert_header(&mut headers, "authorization", &format!("Basic {}", basic_credentials(user, password)))?;
        }
        Some(Auth::ApiKey { name, place: KeyLocation::Header, value }) => insert_header(&mut headers, name, value)?,
        Some(Auth::ApiKey { name, place: KeyLocation::Cookie, value }) => {
            insert_header(&mut headers, "cookie", &format!("{name}={value}"))?;
        }
        Some(Auth::ApiKey { name, place: KeyLocation::Query, value }) => {
            url.query_pairs_mut().append_pair(name, value);
        }
        // The configuration does not take these for an MCP server.
        Some(Auth::Oauth2 { .. } | Auth::Schemes(_)) => {
            return Err(Error::new(Code::ConfigInvalid, "`oauth2` and `schemes` are for OpenAPI sources"));
        }
    }
    Ok((url, headers))
}

fn insert_header(headers: &mut HeaderMap, name: &str, value: &str) -> Result<()> {
    let wrong = || format!("the header `{name}` has a name or value that HTTP does not allow");
    let name = HeaderName::try_from(name).context(Code::ConfigInvalid, wrong())?;
    let mut value = HeaderValue::try_from(value).context(Code::ConfigInvalid, wrong())?;
    value.set_sensitive(true);
    headers.insert(name, value);
    Ok(())
}
