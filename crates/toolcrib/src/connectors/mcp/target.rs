//! Opens the target of an MCP source: starts its process through the guard, or builds URL and headers with credentials.
//! References (`${env:…}`, `${file:…}`) are read by `crate::secret` before, and filled in here.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::task::JoinHandle;
use toolcrib_core::source::{Auth, KeyLocation, RemoteSource, SourceKind, StdioSource};
use toolcrib_core::{Code, Error, Result, ResultExt, Source};
use toolcrib_mcp::ConnectTarget;
use url::Url;

use super::active_calls::client_capabilities;
use super::connection::HandshakeEra;
use super::output_sniffer::{FirstOutput, OutputSniffer};
use super::stderr_tail::StderrTail;
use crate::connectors::server_log_path;
use crate::guard::{Launch, ServerProcess, clean_env};
use crate::options::RegistryOptions;
use crate::redact::Redactor;
use crate::secret::{ReferenceValues, basic_credentials};

/// Target for the wire, with the process and its output.
pub(super) struct OpenTarget {
    /// Pipes of the process, or URL and headers.
    pub(super) target: ConnectTarget,
    /// `None` for remote servers.
    pub(super) server: Option<ServerProcess>,
    /// Last lines of stderr; empty for remote servers.
    pub(super) stderr_tail: StderrTail,
    /// Beginning of stdout; empty for remote servers.
    pub(super) first_output: FirstOutput,
    /// Task that copies stderr to the log file.
    pub(super) stderr_task: Option<JoinHandle<()>>,
}

/// Fills in the source's references and opens the target. `redactor` knows their values.
pub(super) async fn open_target(
    source: &Source,
    options: &RegistryOptions,
    references: &ReferenceValues,
    redactor: &Arc<Redactor>,
) -> Result<OpenTarget> {
    match references.resolve_kind(&source.kind)? {
        SourceKind::Stdio(stdio) => start_process(source, &stdio, options, redactor.clone()).await,
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

/// HTTP clients by connect timeout. Shared by all sources, because building one reads the system's certificates.
#[derive(Debug, Default)]
pub(crate) struct McpHttpClients(Mutex<HashMap<Duration, reqwest::Client>>);

impl McpHttpClients {
    /// Returns the client for a connect timeout, building it on first use; `None` if that fails.
    pub(super) fn get(&self, connect_timeout: Duration) -> Option<reqwest::Client> {
        let mut clients = self.0.lock();
        if let Some(client) = clients.get(&connect_timeout) {
            return Some(client.clone());
        }
        // On failure the wire builds a client itself and reports the error.
        let client = toolcrib_mcp::ClientOptions::http_client(connect_timeout).ok()?;
        clients.insert(connect_timeout, client.clone());
        Some(client)
    }
}

/// Options of the MCP client for a source. `timeout` bounds the handshake of a process; a remote server has
/// `connect_timeout` for it.
pub(super) fn wire_options(
    source: &Source,
    clients: &McpHttpClients,
    era: HandshakeEra,
    timeout: Duration,
    extensions: Option<&RawValue>,
) -> toolcrib_mcp::ClientOptions {
    let mut options = toolcrib_mcp::ClientOptions::new("toolcrib", env!("CARGO_PKG_VERSION"));
    options.connect_timeout = source.settings.connect_timeout();
    options.handshake_timeout = timeout;
    match &source.kind {
        SourceKind::Http(_) | SourceKind::Sse(_) => {
            options.http = clients.get(options.connect_timeout);
            options.handshake_timeout = timeout.min(options.connect_timeout);
        }
        // A process gets the whole timeout: `npx` and `uvx` may have to download the server first.
        SourceKind::Stdio(_) | SourceKind::OpenApi(_) | SourceKind::Workflow(_) | SourceKind::Builtin(_) => {}
    }
    options.capabilities = client_capabilities(extensions);
    options.era = era.hint;
    options.protocol = era.only;
    options
}

/// Starts a stdio server with a clean environment and follows its stderr.
async fn start_process(
    source: &Source,
    stdio: &StdioSource,
    options: &RegistryOptions,
    redactor: Arc<Redactor>,
) -> Result<OpenTarget> {
    // Configured variables come last and win over inherited ones of the same name.
    let mut env = clean_env(std::env::vars_os(), &stdio.inherit_env);
    env.extend(stdio.env.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))));
    let launch = Launch {
        program: OsString::from(&stdio.command),
        args: stdio.args.iter().map(OsString::from).collect(),
        env,
        cwd: stdio.cwd.as_ref().map(PathBuf::from),
    };
    // Fails if the program cannot be started; one that exits at once is noticed by the handshake.
    // The wire gets stdin and stdout; stderr goes to the log file and the tail for error messages.
    let mut server = options.guard.start(launch).await?;
    let (Some(reader), Some(writer)) = (server.stdout.take(), server.stdin.take()) else {
        return Err(Error::new(Code::Internal, format!("`{}` was started without pipes", source.id)));
    };
    let stderr_tail = StderrTail::default();
    let file = options.logs_directory.as_ref().map(|directory| server_log_path(directory, &source.id));
    // Read for the whole life of the process: a server blocks when the pipe of its stderr is full.
    let stderr_task =
        server.stderr.take().map(|stderr| tokio::spawn(stderr_tail.clone().follow(stderr, file, redactor)));
    // The sniffer remembers the beginning of stdout, in case the program is no MCP server.
    let first_output = FirstOutput::default();
    let reader = OutputSniffer::new(reader, first_output.clone());
    let target = ConnectTarget::Stream { reader: Box::new(reader), writer: Box::new(writer) };
    Ok(OpenTarget { target, server: Some(server), stderr_tail, first_output, stderr_task })
}

/// Target of a remote server, without process output.
fn remote_target(target: ConnectTarget) -> OpenTarget {
    let stderr_tail = StderrTail::default();
    let first_output = FirstOutput::default();
    OpenTarget { target, server: None, stderr_tail, first_output, stderr_task: None }
}

/// Builds URL and headers of a remote server, credentials included.
fn parse_remote(remote: &RemoteSource) -> Result<(Url, HeaderMap)> {
    // The cause is omitted on purpose: it may contain a resolved reference.
    let mut url =
        Url::parse(&remote.url).map_err(|_| Error::new(Code::ConfigInvalid, "the `url` is not a valid address"))?;
    // Configured headers first; `auth` below replaces a header of the same name.
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
        Some(Auth::ApiKey { name, location: Some(KeyLocation::Header) | None, value }) => {
            insert_header(&mut headers, name, value)?;
        }
        Some(Auth::ApiKey { name, location: Some(KeyLocation::Cookie), value }) => {
            insert_header(&mut headers, "cookie", &format!("{name}={value}"))?;
        }
        Some(Auth::ApiKey { name, location: Some(KeyLocation::Query), value }) => {
            url.query_pairs_mut().append_pair(name, value);
        }
        // The configuration rejects these for MCP sources.
        Some(Auth::Oauth2 { .. } | Auth::Schemes(_)) => {
            return Err(Error::new(Code::ConfigInvalid, "`oauth2` and `schemes` are for OpenAPI sources"));
        }
    }
    Ok((url, headers))
}

/// Adds a header and marks its value as sensitive, so that it is not logged.
fn insert_header(headers: &mut HeaderMap, name: &str, value: &str) -> Result<()> {
    let invalid = || format!("the header `{name}` has a name or value that HTTP does not allow");
    let name = HeaderName::try_from(name).context(Code::ConfigInvalid, invalid())?;
    let mut value = HeaderValue::try_from(value).context(Code::ConfigInvalid, invalid())?;
    value.set_sensitive(true);
    headers.insert(name, value);
    Ok(())
}
