//! Tests the queue of a limiter: turns of callers, bounds, calls that leave, changed limits.

use super::*;

/// A limiter with `concurrent_calls`.
fn limiter(concurrent_calls: u32) -> Arc<CallLimiter> {
    Arc::new(CallLimiter::new(concurrency(concurrent_calls)))
}

fn concurrency(calls: u32) -> CallLimits {
    CallLimits { concurrent_calls: Some(calls), ..CallLimits::default() }
}

fn admit(limiter: &Arc<CallLimiter>, caller: &str) -> CallPermit {
    match limiter.start_call(&caller.into()) {
        Admission::Admitted(permit) => permit,
        other @ (Admission::Waiting(..) | Admission::QueueFull) => panic!("{other:?}"),
    }
}

/// A call of the caller that has to wait.
fn enqueue(limiter: &Arc<CallLimiter>, caller: &str) -> (CallPermit, oneshot::Receiver<()>) {
    match limiter.start_call(&caller.into()) {
        Admission::Waiting(permit, admitted) => (permit, admitted),
        other @ (Admission::Admitted(_) | Admission::QueueFull) => panic!("{other:?}"),
    }
}

fn load(limiter: &CallLimiter) -> (u64, u64) {
    let LimitedCalls { in_flight, waiting } = limiter.load().unwrap();
    (in_flight, waiting)
}

#[test]
fn callers_are_served_in_turn_and_their_calls_in_order() {
    let limiter = limiter(1);
    let mut running = admit(&limiter, "a");
    let calls = ["a1", "a2", "a3", "b1", "c1", "b2"];
    let mut waiting: Vec<_> = calls.iter().map(|call| (*call, enqueue(&limiter, &call[..1]))).collect();
    let mut order = Vec::new();
    while !waiting.is_empty() {
        drop(running);
        let admitted = |(_, (_, admitted)): &mut (&str, (_, oneshot::Receiver<()>))| admitted.try_recv().is_ok();
        let next = waiting.iter_mut().position(admitted).unwrap();
        let (call, (permit, _)) = waiting.remove(next);
        order.push(call);
        running = permit.admitted();
        assert_eq!(load(&limiter), (1, waiting.len() as u64));
    }
    assert_eq!(order, ["a1", "b1", "c1", "a2", "b2", "a3"]);
}

#[test]
fn each_caller_has_64_places_in_the_queue() {
    let limiter = limiter(1);
    let running = admit(&limiter, "a");
    let mut waiting: Vec<_> = (0..MAX_WAITING_CALLS).map(|_| enqueue(&limiter, "a")).collect();
    assert!(matches!(limiter.start_call(&"a".into()), Admission::QueueFull));
    enqueue(&limiter, "b");
    // The call of `b` has left the queue again.
    assert_eq!(load(&limiter), (1, 64));
    waiting.pop();
    drop(enqueue(&limiter, "a"));
    drop(running);
    assert_eq!(load(&limiter), (1, 62), "the first one runs");
    drop(waiting);
    assert_eq!(load(&limiter), (0, 0));
}

#[test]
fn a_call_that_is_dropped_after_its_admission_gives_its_permit_to_the_next() {
    let limiter = limiter(1);
    let running = admit(&limiter, "a");
    let (first, _) = enqueue(&limiter, "a");
    let (_second, mut admitted) = enqueue(&limiter, "b");
    drop(running);
    assert!(admitted.try_recv().is_err());
    // Admitted, but its task has not seen it.
    drop(first);
    assert!(admitted.try_recv().is_ok());
    assert_eq!(load(&limiter), (1, 0));
}

#[test]
fn changed_limits_apply_to_waiting_calls() {
    let limiter = limiter(1);
    let _running = admit(&limiter, "a");
    let _waiting: Vec<_> = (0..5).map(|_| enqueue(&limiter, "a")).collect();
    limiter.set_limits(concurrency(3));
    assert_eq!(load(&limiter), (3, 3));
    limiter.set_limits(concurrency(2));
    assert_eq!(load(&limiter), (3, 3), "calls in progress are not ended");
    limiter.set_limits(CallLimits { calls_per_minute: Some(1), ..CallLimits::default() });
    assert_eq!(load(&limiter), (6, 0));
}
