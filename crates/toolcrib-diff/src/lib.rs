//! Differences between versions of tools and tool lists: their class by the effect on callers, notes in English, reports
//! for people and for code review, and the lockfile that pins a catalogue.
//!
//! Reading schemas is left to `toolcrib-schema`. Lockfile and reports store and word the results; they are here because
//! both sides of each format belong together.

pub mod compare;
pub mod lockfile;
pub mod report;
