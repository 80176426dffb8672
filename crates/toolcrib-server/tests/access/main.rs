//! Who may do what, over real HTTP.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod beyond;
mod console;
mod declaring;
mod local;
mod pages;
mod support;
#[path = "../common/web.rs"]
mod web;
