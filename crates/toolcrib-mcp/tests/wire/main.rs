//! The client against scripted servers that behave, misbehave and fall silent.

mod http;
mod http_faults;
mod modern;
mod stream;
mod stream_faults;
mod support;
