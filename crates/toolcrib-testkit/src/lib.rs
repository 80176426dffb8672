//! What tests of Toolcrib, and of what is built on it, need from outside: real servers that `cargo xtask test`
//! fetched, and scripted ones that show faults a real one cannot be made to show.

pub mod fake;
pub mod http_response;
pub mod programs;
