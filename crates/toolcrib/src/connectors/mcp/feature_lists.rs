//! Reads the prompts, resources and resource templates of a server, after its tools are known.
//!
//! All lists are requested at the same time, and each has its own result: one that fails or hangs affects no other. The
//! reader reports the lists that have arrived after [`PARTIAL_DELAY`], and all of them at the end, so that a list that
//! hangs does not delay the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, StreamExt};
use http::HeaderMap;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolcrib_connector::{FeatureReading, PendingFeatures};
use toolcrib_core::SourceId;
use toolcrib_core::features::{ByFeatureKind, FeatureKind, OfferedFeatures, OfferedList};
use toolcrib_core::json::RawFields;
use toolcrib_core::manifest::SkippedTool;
use toolcrib_core::time::format_duration;
use toolcrib_mcp::{ConnectionEvent, Era, ItemList, ListMethod, McpClient, RequestOptions, WireError};

use super::McpConnector;
use super::connection::McpConnection;
use super::discovery::clean_reason;
use crate::clock::deadline_after;
use crate::redact::{RedactedJson, Redactor};

/// Time after which the lists that were read are reported without the others.
const PARTIAL_DELAY: Duration = Duration::from_millis(750);

/// Lists to read, over the connection that has listed the tools.
pub(super) struct FeatureRequest {
    pub(super) connection: Arc<McpConnection>,
    /// Whether the connection was opened for this discovery alone. It is closed after the last list.
    pub(super) is_temporary: bool,
    /// From the handshake, redacted.
    pub(super) instructions: Option<String>,
    /// `_meta` and headers of each request.
    pub(super) meta: Option<Box<RawValue>>,
    pub(super) headers: HeaderMap,
}

/// One list as far as it was read.
#[derive(Debug, Clone, Default)]
enum ListState {
    /// No response yet.
    #[default]
    Pending,
    Read(ReadList),
    /// With the redacted reason.
    Failed(String),
}

/// A list without the secrets of its source.
#[derive(Debug, Clone)]
struct ReadList {
    items: Vec<Box<RawValue>>,
    /// Items with a secret in their name or URI.
    skipped: Vec<SkippedTool>,
    ttl_ms: Option<u64>,
    public: bool,
}

/// Reader of the lists of one source.
struct FeatureReader {
    source: SourceId,
    request: FeatureRequest,
    redactor: Arc<Redactor>,
    /// Time for all lists together.
    timeout: Duration,
    lists: Mutex<ByFeatureKind<ListState>>,
    /// Set when the connection was closed, or is being closed.
    is_closed: AtomicBool,
    shutdown: CancellationToken,
    closing_tasks: TaskTracker,
}

/// Progress of a reader.
enum ReadingStage {
    /// The requests are running. `has_reported` is set after the report of a part.
    Reading { requests: BoxFuture<'static, ()>, has_reported: bool },
    /// Everything was reported; the connection is still open.
    Reported,
}

/// Whether a server declares any of the lists.
pub(super) fn has_features(client: &McpClient) -> bool {
    FeatureKind::ALL.into_iter().any(|kind| client.declares(list_method(kind)))
}

impl McpConnector {
    /// Starts to read prompts and resources. The requests are sent when the result is polled.
    pub(super) fn read_features(&self, request: FeatureRequest) -> PendingFeatures {
        let reader = Arc::new(FeatureReader {
            source: self.source.id.clone(),
            request,
            redactor: self.references.redactor(),
            timeout: self.source.settings.discovery_timeout(),
            lists: Mutex::default(),
            is_closed: AtomicBool::new(false),
            shutdown: self.shutdown.clone(),
            closing_tasks: self.closing_tasks.clone(),
        });
        let requests = reader.clone().read_lists().boxed();
        let start = (reader, ReadingStage::Reading { requests, has_reported: false });
        PendingFeatures(stream::unfold(start, |(reader, stage)| reader.next_reading(stage)).boxed())
    }
}

impl FeatureReader {
    /// Waits for the next reading: a part after [`PARTIAL_DELAY`], then the complete one.
    async fn next_reading(
        self: Arc<Self>,
        stage: ReadingStage,
    ) -> Option<(FeatureReading, (Arc<FeatureReader>, ReadingStage))> {
        let ReadingStage::Reading { mut requests, has_reported } = stage else {
            self.close_connection().await;
            return None;
        };
        let limit = if has_reported { Duration::MAX } else { PARTIAL_DELAY };
        let wait = tokio::time::timeout(limit, &mut requests);
        match self.shutdown.run_until_cancelled(wait).await {
            Some(Ok(())) => Some((self.combine(), (self, ReadingStage::Reported))),
            Some(Err(_)) => Some((self.combine(), (self, ReadingStage::Reading { requests, has_reported: true }))),
            // The connector closes its own connections.
            None => {
                drop(requests);
                self.close_connection().await;
                None
            }
        }
    }

    /// Closes a connection that was opened for this discovery, in the background if the server may not respond.
    async fn close_connection(&self) {
        let has_read_all =
            FeatureKind::ALL.into_iter().all(|kind| matches!(self.lists.lock().get(kind), ListState::Read(_)));
        if has_read_all && self.request.is_temporary {
            self.request.connection.close().await;
            self.is_closed.store(true, Ordering::Relaxed);
        } else {
            self.close_in_background();
        }
    }

    /// Closes a connection that was opened for this discovery, unless that has happened.
    fn close_in_background(&self) {
        if !self.request.is_temporary || self.is_closed.swap(true, Ordering::Relaxed) {
            return;
        }
        // Without a runtime, this process is ending, and its servers end with it.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (connection, shutdown) = (self.request.connection.clone(), self.shutdown.clone());
        self.closing_tasks.spawn_on(async move { connection.close_or_kill(&shutdown).await }, &runtime);
    }

    /// Requests all lists, and those that the server announced a change of meanwhile once more.
    async fn read_lists(self: Arc<Self>) {
        let connection = &self.request.connection;
        // Keeps the idle monitor from closing the connection meanwhile.
        let _in_flight = connection.begin_discovery();
        let mut events = connection.client.events();
        let mut options = RequestOptions::with_deadline(deadline_after(self.timeout));
        options.headers = self.request.headers.clone();
        self.request_lists(&options).await;
        // A temporary connection has no listener later, so an announcement counts now.
        let mut announced = std::iter::from_fn(|| events.try_recv().ok());
        if self.request.is_temporary && announced.any(|event| is_feature_announcement(&event)) {
            self.request_lists(&options).await;
        }
    }

    /// Requests all lists at the same time, and keeps each when it arrives.
    async fn request_lists(&self, options: &RequestOptions<'_>) {
        let request = async |kind| {
            let client = &self.request.connection.client;
            let list = client.list_items(list_method(kind), self.request.meta.as_deref(), options).await;
            let state = self.list_state(kind, list);
            *self.lists.lock().get_mut(kind) = state;
        };
        tokio::join!(
            request(FeatureKind::Prompt),
            request(FeatureKind::Resource),
            request(FeatureKind::ResourceTemplate)
        );
    }

    /// Returns the state of a list after its response: without the secrets of the source, or with the reason of the
    /// failure.
    fn list_state(&self, kind: FeatureKind, list: Result<ItemList, WireError>) -> ListState {
        match list {
            Ok(list) => ListState::Read(redact_list(kind, list, &self.redactor)),
            Err(error) => {
                let reason = if matches!(error, WireError::Timeout { .. }) {
                    format!("no answer within {}", format_duration(self.timeout))
                } else {
                    error.to_string()
                };
                let reason = clean_reason(&reason, &self.redactor);
                tracing::warn!(server_name = %self.source, reason, "`{}` failed", list_method(kind).method);
                ListState::Failed(reason)
            }
        }
    }

    /// Returns what was read until now.
    fn combine(&self) -> FeatureReading {
        let lists = self.lists.lock().clone();
        let mut reading = FeatureReading { is_complete: true, ..FeatureReading::default() };
        let mut skipped = Vec::new();
        let is_modern = self.request.connection.client.era() == Era::Modern;
        let lists = ByFeatureKind::from_fn(|kind| match lists.get(kind) {
            ListState::Pending => {
                reading.is_complete = false;
                OfferedList::Failed
            }
            ListState::Failed(reason) => {
                let name = list_method(kind).method.to_owned();
                reading.failed_lists.push(SkippedTool { name, reason: reason.clone() });
                OfferedList::Failed
            }
            ListState::Read(list) => {
                reading.ttl_ms = reading.ttl_ms.into_iter().chain(list.ttl_ms).min();
                // Only servers of the 2026 protocol declare whether a list is public.
                reading.private |= is_modern && !list.public;
                skipped.extend(list.skipped.iter().cloned());
                OfferedList::Items(list.items.clone())
            }
        });
        let instructions = self.request.instructions.clone();
        FeatureReading { offered: OfferedFeatures { lists, instructions, skipped }, ..reading }
    }
}

/// Closes the connection of a reading that is dropped because another discovery reads the lists. Otherwise its server
/// would be killed, and a session over HTTP would stay open.
impl Drop for FeatureReader {
    fn drop(&mut self) {
        self.close_in_background();
    }
}

/// Method that lists the features of a kind.
fn list_method(kind: FeatureKind) -> &'static ListMethod {
    match kind {
        FeatureKind::Prompt => &ListMethod::PROMPTS,
        FeatureKind::Resource => &ListMethod::RESOURCES,
        FeatureKind::ResourceTemplate => &ListMethod::RESOURCE_TEMPLATES,
    }
}

/// Whether a server announced that its prompts or resources changed.
fn is_feature_announcement(event: &ConnectionEvent) -> bool {
    matches!(event, ConnectionEvent::Other { method, .. }
        if matches!(method.as_str(), "notifications/prompts/list_changed" | "notifications/resources/list_changed"))
}

/// Masks secrets of the source in a list. An item with a secret in its name or URI is skipped.
fn redact_list(kind: FeatureKind, list: ItemList, redactor: &Redactor) -> ReadList {
    let ItemList { items: offered, ttl_ms, public } = list;
    let mut items = Vec::with_capacity(offered.len());
    let mut skipped = Vec::new();
    let item_key =
        |item: &RawValue| RawFields::parse(item).and_then(|fields| Some(fields.get(kind.key())?.get().to_owned()));
    for (item, number) in offered.into_iter().zip(1..) {
        let redacted = match redactor.redact_json(&item) {
            RedactedJson::Unchanged => Some(item),
            RedactedJson::Changed(redacted) => (item_key(&redacted) == item_key(&item)).then_some(redacted),
            RedactedJson::Unmaskable => None,
        };
        match redacted {
            Some(item) => items.push(item),
            None => {
                let reason = format!("it contains a secret value of its source in its `{}`", kind.key());
                skipped.push(SkippedTool { name: format!("{} #{number}", kind.as_str()), reason });
            }
        }
    }
    ReadList { items, skipped, ttl_ms, public }
}
