//! Transitions of a request, driven without its task: each future is polled once, as the queues have room.

use futures_util::{
    FutureExt, StreamExt,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use proptest::prelude::*;
use serde_json::{Value, json, value::to_raw_value};
use tokio::sync::mpsc;

use super::*;
use crate::server::{
    ChangeNotification, McpRequest, ServerOptions, Service, ServiceDescription, client_requests::ClientResponse,
};

/// Room for more messages than a sequence of steps sends.
const QUEUE_LENGTH: usize = 100;

/// A service that is never called.
struct UnusedService;

impl Service for UnusedService {
    fn describe(&self, _: &Arc<McpPeer>) -> BoxFuture<'static, ServiceDescription> {
        std::future::pending().boxed()
    }

    fn handle_request(&self, _: McpRequest) -> BoxFuture<'static, ClientResponse> {
        std::future::pending().boxed()
    }

    fn changes(&self, _: &Arc<McpPeer>) -> BoxStream<'static, ChangeNotification> {
        stream::pending().boxed()
    }

    fn input_schema(&self, _: &Arc<McpPeer>, _: &str) -> Option<Box<RawValue>> {
        None
    }

    fn on_disconnect(&self, _: &Arc<McpPeer>) {}
}

/// A request on a byte stream with room for one suspended request. Its first route has the id 0, and each resumption
/// the next one.
struct TestRequest {
    request: Arc<Request>,
    client_requests: Arc<ClientRequests>,
    /// Messages to the client, a queue per route.
    queues: Vec<mpsc::Receiver<String>>,
    received: Vec<Vec<Value>>,
    asking: Vec<BoxFuture<'static, ClientResponse>>,
}

impl TestRequest {
    fn start() -> TestRequest {
        let options = ServerOptions { max_suspended_requests: 1, ..ServerOptions::default() };
        let shared = ServerShared::new(Arc::new(UnusedService), options);
        let client_requests = Arc::new(ClientRequests::default());
        let (sink, queue) = mpsc::channel(QUEUE_LENGTH);
        let request = start_in(&shared, &client_requests, 0, sink);
        TestRequest { request, client_requests, queues: vec![queue], received: vec![vec![]], asking: vec![] }
    }

    fn start_suspended() -> TestRequest {
        let mut test = TestRequest::start();
        test.ask();
        test.suspend();
        test
    }

    fn ask(&mut self) {
        let request = self.request.clone();
        let mut asking = async move { request.ask("elicitation/create", None).await }.boxed();
        // The first poll asks; a request that has ended answers at once.
        match (&mut asking).now_or_never() {
            None => self.asking.push(asking),
            Some(answer) => assert!(answer.is_err() && self.phase() == "ended"),
        }
    }

    fn suspend(&mut self) {
        self.request.suspend().now_or_never().unwrap();
        self.receive();
    }

    /// Repeats the request with this state. The first of the open questions is answered.
    fn resume(&mut self, state: &str) -> Result<(), RpcError> {
        let shared = &self.request.shared;
        let repeated = shared.suspended.find(state)?;
        self.resume_found(&repeated, state, json!(self.queues.len()))
    }

    fn resume_found(&mut self, found: &Arc<Request>, state: &str, id: Value) -> Result<(), RpcError> {
        let (sink, queue) = mpsc::channel(QUEUE_LENGTH);
        let inputs =
            self.received.iter().flatten().rev().find_map(|message| message["result"]["inputRequests"].as_object());
        let key = inputs.and_then(|inputs| inputs.keys().next()).cloned().unwrap_or_default();
        let answers = to_raw_value(&json!({ key: {} })).unwrap();
        found.resume(state, &RawObject::parse(&answers).unwrap(), incoming(id, sink), "")?;
        self.queues.push(queue);
        self.received.push(vec![]);
        Ok(())
    }

    /// Suspends another request, for which the table has no room beside this one.
    fn suspend_other(&self) {
        let (sink, _queue) = mpsc::channel(QUEUE_LENGTH);
        let other = start_in(&self.request.shared, &Arc::default(), 0, sink);
        let mut asking = Box::pin(other.ask("elicitation/create", None));
        assert!((&mut asking).now_or_never().is_none());
        other.suspend().now_or_never().unwrap();
    }

    /// Reads the messages to the client.
    fn receive(&mut self) {
        for (queue, received) in self.queues.iter_mut().zip(&mut self.received) {
            received.extend(std::iter::from_fn(|| queue.try_recv().ok()).map(|text| parse(&text)));
        }
    }

    /// Returns the states that the client has got, in order.
    fn states(&self) -> Vec<String> {
        let messages = self.received.iter().flatten();
        messages.filter_map(|message| Some(message["result"]["requestState"].as_str()?.to_owned())).collect()
    }

    fn last_state(&self) -> String {
        self.states().pop().unwrap()
    }

    fn phase(&self) -> &'static str {
        match &*self.request.phase.lock() {
            Phase::Running { .. } => "running",
            Phase::Suspended { .. } => "suspended",
            Phase::Ended { .. } => "ended",
        }
    }

    /// Whether another request with this id would be rejected.
    fn is_in_use(&self, id: usize) -> bool {
        let id = to_raw_value(&id).unwrap();
        RequestId::register(id, Some(&self.client_requests), &Cancellation::default(), 100).is_err()
    }

    /// Checks the rules that hold after each step.
    fn check(&mut self) {
        self.receive();
        let last = self.queues.len() - 1;
        for (route, received) in self.received.iter().enumerate() {
            let responses = received.iter().filter(|message| message.get("method").is_none()).count();
            let ends_with_response = received.last().is_some_and(|message| message.get("method").is_none());
            assert!(responses <= 1, "one response per id: {received:?}");
            assert_eq!(responses == 1, ends_with_response, "nothing follows the response: {received:?}");
            assert!(route == last || responses == 1, "a request is resumed after its response only");
            if let Some(response) = received.last().filter(|_| ends_with_response) {
                assert_eq!(response["id"], json!(route));
                assert_ne!(response["result"]["inputRequests"], json!({}), "a client is not asked nothing");
            }
            assert!(!(ends_with_response && self.is_in_use(route)), "the id is free after the response");
        }
        for id in 0..=last {
            let own_id = self.request.id().is_some_and(|own| own.get() == id.to_string());
            assert_eq!(self.is_in_use(id), own_id, "only the last id can be in use");
        }
        let is_cancelled = self.request.cancel.token.is_cancelled();
        let states = self.states();
        for (index, state) in states.iter().enumerate() {
            let is_found = self.request.shared.suspended.find(state).is_ok();
            let is_valid = index + 1 == states.len() && self.phase() == "suspended" && !is_cancelled;
            assert_eq!(is_found, is_valid, "a state is valid while its request is suspended");
        }
        match self.phase() {
            "running" => assert!(self.is_in_use(last) && self.received[last].iter().all(|m| m.get("method").is_some())),
            "suspended" => assert!(self.request.id().is_none()),
            _ => assert!(self.asking.drain(..).all(|asking| asking.now_or_never().is_some()), "no question is open"),
        }
    }
}

fn start_in(
    shared: &Arc<ServerShared>,
    client_requests: &Arc<ClientRequests>,
    id: usize,
    sink: mpsc::Sender<String>,
) -> Arc<Request> {
    let peer = Arc::new(McpPeer::new(Era::Modern, None, RawValue::NULL.to_owned(), ""));
    let client_requests = Some(client_requests.clone());
    let client = ClientContext { peer, client_requests, ended: CancellationToken::new(), is_one_shot: false };
    Request::start(shared, client, incoming(json!(id), sink)).unwrap()
}

fn incoming(id: Value, sink: mpsc::Sender<String>) -> IncomingRequest {
    IncomingRequest {
        id: to_raw_value(&id).unwrap(),
        method: "tools/call".to_owned(),
        params: RequestParams::default(),
        sink: Sink::Stdio(sink),
        can_stream: true,
        extensions: Arc::default(),
    }
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn send_notification(request: &Request) {
    let encode = |_: Option<&RawValue>| Ok(json!({ "method": "notifications/progress" }).to_string());
    request.try_send(encode, MessagePriority::Droppable);
}

fn result() -> ClientResponse {
    Ok(RawValue::from_string("{}".to_owned()).unwrap())
}

/// One transition, or an action of the service or of another request.
#[derive(Debug, Clone, Copy)]
enum Step {
    Notify,
    Ask,
    StopWaiting,
    Suspend,
    ResumeLast,
    ResumeFirst,
    SuspendOther,
    Respond,
    Abandon,
    Close,
}

impl TestRequest {
    fn apply(&mut self, step: Step) {
        let request = self.request.clone();
        match step {
            Step::Notify => send_notification(&request),
            Step::Ask => self.ask(),
            Step::StopWaiting => drop(self.asking.pop()),
            Step::Suspend => self.suspend(),
            // Fails if the state is not valid any more; `check` finds out when it should be.
            Step::ResumeLast => drop(self.states().last().map(|state| self.resume(state))),
            Step::ResumeFirst => drop(self.states().first().map(|state| self.resume(state))),
            Step::SuspendOther => self.suspend_other(),
            Step::Respond => drop(request.respond(result()).now_or_never().unwrap()),
            Step::Abandon => request.abandon(),
            Step::Close => request.close(),
        }
    }
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Notify),
        6 => Just(Step::Ask),
        1 => Just(Step::StopWaiting),
        6 => Just(Step::Suspend),
        6 => Just(Step::ResumeLast),
        1 => Just(Step::ResumeFirst),
        1 => Just(Step::SuspendOther),
        1 => Just(Step::Respond),
        1 => Just(Step::Abandon),
        1 => Just(Step::Close),
    ]
}

proptest! {
    #[test]
    fn the_rules_hold_after_any_sequence_of_steps(steps in prop::collection::vec(any_step(), 0..30)) {
        let mut test = TestRequest::start();
        let mut has_ended = false;
        for step in steps {
            test.apply(step);
            test.check();
            has_ended |= matches!(step, Step::Respond | Step::Abandon | Step::Close);
            prop_assert_eq!(test.phase() == "ended", has_ended);
        }
    }
}

#[test]
fn the_id_is_free_and_the_request_has_ended_before_the_response_is_sent() {
    let mut test = TestRequest::start();
    let notify = || send_notification(&test.request);
    (0..QUEUE_LENGTH).for_each(|_| notify());
    let mut responding = Box::pin(test.request.respond(result()));
    assert!((&mut responding).now_or_never().is_none(), "the queue is full");
    assert!(!test.is_in_use(0));
    assert!(test.queues[0].try_recv().is_ok());
    notify();
    assert!(responding.now_or_never().is_some());
    test.check();
}

#[test]
fn an_abandoned_request_keeps_its_id_until_it_is_closed() {
    let test = TestRequest::start();
    test.request.abandon();
    assert!(test.is_in_use(0));
    test.request.close();
    assert!(!test.is_in_use(0));
}

#[test]
fn the_questions_of_an_abandoned_request_are_cancelled() {
    let mut test = TestRequest::start_suspended();
    test.request.abandon();
    let answer = test.asking.remove(0).now_or_never().unwrap();
    assert_eq!(answer.unwrap_err().message, request_cancelled_error().message);
}

/// Regression: a request that ended while it was being resumed kept the id of the repeated request for ever.
#[test]
fn a_request_that_ended_is_not_resumed() {
    for end in [Request::abandon, Request::close] {
        let mut test = TestRequest::start_suspended();
        let state = test.last_state();
        let found = test.request.shared.suspended.find(&state).unwrap();
        end(&test.request);
        assert_eq!(test.resume_found(&found, &state, json!(1)).unwrap_err().message, unknown_state().message);
        assert!(!test.is_in_use(1));
    }
}

#[test]
fn a_request_that_made_room_for_another_is_not_resumed() {
    let mut test = TestRequest::start_suspended();
    let state = test.last_state();
    let found = test.request.shared.suspended.find(&state).unwrap();
    test.suspend_other();
    assert!(test.request.cancel.token.is_cancelled());
    assert_eq!(test.resume_found(&found, &state, json!(1)).unwrap_err().message, unknown_state().message);
    assert!(!test.is_in_use(1));
}

#[test]
fn an_earlier_state_does_not_resume_a_request_that_is_suspended_again() {
    let mut test = TestRequest::start_suspended();
    let first = test.last_state();
    let found = test.request.shared.suspended.find(&first).unwrap();
    test.resume(&first).unwrap();
    test.ask();
    test.suspend();
    assert_eq!(test.resume_found(&found, &first, json!(2)).unwrap_err().message, unknown_state().message);
    assert_eq!(test.phase(), "suspended");
    test.resume(&test.last_state()).unwrap();
    assert_eq!(test.phase(), "running");
}

#[test]
fn a_request_stays_suspended_when_the_new_id_is_in_use() {
    let mut test = TestRequest::start_suspended();
    let state = test.last_state();
    let id = to_raw_value(&1).unwrap();
    let other = RequestId::register(id, Some(&test.client_requests), &Cancellation::default(), 100).unwrap();
    assert_eq!(test.resume(&state).unwrap_err().code, RpcError::INVALID_REQUEST);
    assert_eq!(test.phase(), "suspended");
    drop(other);
    test.resume(&state).unwrap();
    assert_eq!(test.phase(), "running");
}
