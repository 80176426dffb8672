//! Tests authentication, roles, sessions and the console pages over real HTTP.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod declare;
mod loopback;
mod network;
mod pages;
#[path = "../common/raw_http.rs"]
mod raw_http;
mod sign_in;
mod support;
