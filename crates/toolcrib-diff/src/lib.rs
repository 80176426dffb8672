//! Differences between versions of tools and tool lists: their class by the effect on callers, notes in English, reports
//! for people and for code review, and the lockfile that pins a catalogue.
//!
//! Reading schemas is left to `toolcrib-schema`. About 1,500 lines of this crate compare; the rest (lockfile, reports,
//! history) stores and words the results, and stays here because both sides of each format belong together.

pub mod compare;
pub mod history;
pub mod lockfile;
pub mod report;
