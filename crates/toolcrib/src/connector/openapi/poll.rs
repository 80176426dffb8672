//! What a request started is looked at again and again, on the same server and with the same credentials, until its
//! status says that it is done or has failed.

use std::time::Duration;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use toolcrib_core::execution::{Operation, Place};
use toolcrib_core::expression::{self, Scope, evaluate, is_expression};
use toolcrib_core::openapi::request::encoded;
use toolcrib_core::source::Poll;
use toolcrib_core::text::shown_short;
use toolcrib_core::{Code, Error, Result};
use url::Url;

use super::again::asked_wait;
use super::call::listed;
use super::exchange::Exchange;
use super::outgoing::{declared, look, plain};
use super::refusal::{bounded, reason};
use super::result::{answer, answer_with};
use super::send::{Outgoing, Received};
use crate::connector::{Answer, CallFailure};

const FIRST_INTERVAL: Duration = Duration::from_secs(1);
const LONGEST_INTERVAL: Duration = Duration::from_secs(10);
/// Bytes of what an answer says for an address.
const LONGEST_VALUE: usize = 8 * 1024;

#[derive(Debug)]
pub(super) struct Polling<'a> {
    pub(super) exchange: &'a Exchange<'a>,
    pub(super) base: &'a Url,
    pub(super) poll: &'a Poll,
    /// The request that started it.
    pub(super) draft: &'a Outgoing,
    pub(super) progress: Option<&'a mpsc::Sender<Box<RawValue>>>,
}

/// How it goes.
enum State {
    Done(Value),
    Failed(String, Value),
    /// With its status, where it has one.
    GoesOn(Option<String>),
}

impl Polling<'_> {
    pub(super) async fn follow(
        &self,
        operation: &Operation,
        arguments: &Map<String, Value>,
        started: Received,
    ) -> Result<Answer, CallFailure> {
        let url = self.address(operation, arguments, &started).map_err(CallFailure::Refused)?;
        let look = look(url, self.exchange.settled).map_err(CallFailure::Refused)?;
        let mut interval = self.poll.interval.unwrap_or(FIRST_INTERVAL);
        let (mut last, mut status) = (started, None);
        for times in 1u64.. {
            let asked = asked_wait(&last.headers, self.exchange.connector.clock.now());
            self.wait(asked.unwrap_or(interval), status.as_deref()).await?;
            interval = interval.mul_f64(1.5).min(LONGEST_INTERVAL.max(interval));
            last = self.exchange.ask(&look, true).await?;
            status = match self.state(&last).map_err(CallFailure::Refused)? {
                State::Done(body) => return self.result(&body, &last).map_err(CallFailure::Refused),
                State::Failed(status, body) => return Err(CallFailure::Refused(self.failed(&status, body))),
                State::GoesOn(status) => status,
            };
            self.tell(times, status.as_deref());
        }
        Err(CallFailure::Refused(self.error("was looked at for ever")))
    }

    /// Where to look: on the declared server, whatever the answer says.
    fn address(&self, operation: &Operation, arguments: &Map<String, Value>, started: &Received) -> Result<Url> {
        let sent = Sent::new(operation, arguments);
        let body: Option<Value> = serde_json::from_slice(&started.body).ok();
        let headers = listed(&started.headers);
        let scope = Scope {
            request: Some(sent.request(self.draft)),
            response: Some(expression::Response {
                status: started.status.as_u16(),
                headers: &headers,
                body: body.as_ref(),
            }),
            ..Scope::default()
        };
        let refuse = |why: String| self.error(&format!("cannot be looked at: {why}"));
        let template = self.poll.url.trim();
        // What an answer points to is an address, relative to where it came from.
        if let Some(pointed) = alone(template) {
            let pointed = text(&evaluate(pointed, &scope)?);
            plain(&pointed).map_err(refuse)?;
            let address = match Url::parse(&pointed) {
                Ok(_) => pointed,
                Err(_) => started.url.join(&pointed).map(String::from).unwrap_or_default(),
            };
            return declared(&address, self.base).map_err(refuse);
        }
        // What is written down is relative to the server, and values are parts of it.
        let filled = filled(template, &scope)?;
        let address = match Url::parse(&filled) {
            Ok(_) => filled,
            Err(_) => {
                let server = self.base.as_str().split(['?', '#']).next().unwrap_or_default();
                format!("{}/{}", server.trim_end_matches('/'), filled.trim_start_matches('/'))
            }
        };
        declared(&address, self.base).map_err(refuse)
    }

    async fn wait(&self, interval: Duration, status: Option<&str>) -> Result<(), CallFailure> {
        if interval >= self.exchange.remaining() {
            let status = status.map(|status| format!("; its status is `{status}`")).unwrap_or_default();
            return Err(CallFailure::Refused(self.error(&format!("is not done in time{status}"))));
        }
        tokio::time::sleep(interval).await;
        Ok(())
    }

    fn state(&self, received: &Received) -> Result<State> {
        if received.body.is_empty() {
            return Ok(State::GoesOn(None));
        }
        let body: Value = serde_json::from_slice(&received.body)
            .map_err(|_| self.error("has a status that is not JSON, so that nobody knows how it goes"))?;
        let Some(status) = body.pointer(&self.poll.status).map(text) else { return Ok(State::GoesOn(None)) };
        let shown = shown_short(&status, 80);
        Ok(match () {
            () if self.poll.done.contains(&status) => State::Done(body),
            () if self.poll.failed.contains(&status) => State::Failed(shown, body),
            () => State::GoesOn(Some(shown)),
        })
    }

    fn result(&self, body: &Value, received: &Received) -> Result<Answer> {
        match self.poll.result.as_deref() {
            None | Some("") => answer(&self.draft.label, received),
            Some(pointer) => {
                let missing =
                    || self.error(&format!("is done, and there is no result at `{}`", shown_short(pointer, 80)));
                let result = body.pointer(pointer).ok_or_else(missing)?;
                if let Some(witness) = self.exchange.witness {
                    witness.sees_body(result);
                }
                answer_with(result, received)
            }
        }
    }

    fn failed(&self, status: &str, body: Value) -> Error {
        let reason = reason(&body).map(|reason| format!(": {reason}")).unwrap_or_default();
        let details = json!({ "poll_status": status, "body": bounded(body) });
        self.error(&format!("ended as `{status}`{reason}")).with_details(details)
    }

    fn error(&self, what: &str) -> Error {
        Error::new(Code::ToolExecutionFailed, format!("`{}` {what}", self.draft.label))
    }

    /// One that does not keep up misses some.
    fn tell(&self, times: u64, status: Option<&str>) {
        let Some(progress) = self.progress else { return };
        let said = json!({ "progress": times, "message": status.unwrap_or("under way") });
        if let Ok(said) = to_raw_value(&said) {
            let _missed = progress.try_send(said);
        }
    }
}

/// The arguments as the request had them, by their names on the wire.
#[derive(Default)]
struct Sent<'a> {
    path: Map<String, Value>,
    query: Map<String, Value>,
    headers: Map<String, Value>,
    body: Option<&'a Value>,
}

impl<'a> Sent<'a> {
    fn new(operation: &Operation, arguments: &'a Map<String, Value>) -> Sent<'a> {
        let mut sent = Sent::default();
        for parameter in &operation.parameters {
            let Some(value) = arguments.get(&parameter.argument) else { continue };
            let values = match parameter.place {
                Place::Path => &mut sent.path,
                Place::Query => &mut sent.query,
                Place::Header => &mut sent.headers,
                Place::Cookie | Place::Querystring => continue,
            };
            values.insert(parameter.name.clone(), value.clone());
        }
        sent.body = operation.body.as_ref().and_then(|body| arguments.get(&body.argument));
        sent
    }

    fn request<'b>(&'b self, draft: &'b Outgoing) -> expression::Request<'b> {
        expression::Request {
            url: Some(draft.url.as_str()),
            method: Some(draft.method.as_str()),
            path: Some(&self.path),
            query: Some(&self.query),
            headers: Some(&self.headers),
            body: self.body,
        }
    }
}

/// The expression that a template is and nothing besides.
fn alone(template: &str) -> Option<&str> {
    let inside = template.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(template);
    (is_expression(inside) && !inside.contains('}')).then_some(inside)
}

/// A template with the value of each `{$…}` in it, encoded so that it is no more than that.
fn filled(template: &str, scope: &Scope<'_>) -> Result<String> {
    let (mut filled, mut rest) = (String::new(), template);
    while let Some(start) = rest.find("{$") {
        let Some(length) = rest[start..].find('}') else { break };
        let value = text(&evaluate(&rest[start + 1..start + length], scope)?);
        if value.len() > LONGEST_VALUE {
            let message = format!("a value of the address to look at is longer than {LONGEST_VALUE} bytes");
            return Err(Error::new(Code::ToolExecutionFailed, message));
        }
        filled.push_str(&rest[..start]);
        filled.push_str(&encoded(&value));
        rest = &rest[start + length + 1..];
    }
    filled.push_str(rest);
    Ok(filled)
}

/// A value as it is compared and written into addresses.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}
