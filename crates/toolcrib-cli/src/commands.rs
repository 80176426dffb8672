//! One module per command: its arguments with their help, its work and its output. `main.rs` dispatches.
//!
//! Most commands have the same shape: open a [`CliSession`](crate::session::CliSession), do the work with its
//! registry, print, and close the session, which ends servers and writes counts. After an early error the session is
//! dropped instead, which ends the servers too. Failures that the command prints itself end in
//! `CommandOutcome::Failure`; everything else is an error with a code.

pub(crate) mod add;
pub(crate) mod backup;
pub(crate) mod call;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod context;
#[cfg(feature = "demo")]
pub(crate) mod demo;
pub(crate) mod describe;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod enable;
pub(crate) mod eval;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod history;
pub(crate) mod import;
pub(crate) mod init;
pub(crate) mod invalidate;
pub(crate) mod lock;
pub(crate) mod logs;
pub(crate) mod man;
pub(crate) mod mcp;
pub(crate) mod refresh;
pub(crate) mod remove;
pub(crate) mod restore;
pub(crate) mod rules;
pub(crate) mod search;
pub(crate) mod serve;
pub(crate) mod sources;
pub(crate) mod stats;
pub(crate) mod store;
pub(crate) mod token;
pub(crate) mod tools;
pub(crate) mod trust;
pub(crate) mod verify;
