#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

// For readers of the code: `registry` is the interface; `state` writes the journal and publishes the catalogue;
// `refresh` discovers tool lists; `call` checks and sends calls; `connectors` holds the connection of each source. The
// protocols, the model, the catalogue with search and rendering, differences and configuration are crates of their own,
// re-exported below.
//
// The library prints nothing. It logs through `tracing`, reports changes through `Registry::subscribe`, and returns
// every failure as an `Error` with a `Code`.

// The registry, and what it does: refresh tool lists, call tools, store the journal.
pub mod call;
pub mod config_file;
mod held_binaries;
mod logins;
mod maintenance;
mod notice;
mod options;
pub mod refresh;
pub mod registry;
mod result_pages;
pub mod search_model;
mod state;
pub mod store;
mod store_health;

pub mod cloud_event;

// Sources: the table of connectors with circuit breakers, and the MCP connector. Other connectors are crates.
mod breaker;
mod connectors;
mod limits;

// Monitoring and files.
pub mod metrics;
mod monitoring;
mod node;
#[cfg(feature = "otel")]
pub mod otel;
#[doc(hidden)]
pub mod private_dir;
mod shared_runs;
pub mod spans;
mod tasks;
mod token_uses;
mod usage;

#[cfg(any(test, feature = "testkit"))]
pub mod testkit;

pub use call::{Call, CallContext, CallOutput, ClientId, McpCapability, ResultPage, ResultPaging};
pub use connectors::{SourceEvents, server_log_path};
pub use node::{HandleOrigin, NodeId};
pub use refresh::{Refresh, RefreshOutcome, Requester, RequiredFreshness};
pub use registry::{Registry, RegistryBuilder, RegistryOptions, Trust, UntrustedFile, default_node_label};
#[cfg(feature = "builtins")]
pub use toolcrib_builtins as builtins;
pub use toolcrib_catalog as catalog;
pub use toolcrib_config as config;
pub use toolcrib_connector as connector;
pub use toolcrib_connector::builtin::{BuiltinDefinition, BuiltinHandler, BuiltinOutput, builtin_handler};
pub use toolcrib_connector::trace::Trace;
pub use toolcrib_connector::{address_policy, clock, redact, secret, trace};
pub use toolcrib_core as core;
pub use toolcrib_core::principal::Principal;
pub use toolcrib_core::{Code, Error, Result, Source, SourceId};
pub use toolcrib_diff as diff;
pub use toolcrib_guard as guard;
pub use toolcrib_schema as schema;
