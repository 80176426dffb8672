//! Settings with which a registry is opened, and the extent of the trust in a project's configuration file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use toolcrib_config::{Config, mask_store_location};
use toolcrib_core::inventory::Actor;
use toolcrib_core::manifest::ToolLimits;
use toolcrib_core::node_label::to_node_label;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Code, Error, Result, SourceId};

use crate::clock::Clock;
use crate::guard::GuardExe;
use crate::spans::SpanQueue;
use crate::store::{HeadFile, Store};
use crate::trace::Trace;

/// Settings of a registry. The default suits an embedder: a store in memory, writes of other processes followed, stale
/// tool lists revalidated.
///
/// More than twelve fields, because they are independent; [`Registry::builder`](crate::Registry::builder) sets the
/// usual ones.
#[derive(Debug, Clone)]
pub struct RegistryOptions {
    /// Storage of the journal, manifests and measurements; `None` for a store in memory.
    pub store: Option<Arc<dyn Store>>,
    /// How people named the store, for `toolcrib config` and `GET /api/config`; `None` for the one in the data directory.
    pub named_store: Option<NamedStore>,
    /// File that remembers the end of the store's journal, as returned by
    /// [`store::open_with_head`](crate::store::open_with_head). Without it, a journal that lost its newest records goes
    /// unnoticed.
    pub head_file: Option<HeadFile>,
    /// Directory for the stderr output of stdio servers, one file per source; `None` writes no files.
    pub logs_directory: Option<PathBuf>,
    /// Source of the wall-clock time; tests use [`Clock::manual`].
    pub clock: Clock,
    /// Label of this process among the nodes that share the store. Sources with `nodes` in their settings are started by
    /// the nodes with these labels only.
    pub node_label: String,
    /// Executable that starts and supervises stdio servers.
    pub guard: GuardExe,
    /// Maximum number of sources that are discovered at once. Discovery mostly waits for other processes, so the number
    /// does not depend on the number of cores; it bounds the child processes and sockets that are open at the same
    /// time. As many again may stay open for prompts and resources, which are read after the tools were recorded.
    pub max_parallel_discoveries: usize,
    /// Size limits of a single tool; the limits on a whole list are in `toolcrib_mcp::ClientLimits`.
    pub tool_limits: ToolLimits,
    /// Whether to pick up, within two seconds, what other processes write to the same store.
    pub follow_writes: bool,
    /// Whether a stale tool list, served at once, is refreshed in the background.
    pub revalidate: bool,
    /// Environment variables named `TOOLCRIB_SOURCE_…`, which override single sources for this process.
    pub environment: Vec<(String, String)>,
    /// Trust in the project's configuration file.
    pub trust: Trust,
    /// Actor of discoveries that name none of their own, such as `cli` for a command; `None` for `system`.
    pub actor: Option<Actor>,
    /// Parent trace for work that has none of its own, e.g. the span of the running CLI command.
    pub trace: Option<Trace>,
    /// Queue of finished spans for export. When set, every request to a source carries trace context.
    pub span_queue: Option<SpanQueue>,
}

/// A store as the command line or a configuration file names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedStore {
    /// Location without user name and password.
    pub location: String,
    /// [`NamedStore::OPTION`], or the file and line.
    pub origin: String,
}

impl NamedStore {
    /// Origin of a store that the command line or the host names. It takes precedence over the configuration.
    pub const OPTION: &str = "--store";

    /// Returns the store at this location if there is one, else that of the configuration, if it names one.
    pub fn select(location: Option<&str>, config: &Config) -> Option<NamedStore> {
        if let Some(location) = location {
            let origin = NamedStore::OPTION.to_owned();
            return Some(NamedStore { location: mask_store_location(location), origin });
        }
        let origin = config.origins.get("store").map(ToString::to_string).unwrap_or_default();
        config.store.as_ref().map(|store| NamedStore { location: store.mask_password(), origin })
    }
}

/// Extent of the trust in a project's configuration file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trust {
    /// Set when the file is not trusted. Its sources that are in the store already stay there and are not contacted.
    pub untrusted: Option<UntrustedFile>,
    /// Servers to which the documents of a source may send requests: those they named when the file was trusted. A
    /// source without an entry is not restricted.
    pub document_servers: BTreeMap<SourceId, BTreeSet<String>>,
}

impl Trust {
    /// Returns the sources of an untrusted file, each with the reason why it is blocked.
    pub(crate) fn blocked_sources(&self) -> BTreeMap<SourceId, String> {
        let untrusted = self.untrusted.iter();
        untrusted.flat_map(|file| file.sources.iter().map(|id| (id.clone(), file.reason.clone()))).collect()
    }

    /// Fails when a source's document names a server that it did not name when the project's file was trusted.
    pub(crate) fn ensure_servers_are_trusted(&self, id: &SourceId, servers: &BTreeSet<String>) -> Result<()> {
        let unknown = self.document_servers.get(id).and_then(|trusted| servers.difference(trusted).next());
        let Some(unknown) = unknown else { return Ok(()) };
        let unknown = sanitize_truncated(unknown, 200);
        let message = format!(
            "the document of `{id}` sends requests to `{unknown}`, which it did not when the project's file was trusted; \
             review it, then run `toolcrib trust`"
        );
        Err(Error::new(Code::Forbidden, message))
    }
}

/// A project's configuration file that the user has not trusted (yet).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UntrustedFile {
    /// Why the sources are not contacted, and what to do about it.
    pub reason: String,
    /// Sources that the file declares.
    pub sources: Vec<SourceId>,
}

impl Default for RegistryOptions {
    fn default() -> Self {
        RegistryOptions {
            store: None,
            named_store: None,
            head_file: None,
            logs_directory: None,
            clock: Clock::system(),
            node_label: default_node_label(),
            guard: GuardExe::detect(),
            max_parallel_discoveries: 32,
            tool_limits: ToolLimits::default(),
            follow_writes: true,
            revalidate: true,
            environment: override_variables(),
            trust: Trust::default(),
            actor: None,
            trace: None,
            span_queue: None,
        }
    }
}

/// Returns the label of a node that was given none: the name of its machine.
pub fn default_node_label() -> String {
    #[cfg(unix)]
    return to_node_label(&rustix::system::uname().nodename().to_string_lossy());
    #[cfg(not(unix))]
    to_node_label(&std::env::var("COMPUTERNAME").unwrap_or_default())
}

/// Reads the override variables of this process. A variable that is not Unicode is ignored: it can match no source, and
/// `std::env::vars` would panic on it.
fn override_variables() -> Vec<(String, String)> {
    let readable =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    readable.filter(|(name, _)| name.starts_with("TOOLCRIB_SOURCE_")).collect()
}
