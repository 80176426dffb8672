//! How the catalogue is presented to MCP clients.

use serde::{Deserialize, Serialize};

/// Which tools an MCP client finds in `tools/list`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExposeMode {
    /// `Full` for a small catalogue, `Search` for a large one.
    Auto,
    /// Only the meta tools for search, and the essential tools.
    Search,
    /// Every visible tool.
    Full,
}

crate::name_variants!(ExposeMode { Auto => "auto", Search => "search", Full => "full" });
