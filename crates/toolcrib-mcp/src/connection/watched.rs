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
/// Before what was refused is asked for again; twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(super) struct Watched(Mutex<BTreeSet<String>>);

impl Connection {
    /// Remembers what a request that was granted asked for.
    pub(crate) fn remember(&self, method: &str, params: Option<&RawValue>) {
        if !matches!(method, "resources/subscribe" | "resources/unsubscribe") {
            return;
        }
        let Some(uri) = params.and_then(RawObject::open).and_then(|params| params.text("uri")) else { return };
        let mut watched = lock(&self.watched.0);
        if method == "resources/unsubscribe" {
            watched.remove(&uri);
        } else if watched.len() < MOST {
            watched.insert(uri);
        }
    }

    /// Asks for all of it in a new session, and again for what was refused. What changed in between was not told, so all
    /// of it may have.
    pub(super) fn watch_again(self: &Arc<Self>) {
        let connection = self.clone();
        self.spawn(async move {
            let session = connection.transport.session();
            let (mut lost, mut pause) = (lock(&connection.watched.0).clone(), FIRST_PAUSE);
            loop {
                for uri in std::mem::take(&mut lost) {
                    if !lock(&connection.watched.0).contains(&uri) {
                        continue;
                    }
                    let Ok(params) = raw(&json!({ "uri": uri })) else { continue };
                    let (method, headers) = ("resources/subscribe", http::HeaderMap::new());
                    let ask = Ask { method, params: Some(&params), headers, relay: None };
                    match connection.exchange(&ask, &Terms::until(after(LIMIT))).await {
                        Ok(Some(_)) => connection.hear("notifications/resources/updated", Some(&params), || None),
                        Ok(None) => return,
                        Err(error) => {
                            tracing::debug!(
                                error = error.kind(),
                                "a resource is not watched now; asked for again later"
                            );
                            lost.insert(uri);
                        }
                    }
                }
                if lost.is_empty() {
                    return;
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
                // The next session has somebody who asks for all of it.
                if connection.transport.session() != session {
                    return;
                }
            }
        });
    }
}
