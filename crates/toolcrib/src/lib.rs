//! placeholder

pub mod builtin;
pub mod guard;
