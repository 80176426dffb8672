//! One catalogue of every tool an AI agent may use: it discovers tools lazily, remembers them durably, and sends each
//! call to the right source, under policy. [`Registry`] is the front door.

pub mod builtin;
pub mod call;
pub mod clock;
pub mod config_file;
pub mod connections;
pub mod connector;
pub mod guard;
pub mod logs;
pub mod meters;
pub mod network;
pub mod peer;
pub mod private;
pub mod redact;
pub mod refresh;
pub mod registry;
pub mod secret;
pub mod spans;
pub mod store;
pub mod trace;

#[cfg(any(test, feature = "testkit"))]
pub mod testkit;

mod breaker;
mod counters;
mod held;
mod process;
mod templates;

pub use call::{CallOptions, ClientId, Offering, Output, Page, Said};
pub use refresh::{Need, Outcome, Refresh};
pub use registry::{Options, Registry, Trust, Untrusted};
pub use toolcrib_core as core;
pub use toolcrib_core::catalog::Caller;
pub use toolcrib_core::{Code, Error, Result, Source, SourceId};
pub use trace::Trace;

/// The guide's example is compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/embedding.md")]
struct EmbeddingGuide;
