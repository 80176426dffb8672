//! One catalogue of every tool an AI agent may use.

pub mod store;

pub use toolcrib_core as core;
