//! Wishes. Each may be refused, and each may find that nothing needs to be done.

use std::sync::Arc;

use super::Origin;
use crate::fingerprint::Fingerprint;
use crate::manifest::Packed;
use crate::source::SourceId;
use crate::tool::ToolId;

#[derive(Debug, Clone)]
pub enum Command {
    Declare(Declaration),
    Enable(SourceId),
    Disable(SourceId),
    Remove(SourceId),
    Record(Recording),
    EnableTool(ToolId),
    DisableTool(ToolId),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declaration {
    pub source: SourceId,
    pub kind: String,
    pub origin: Origin,
    pub definition: Fingerprint,
    pub enabled: bool,
}

/// What a discovery found, and the manifest it found before.
#[derive(Debug, Clone)]
pub struct Recording {
    pub before: Option<Arc<Packed>>,
    pub after: Arc<Packed>,
}
