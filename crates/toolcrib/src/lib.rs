//! One catalogue of every tool an AI agent may use: discovers tools lazily, stores them durably, and dispatches each
//! call to its source, subject to policy. [`Registry`] is the entry point.
//!
//! `registry` is the interface; `state` writes the journal and publishes the catalogue; `refresh` discovers tool lists;
//! `call` checks and sends calls; `connector` implements the protocols behind both. The model, the
//! catalogue with search and rendering, differences and configuration are pure functions in crates of their own,
//! re-exported as `core`, `catalog`, `diff`, `config` and `schema`.
//!
//! The library prints nothing. It logs through `tracing`, reports changes through [`Registry::subscribe`], and returns
//! every failure as an [`Error`] with a [`Code`]. A program that embeds it calls `guard::run_if_requested` at the start
//! of `main`; otherwise stdio servers run in process groups only, without a guard.

// The registry, and what it does: refresh tool lists, call tools, store the journal.
pub mod call;
pub mod config_file;
mod maintenance;
pub mod refresh;
pub mod registry;
mod result_pages;
mod state;
pub mod store;

// Sources: the table of connectors with circuit breakers, and the MCP connector. Other connectors are crates.
mod breaker;
pub mod connectors;
pub mod peer;

// Monitoring and files.
pub mod metrics;
mod monitoring;
mod node;
#[cfg(feature = "otel")]
pub mod otel;
pub mod private_dir;
pub mod spans;
mod tasks;
mod usage;

#[cfg(any(test, feature = "testkit"))]
pub mod testkit;

pub use call::{Call, CallContext, CallOutput, ClientId, McpCapability, ResultPage, ResultPaging};
pub use node::NodeId;
pub use refresh::{Refresh, RefreshOutcome, RequiredFreshness};
pub use registry::{Registry, RegistryBuilder, RegistryOptions, Trust, UntrustedFile};
#[cfg(feature = "builtins")]
pub use toolcrib_builtins as builtins;
pub use toolcrib_catalog as catalog;
pub use toolcrib_config as config;
pub use toolcrib_connector as connector;
pub use toolcrib_connector::trace::Trace;
pub use toolcrib_connector::{address_policy, builtin, clock, redact, secret, trace};
pub use toolcrib_core as core;
pub use toolcrib_core::principal::Principal;
pub use toolcrib_core::{Code, Error, Result, Source, SourceId};
pub use toolcrib_diff as diff;
pub use toolcrib_guard as guard;
pub use toolcrib_schema as schema;

/// Compiles the examples of the embedding guide as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/embedding.md")]
struct EmbeddingGuide;
