//! OpenAPI documents: from their text to tools, and from a call to the request that the document asks for.

pub mod request;
