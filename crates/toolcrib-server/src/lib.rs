//! What agents reach: the MCP surface of a registry, over HTTP and over a byte stream.
