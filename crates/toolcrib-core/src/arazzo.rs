//! Arazzo 1.0: workflows whose steps are operations of OpenAPI documents, read tolerantly and advanced step by step.
//! Whoever sends the requests is elsewhere.
