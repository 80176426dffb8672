//! The registry from outside: discovery, calls, built-ins, bad input, real servers, other processes, trouble with the store.
#![expect(clippy::unwrap_used, clippy::panic, reason = "what the tests share is a test too")]

mod support;

mod asking;
mod backed;
mod bad_input;
mod breaker;
mod builtins;
mod calls;
mod clients;
mod damage;
mod deadlines;
mod discovery;
mod events;
mod freshness;
mod hidden;
mod journal;
mod kills;
mod lifecycle;
mod lists;
mod newer;
mod offers;
mod pages;
mod real;
mod sources;
mod together;
mod tokens;
mod trouble;
