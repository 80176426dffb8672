//! The resources a server was asked to tell about. It forgets them with its session, so a new one asks for them again.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{json, value::RawValue};

use super::{Ask, Connection, Terms, after, lock};
use crate::message::{RawObject, raw};

/// How many are remembered.
const MOST: usize = 10_000;
const LIMIT: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(super) struct Watched(Mutex<BTreeSet<String>>);

impl Connection {
    /// Remembers what a request that was granted asked for.
    pub(crate) fn remember(&self, method: &str, params: Option<&RawValue>) {
        let uri = || params.and_then(RawObject::open).and_then(|params| params.text("uri"));
        let mut watched = lock(&self.watched.0);
        match method {
            "resources/subscribe" if watched.len() < MOST => watched.extend(uri()),
            "resources/unsubscribe" => drop(uri().and_then(|uri| watched.take(&uri))),
            _ => {}
        }
    }

    /// Asks for all of it in a new session. What changed in between was not told, so all of it may have.
    pub(super) fn watch_again(self: &Arc<Self>) {
        let watched = lock(&self.watched.0).clone();
        let connection = self.clone();
        self.spawn(async move {
            for uri in watched {
                let Ok(params) = raw(&json!({ "uri": uri })) else { continue };
                let (method, headers) = ("resources/subscribe", http::HeaderMap::new());
                let ask = Ask { method, params: Some(&params), headers, relay: None };
                match connection.exchange(&ask, &Terms::until(after(LIMIT))).await {
                    Ok(Some(_)) => connection.hear("notifications/resources/updated", Some(&params), || None),
                    Ok(None) => return,
                    Err(error) => tracing::debug!(%error, "a resource is not watched any more"),
                }
            }
        });
    }
}
