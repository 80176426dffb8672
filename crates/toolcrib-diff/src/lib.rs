//! Differences between versions of tools and tool lists: their class by the effect on callers, notes in English, reports
//! for people and for code review, and the lockfile that pins a catalogue.

pub mod compare;
pub mod history;
pub mod lockfile;
pub mod report;
