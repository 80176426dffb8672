//! One catalogue of every tool an AI agent may use: discovers tools lazily, stores them durably, and dispatches each
//! call to its source, subject to policy. [`Registry`] is the entry point.

pub mod address_policy;
pub mod builtin;
pub mod call;
pub mod clock;
pub mod config_file;
pub mod connections;
pub mod connector;
pub mod guard;
pub mod metrics;
pub mod peer;
pub mod private_dir;
pub mod redact;
pub mod refresh;
pub mod registry;
pub mod secret;
pub mod server_logs;
pub mod spans;
pub mod store;
pub mod trace;

#[cfg(any(test, feature = "testkit"))]
pub mod testkit;

mod breaker;
mod process;
mod result_pages;
mod templates;
mod usage;

pub use call::{CallNotification, CallOptions, CallOutput, ClientId, McpCapability, ResultPage};
pub use refresh::{Refresh, RefreshOutcome, RequiredFreshness};
pub use registry::{Registry, RegistryOptions, Trust, UntrustedFile};
pub use toolcrib_core as core;
pub use toolcrib_core::catalog::Caller;
pub use toolcrib_core::{Code, Error, Result, Source, SourceId};
pub use trace::Trace;

/// Compiles the examples of the embedding guide as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/embedding.md")]
struct EmbeddingGuide;
