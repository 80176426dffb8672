//! Tests authentication, roles, sessions and the console pages over real HTTP.

mod declare;
mod loopback;
mod network;
mod pages;
mod sign_in;
mod support;
