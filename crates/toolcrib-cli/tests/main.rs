//! Tests of the command `toolcrib` through the real binary. All files are modules of one test binary, because each binary
//! links the whole library again.

#![expect(clippy::unwrap_used, clippy::panic, reason = "test code")]

mod support;

mod access;
mod auth;
mod binaries;
mod clients;
mod cluster;
mod console;
mod context;
mod damaged_store;
mod describe;
mod discovery_wait;
mod doctor;
mod documentation;
mod durability;
mod environment;
mod history;
mod hostile_schemas;
mod killed_rule_changes;
mod local_callers;
mod manage_sources;
mod monitoring;
mod newer_store;
mod openapi_generated;
mod postgres_servers;
mod postgres_store;
mod process_cleanup;
mod read_commands;
mod rest;
mod search;
mod secrets;
mod serve;
mod store_commands;
mod store_location;
mod telemetry;
mod traces;
mod trust;
mod verify;
mod workflow;
