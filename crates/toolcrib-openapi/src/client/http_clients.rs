//! HTTP clients of all OpenAPI sources. Shared because building one reads the system's certificates, and because each
//! has its own connection pool.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::{Client, redirect};
use toolcrib_connector::address_policy::{NetworkScope, NoLinkLocalResolver, PublicOnlyResolver};
use toolcrib_core::{Code, Result, ResultExt};

/// `User-Agent` of every request, unless the source has another.
pub(super) const USER_AGENT: &str = concat!("toolcrib/", env!("CARGO_PKG_VERSION"));

/// Clients by scope and connect timeout. Each scope has its own, so that a pooled connection to a private address is never
/// reused by a request that could not have opened it.
#[derive(Debug, Default)]
pub struct OpenApiClients(Mutex<HashMap<(NetworkScope, Duration), Client>>);

impl OpenApiClients {
    /// Returns the client, building it on first use.
    pub(super) fn get(&self, scope: NetworkScope, connect_timeout: Duration) -> Result<Client> {
        let mut clients = self.0.lock();
        if let Some(client) = clients.get(&(scope, connect_timeout)) {
            return Ok(client.clone());
        }
        let client = build_client(scope, connect_timeout)?;
        clients.insert((scope, connect_timeout), client.clone());
        Ok(client)
    }
}

/// Redirects and retries are off: `send` follows redirects itself to check each target.
fn build_client(scope: NetworkScope, connect_timeout: Duration) -> Result<Client> {
    // Fails if the program has installed another provider, which serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // TCP_NODELAY: without it, delayed acknowledgements add some 40 ms to a call.
    let builder = Client::builder()
        .http1_only()
        .tcp_nodelay(true)
        .tcp_keepalive(Duration::from_secs(30))
        .connect_timeout(connect_timeout)
        .redirect(redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .user_agent(USER_AGENT);
    let builder = match scope {
        NetworkScope::Anywhere => builder,
        NetworkScope::NotLinkLocal => builder.dns_resolver(Arc::new(NoLinkLocalResolver)),
        NetworkScope::PublicOnly => builder.no_proxy().dns_resolver(Arc::new(PublicOnlyResolver)),
    };
    builder.build().context(Code::Internal, "cannot prepare HTTPS on this machine")
}
