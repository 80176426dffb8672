//! Tests of the client against scripted servers, with correct and with faulty behaviour.

mod http;
mod http_errors;
mod modern;
mod stdio;
mod stdio_errors;
mod support;
