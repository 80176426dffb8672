//! One request of a call and its answer: with credentials, made again where that is safe, and what a failure says about
//! the source.

use std::borrow::Cow;
use std::time::Duration;

use http::StatusCode;
use tokio::time::Instant;
use toolcrib_core::Code;

use super::OpenApiConnector;
use super::again::{Tries, asked_wait};
use super::credentials::{Chosen, Proof, present};
use super::refusal::refusal;
use super::result::{LARGEST, response};
use super::send::{Failed, Outgoing, Received, Sender};
use super::settled::Settled;
use crate::connector::{CallFailure, Witness};
use crate::trace::Trace;

#[derive(Debug)]
pub(super) struct Exchange<'a> {
    pub(super) connector: &'a OpenApiConnector,
    pub(super) settled: &'a Settled,
    pub(super) chosen: &'a Chosen,
    pub(super) deadline: Instant,
    pub(super) witness: Option<&'a Witness>,
    pub(super) trace: Option<&'a Trace>,
}

impl Exchange<'_> {
    /// The answer, if it is below 400. Who calls sees to it that this ends in time.
    pub(super) async fn ask(&self, draft: &Outgoing, repeatable: bool) -> Result<Received, CallFailure> {
        let mut tries = Tries::new(repeatable);
        let mut renewed = false;
        loop {
            let tokens = self.tokens().await.map_err(failure)?;
            let wait = match self.once(draft, &tokens).await {
                Ok(received) if received.status.as_u16() < 400 => {
                    self.show(draft, &received);
                    return Ok(received);
                }
                // It may have been taken back before its time, once.
                Ok(received) if received.status == StatusCode::UNAUTHORIZED && !tokens.is_empty() && !renewed => {
                    renewed = true;
                    self.forget(&tokens).await;
                    continue;
                }
                Ok(received) => {
                    let asked = asked_wait(&received.headers, self.connector.clock.now());
                    let wait = tries.after(received.status, asked, self.remaining());
                    wait.ok_or_else(|| {
                        self.show(draft, &received);
                        self.refused(draft, &received, asked)
                    })
                }
                Err(failed) => {
                    let wait = match &failed {
                        Failed::Refused(_) => None,
                        Failed::Unreached(_) => tries.after_unreached(self.remaining()),
                        Failed::Broken(_) => tries.after_broken(self.remaining()),
                    };
                    wait.ok_or_else(|| failure(failed))
                }
            };
            tokio::time::sleep(wait?).await;
        }
    }

    pub(super) fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    fn show(&self, draft: &Outgoing, received: &Received) {
        if let Some(witness) = self.witness {
            witness.sees(response(draft, received));
        }
    }

    async fn once(&self, draft: &Outgoing, tokens: &[String]) -> Result<Received, Failed> {
        let mut outgoing = draft.clone();
        present(&self.chosen.proofs, tokens, &mut outgoing.url, &mut outgoing.headers).map_err(Failed::Refused)?;
        if let Some(trace) = self.trace {
            trace.add_to(&mut outgoing.headers);
        }
        let sender = Sender {
            clients: &self.connector.clients,
            territory: &self.settled.territory,
            connect_timeout: self.connector.source.settings.connect_timeout(),
            most: LARGEST,
        };
        let mut received = match self.witness.is_some_and(|witness| witness.sees_redirects) {
            true => sender.send_and_stay(outgoing).await?,
            false => sender.send(outgoing).await?,
        };
        let OpenApiConnector { source, redactor, .. } = self.connector;
        if let Cow::Owned(redacted) = redactor.get(&source.kind).redact(&received.place) {
            received.place = redacted;
        }
        Ok(received)
    }

    async fn tokens(&self) -> Result<Vec<String>, Failed> {
        let OpenApiConnector { source, clients, tokens, redactor, .. } = self.connector;
        let tokens = tokens.of(&self.chosen.proofs, clients, source.settings.connect_timeout()).await?;
        tokens.iter().for_each(|token| redactor.add_credential(token));
        Ok(tokens)
    }

    async fn forget(&self, tokens: &[String]) {
        let grants = self.chosen.proofs.iter().filter_map(|proof| match proof {
            Proof::Oauth2(grant) => Some(grant),
            Proof::Bearer(_) | Proof::Basic { .. } | Proof::Key { .. } => None,
        });
        for (grant, token) in grants.zip(tokens) {
            self.connector.tokens.forget(grant, token).await;
        }
    }

    fn refused(&self, draft: &Outgoing, received: &Received, asked: Option<Duration>) -> CallFailure {
        let error = refusal(&draft.label, received, asked, self.chosen.missing.as_deref());
        // A server may repeat what it got.
        let OpenApiConnector { source, redactor, .. } = self.connector;
        let error = redactor.get(&source.kind).redact_error(error);
        match received.status.as_u16() {
            502..=504 if error.code != Code::RateLimited => CallFailure::Lost(error),
            _ => CallFailure::Refused(error),
        }
    }
}

fn failure(failed: Failed) -> CallFailure {
    match failed {
        Failed::Refused(error) => CallFailure::Refused(error),
        Failed::Unreached(error) | Failed::Broken(error) => CallFailure::Lost(error),
    }
}
