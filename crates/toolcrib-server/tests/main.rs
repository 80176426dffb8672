//! Tests of the server over real HTTP and MCP connections.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod test_server;

mod auth {
    //! Tests authentication, roles, sessions and the console pages over real HTTP.

    mod declare;
    mod jwt;
    mod known_callers;
    mod loopback;
    mod network;
    mod oidc_provider;
    mod pages;
    mod rule_forms;
    mod sign_in;
    mod support;
    mod test_issuer;
    mod tokens;
}

mod mcp {
    //! Tests the MCP service through a real client over a byte stream, with scripted sources.

    mod calls;
    mod features;
    mod lists;
    mod server_requests;
    mod subscriptions;
    mod support;
    mod token_costs;
}

mod nodes {
    //! Tests several servers on one store: sessions, positions, equal answers, and handles of other nodes.

    mod support;

    mod equality;
    mod handles;
    mod positions;
    mod sessions;
}

mod rest {
    //! Tests the REST API over real HTTP: routes, invalid input, event streams, connections, and the OpenAPI document.

    mod support;

    mod calls;
    mod connections;
    pub(crate) mod events;
    mod every_byte;
    mod history;
    mod invalid_input;
    mod nodes;
    mod openapi;
    mod rules;
    mod scopes;
    mod shutdown;
    mod sources;
    mod store_failure;
    mod tools;
    mod visibility;
    mod withheld;
}
