//! Tests of the public `Registry`: discovery, calls, built-ins, faulty and real servers, other processes, store failures.

mod bad_servers;
mod breaker;
mod builtins;
mod calls;
mod client_requests;
mod deadlines;
mod discovery;
mod execution_details;
mod features;
mod freshness;
mod hidden_characters;
mod journal_damage;
mod lifecycle;
mod log_events;
mod long_journal;
mod multi_process;
mod newer_records;
mod offerings;
mod per_client;
mod real_servers;
mod recorded_lists;
mod result_pages;
mod server_kills;
mod sources;
mod store_failures;
mod tokens;
