//! From an operation and the arguments of a call to the request that the specification asks for.
