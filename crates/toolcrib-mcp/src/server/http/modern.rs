//! Requests of 2026-07-28: each says all about itself, in its body and again in its headers.

use std::sync::Arc;

use http::{HeaderMap, request::Parts};
use serde_json::value::RawValue;

use super::{Endpoint, Reply, VERSION, order, reply::Accepts, said};
use crate::{
    era::{Era, MODERN},
    error::RpcError,
    headers,
    message::RawObject,
    server::{
        Peer,
        feed::{Feed, Keeps},
        greet,
        job::Client,
        params::Params,
    },
};

impl Endpoint {
    pub(super) async fn modern(
        &self,
        head: &Parts,
        id: &RawValue,
        method: &str,
        mut params: Params,
        accepts: Accepts,
    ) -> Result<Reply, RpcError> {
        let shared = &self.owner.shared;
        params.require_meta()?;
        check_version(&head.headers, &params)?;
        headers::check_standard(&head.headers, method, params.name.as_deref()).map_err(mismatch)?;
        let query = head.uri.query().unwrap_or_default();
        let capabilities = params.capabilities.take().unwrap_or_else(greet::nothing);
        let peer = Peer::new(Era::Modern, params.client.take(), capabilities, query);
        let peer = Arc::new(Peer { fleeting: true, ..peer });
        if method == "tools/call" {
            self.check_arguments(&head.headers, &peer, &params)?;
        }
        let feed = Feed::new(0, shared.options.queue, Keeps::Nothing);
        let reader = feed.reader(None);
        let client = Client { peer, desk: None, ended: shared.closing.clone(), single: true };
        shared.begin(client, order(head, id, method, params, &feed, accepts.events))?;
        let answer = self.respond(reader, Era::Modern, accepts).await;
        Ok(answer.map_or_else(|| self.unanswered(id, &shared.closing), Ok))
    }

    /// The headers that repeat arguments, where the tool's schema asks for them.
    fn check_arguments(&self, headers: &HeaderMap, peer: &Arc<Peer>, params: &Params) -> Result<(), RpcError> {
        let Some(name) = &params.name else { return Ok(()) };
        let Some(schema) = self.owner.shared.service.input_schema(peer, name) else { return Ok(()) };
        let all = params.rest.as_deref().and_then(RawObject::open).unwrap_or_default();
        let nothing = greet::nothing();
        let arguments = all.get("arguments").unwrap_or(&nothing);
        headers::check_arguments(headers, &schema, arguments).map_err(mismatch)
    }
}

fn check_version(headers: &HeaderMap, params: &Params) -> Result<(), RpcError> {
    let asked = params.version.as_deref().unwrap_or_default();
    match said(headers, VERSION) {
        None => Err(mismatch(format!("the header `{VERSION}` is missing"))),
        Some(said) if said != asked => Err(mismatch(format!("the header `{VERSION}` does not say what `_meta` says"))),
        Some(_) if asked != MODERN => Err(greet::unsupported(asked)),
        Some(_) => Ok(()),
    }
}

fn mismatch(why: String) -> RpcError {
    RpcError::new(RpcError::HEADER_MISMATCH, why)
}
