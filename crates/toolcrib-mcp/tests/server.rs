//! Tests of the server side, with raw HTTP requests and lines and with our own client.

mod client;
mod client_requests;
mod http;
mod http_errors;
mod sessions;
mod stdio;
mod support;
