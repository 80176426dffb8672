//! A server at the end of a byte stream that misbehaves.

use std::{sync::Arc, time::Duration};

use futures_util::FutureExt;
use serde_json::{Value, json};
use toolcrib_mcp::{Client, Era, Limits, Options, WireError};

use crate::support::{Peer, call, options, raw, within};

async fn list(limits: Limits, pages: impl Fn(usize) -> Value) -> Result<toolcrib_mcp::ToolList, WireError> {
    let options = Options { limits, ..options() };
    let (mut peer, client) = Peer::connected(options, json!({ "tools": {} })).await;
    let listing = client.list_tools(Duration::from_secs(30));
    let answering = async {
        for page in 0.. {
            let request = peer.hear().await;
            peer.answer(&request, &pages(page)).await;
        }
    };
    tokio::select! { list = listing => list, () = answering => unreachable!() }
}

#[tokio::test]
async fn junk_on_stdout_is_skipped() {
    let (mut peer, client) = Peer::connected(options(), json!({})).await;
    let (answer, ()) = tokio::join!(call(&client, "t"), async {
        let request = peer.hear().await;
        peer.say("Server started on port 3000").await;
        peer.say("").await;
        peer.say("{\"half\": ").await;
        peer.say("[1, 2]").await;
        peer.say(b"\xff\xfe not even text").await;
        peer.tell(&json!({ "id": 999, "result": {} })).await;
        peer.answer(&request, &json!({ "ok": true })).await;
    });
    assert_eq!(answer.unwrap().get(), r#"{"ok":true}"#);
}

#[tokio::test]
async fn a_stray_byte_does_not_lose_the_answer() {
    let (mut peer, client) = Peer::connected(options(), json!({})).await;
    let (answer, ()) = tokio::join!(call(&client, "t"), async {
        let id = peer.hear().await["id"].to_string();
        let mut line = format!(r#"{{"id":{id},"result":{{"text":"a"#).into_bytes();
        line.push(0xff);
        line.extend_from_slice(br#"b"}}"#);
        peer.say(line).await;
    });
    assert_eq!(answer.unwrap().get(), "{\"text\":\"a\u{fffd}b\"}");
}

#[tokio::test]
async fn a_byte_order_mark_does_not_lose_the_answer() {
    let (mut peer, client) = Peer::connected(options(), json!({})).await;
    let (answer, ()) = tokio::join!(call(&client, "t"), async {
        let id = peer.hear().await["id"].to_string();
        peer.say(format!("\u{feff}{{\"id\":{id},\"result\":{{}}}}\r")).await;
    });
    assert_eq!(answer.unwrap().get(), "{}");
}

#[tokio::test]
async fn a_server_that_takes_back_its_own_request_does_not_take_ours() {
    let mut options = options();
    options.handler = Some(Arc::new(|_| std::future::pending().boxed()));
    let (mut peer, client) = Peer::connected(options, json!({})).await;
    let (answer, ()) = tokio::join!(call(&client, "t"), async {
        let request = peer.hear().await;
        let id = &request["id"];
        peer.tell(&json!({ "jsonrpc": "2.0", "id": id, "method": "roots/list" })).await;
        peer.tell(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } }))
            .await;
        peer.answer(&request, &json!({ "ok": 1 })).await;
    });
    assert_eq!(answer.unwrap().get(), r#"{"ok":1}"#);
}

#[tokio::test]
async fn a_line_too_long_ends_the_connection_with_its_reason() {
    let limits = Limits { line_bytes: 1000, ..Limits::default() };
    let (mut peer, client) = Peer::connected(Options { limits, ..options() }, json!({})).await;
    let (answer, ()) = tokio::join!(call(&client, "t"), async {
        peer.hear().await;
        peer.say("x".repeat(2000)).await;
    });
    assert!(matches!(answer, Err(WireError::TooLarge { limit: 1000, .. })), "{answer:?}");
    client.closed().await;
    let after = call(&client, "t").await.unwrap_err();
    assert!(!after.sent() && after.to_string().contains("1000"), "{after}");
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_runs_into_the_deadline_and_hears_of_it() {
    let (mut peer, client) = Peer::connected(options(), json!({})).await;
    let answer = call(&client, "t").await;
    assert!(matches!(answer, Err(WireError::Timeout { sent: true })), "{answer:?}");
    let request = peer.hear().await;
    let cancelled = peer.hear().await;
    assert_eq!(cancelled["method"], "notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], request["id"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_initialize_is_given_up() {
    let (_peer, target) = Peer::new();
    let answer = Client::connect(target, options()).await;
    assert!(matches!(answer, Err(WireError::Timeout { .. })), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn what_never_left_was_not_sent() {
    let (mut peer, target) = Peer::with_room(600);
    let client = tokio::join!(Client::connect(target, options()), peer.welcome(json!({}))).0.unwrap();
    let arguments = raw(&json!({ "long": "x".repeat(2000) }));
    let (patience, none) = (within(30), raw(&json!({})));
    let (stuck, waiting) = tokio::join!(
        client.call_tool("stuck", &arguments, None, None, &patience),
        client.call_tool("waiting", &none, None, None, &patience),
    );
    assert!(matches!(stuck, Err(WireError::Timeout { sent: true })), "{stuck:?}");
    assert!(matches!(waiting, Err(WireError::Timeout { sent: false })), "{waiting:?}");
    // Once the server reads on, the withdrawn request is left out.
    assert_eq!(peer.hear().await["params"]["name"], "stuck");
    assert_eq!(peer.hear().await["method"], "notifications/cancelled");
    let (_, next) = tokio::join!(call(&client, "next"), peer.hear());
    assert_eq!(next["params"]["name"], "next");
}

#[tokio::test]
async fn a_dropped_call_is_cancelled() {
    let (mut peer, client) = Peer::connected(options(), json!({})).await;
    let request = tokio::select! {
        _ = call(&client, "t") => unreachable!(),
        request = peer.hear() => request,
    };
    let cancelled = peer.hear().await;
    assert_eq!(cancelled["method"], "notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], request["id"]);
}

#[tokio::test]
async fn a_cancelled_call_is_cancelled() {
    let (mut peer, client) = Peer::connected(options(), json!({})).await;
    let (options, arguments) = (within(30), raw(&json!({})));
    let (answer, ()) = tokio::join!(client.call_tool("t", &arguments, None, None, &options), async {
        peer.hear().await;
        options.cancel.cancel();
    });
    assert!(matches!(answer, Err(WireError::Cancelled { sent: true })), "{answer:?}");
    assert_eq!(peer.hear().await["method"], "notifications/cancelled");
}

#[tokio::test]
async fn a_server_that_dies_fails_who_waits() {
    let (mut peer, client) = Peer::connected(options(), json!({})).await;
    let (answer, ()) = tokio::join!(call(&client, "t"), async {
        peer.hear().await;
        drop(peer);
    });
    assert!(matches!(answer, Err(WireError::Closed { sent: true, .. })), "{answer:?}");
    assert!(matches!(call(&client, "t").await, Err(WireError::Closed { sent: false, .. })));
}

#[tokio::test]
async fn one_malformed_tool_does_not_lose_the_others() {
    let deep = format!("{}{}", "{\"a\":".repeat(10_000), "1".to_owned() + &"}".repeat(10_000));
    let deep_tool = format!(r#"{{"name":"deep","inputSchema":{deep}}}"#);
    let (mut peer, client) = Peer::connected(options(), json!({ "tools": {} })).await;
    let (list, ()) = tokio::join!(client.list_tools(Duration::from_secs(30)), async {
        let id = peer.hear().await["id"].to_string();
        let tools =
            format!(r#"[{{"name":"a","inputSchema":true}},7,{{"title":"nameless"}},{{"name":"x\ud800"}},{deep_tool}]"#);
        peer.say(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"tools":{tools}}}}}"#)).await;
    });
    let list = list.unwrap();
    assert_eq!(list.tools.len(), 2);
    assert_eq!(list.tools[1].get(), deep_tool);
    let excluded: Vec<String> = list.excluded.iter().map(|(name, reason)| format!("{name}: {reason}")).collect();
    let expected = ["(tool 2): it is no object", "(tool 3): it has no name", "(tool 4): its name is not valid Unicode"];
    assert_eq!(excluded, expected);
}

#[tokio::test]
async fn a_list_that_never_ends_is_given_up() {
    let repeated = |_| json!({ "tools": [{ "name": "a" }], "nextCursor": "again" });
    let answer = list(Limits::default(), repeated).await;
    assert!(matches!(answer, Err(WireError::Protocol(_))), "{answer:?}");
    let endless = |page: usize| json!({ "tools": [{ "name": "a" }], "nextCursor": page.to_string() });
    let answer = list(Limits { pages: 3, ..Limits::default() }, endless).await;
    assert!(matches!(answer, Err(WireError::TooLarge { limit: 3, .. })), "{answer:?}");
    let answer = list(Limits { tools: 5, ..Limits::default() }, endless).await;
    assert!(matches!(answer, Err(WireError::TooLarge { limit: 5, .. })), "{answer:?}");
    let answer = list(Limits { list_bytes: 100, ..Limits::default() }, endless).await;
    assert!(matches!(answer, Err(WireError::TooLarge { limit: 100, .. })), "{answer:?}");
}

#[tokio::test]
async fn an_answer_without_tools_is_an_error() {
    let answer = list(Limits::default(), |_| json!({ "tools": "none" })).await;
    assert!(matches!(answer, Err(WireError::Protocol(_))), "{answer:?}");
}

#[tokio::test]
async fn a_legacy_server_that_refuses_initialize_is_reported_with_its_own_words() {
    let (mut peer, target) = Peer::new();
    let hinted = Options { era: Some(Era::Modern), ..options() };
    let (answer, ()) = tokio::join!(Client::connect(target, hinted), async {
        let probe = peer.hear().await;
        assert_eq!(probe["method"], "server/discover");
        peer.refuse(&probe, -32601, "Method not found").await;
        let hello = peer.hear().await;
        assert_eq!(hello["method"], "initialize");
        peer.refuse(&hello, -32000, "licence expired").await;
    });
    let Err(WireError::Rpc(error)) = answer else { panic!("{answer:?}") };
    assert_eq!(error.message, "licence expired");
}
