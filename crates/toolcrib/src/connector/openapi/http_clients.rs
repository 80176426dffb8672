//! HTTP clients, shared by all sources: making one reads the machine's certificates, and each has its own connections.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::{Client, redirect};
use toolcrib_core::{Code, Result, ResultExt};

use crate::address_policy::{NoLinkLocalResolver, PublicOnlyResolver};

/// How far a request may go. Each has its own client, so that none gets a connection that it could not have made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum NetworkScope {
    Anywhere,
    /// Names are resolved to no link-local address. A proxy may resolve them instead: names that are known to lead there
    /// are refused before.
    NotLinkLocal,
    /// Names are resolved to public addresses alone, by the connection itself; no proxy, for it would resolve them
    /// behind our back.
    PublicOnly,
}

#[derive(Debug, Default)]
pub(crate) struct OpenApiClients(Mutex<HashMap<(NetworkScope, Duration), Client>>);

impl OpenApiClients {
    pub(super) fn get(&self, reach: NetworkScope, connect_timeout: Duration) -> Result<Client> {
        let mut clients = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(&(reach, connect_timeout)) {
            return Ok(client.clone());
        }
        let client = build_client(reach, connect_timeout)?;
        clients.insert((reach, connect_timeout), client.clone());
        Ok(client)
    }
}

fn build_client(reach: NetworkScope, connect_timeout: Duration) -> Result<Client> {
    // Refused when the program has chosen another provider already, which is as good.
    let _chosen = rustls::crypto::ring::default_provider().install_default();
    let builder = Client::builder()
        .http1_only()
        .tcp_nodelay(true)
        .tcp_keepalive(Duration::from_secs(30))
        .connect_timeout(connect_timeout)
        .redirect(redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .user_agent(concat!("toolcrib/", env!("CARGO_PKG_VERSION")));
    let builder = match reach {
        NetworkScope::Anywhere => builder,
        NetworkScope::NotLinkLocal => builder.dns_resolver(Arc::new(NoLinkLocalResolver)),
        NetworkScope::PublicOnly => builder.no_proxy().dns_resolver(Arc::new(PublicOnlyResolver)),
    };
    builder.build().context(Code::Internal, "cannot prepare HTTPS on this machine")
}
