//! Sources that speak both protocol eras: which one a caller gets, and how many connections that takes.

use serde_json::{Value, json};
use toolcrib::CallContext;
use toolcrib::call::{ClientId, EraPreference};
use toolcrib_testkit::http_server::{HttpReply, LoopbackServer, ReceivedRequest};

use crate::support::{SqliteRegistry, agent, id, list_tools, output_text};

/// Which eras the scripted server speaks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spoken {
    Both,
    Modern,
    Legacy,
}

/// Starts a server whose one tool answers with the era of the request.
fn start_server(spoken: Spoken) -> LoopbackServer {
    LoopbackServer::start(move |request| reply(spoken, request))
}

fn reply(spoken: Spoken, request: &ReceivedRequest) -> HttpReply {
    let is_modern = request.header("mcp-protocol-version") == Some("2026-07-28");
    let is_spoken = match spoken {
        Spoken::Both => true,
        Spoken::Modern => is_modern,
        Spoken::Legacy => !is_modern,
    };
    if request.method != "POST" {
        return HttpReply::empty(405);
    }
    if !is_spoken {
        let error = json!({"code": -32601, "message": "unknown method"});
        return HttpReply::json(400, json!({"jsonrpc": "2.0", "id": request.json()["id"], "error": error}));
    }
    if let Some(handshake) = request.legacy_handshake("1").filter(|_| !is_modern) {
        return handshake;
    }
    let era = if is_modern { "modern" } else { "legacy" };
    match request.rpc_method().as_str() {
        "server/discover" => {
            request.rpc_result(&json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}))
        }
        "tools/list" => request.rpc_result(&json!({"tools": [{"name": "era", "inputSchema": {"type": "object"}}]})),
        "tools/call" => request.rpc_result(&json!({"content": [{"type": "text", "text": era}]})),
        _ => HttpReply::empty(404),
    }
}

/// Calls the tool as a client with this preference and returns the era that it saw.
async fn called_era(fixture: &SqliteRegistry, era: EraPreference) -> String {
    let context = CallContext { era, client: Some(ClientId(1)), ..CallContext::default() };
    let output = fixture.call("s__era", json!({})).context(context).caller(agent()).await;
    output_text(&output.unwrap())
}

/// Number of handshakes that the server received, `(initialize, server/discover)`.
fn handshakes(server: &LoopbackServer) -> (usize, usize) {
    let count = |method: &str| server.requests().iter().filter(|request| request.rpc_method() == method).count();
    (count("initialize"), count("server/discover"))
}

async fn open(server: &LoopbackServer, settings: Value) -> SqliteRegistry {
    let mut source = json!({"url": format!("{}/mcp", server.url)});
    source.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    let fixture = SqliteRegistry::open(json!({"s": source})).await;
    assert_eq!(list_tools(&fixture).await, ["s__era"], "{:?}", fixture.sources().get(&id("s")).unwrap().last_error);
    fixture
}

#[tokio::test]
async fn each_client_gets_its_era_and_the_second_connection_is_opened_on_demand() {
    let server = start_server(Spoken::Both);
    let fixture = open(&server, json!({})).await;
    assert_eq!(handshakes(&server), (0, 1), "discovery");
    for _ in 0..2 {
        assert_eq!(called_era(&fixture, EraPreference::Legacy).await, "legacy");
        assert_eq!(called_era(&fixture, EraPreference::Any).await, "legacy", "the open connection");
    }
    assert_eq!(handshakes(&server), (1, 1), "one connection for both");
    for _ in 0..2 {
        assert_eq!(called_era(&fixture, EraPreference::Modern).await, "modern");
        assert_eq!(called_era(&fixture, EraPreference::Legacy).await, "legacy");
    }
    assert_eq!(handshakes(&server), (1, 2));
    fixture.registry.close().await;
}

#[tokio::test]
async fn the_other_order_opens_as_few_connections() {
    let server = start_server(Spoken::Both);
    let fixture = open(&server, json!({})).await;
    assert_eq!(called_era(&fixture, EraPreference::Any).await, "modern", "what the server prefers");
    assert_eq!(called_era(&fixture, EraPreference::Modern).await, "modern");
    assert_eq!(handshakes(&server), (0, 2));
    assert_eq!(called_era(&fixture, EraPreference::Legacy).await, "legacy");
    assert_eq!(called_era(&fixture, EraPreference::Legacy).await, "legacy");
    assert_eq!(handshakes(&server), (1, 2));
    fixture.registry.close().await;
}

#[tokio::test]
async fn a_server_of_one_era_serves_all_clients_over_one_connection() {
    for (spoken, era) in [(Spoken::Modern, "modern"), (Spoken::Legacy, "legacy")] {
        let server = start_server(spoken);
        let fixture = open(&server, json!({})).await;
        for _ in 0..3 {
            assert_eq!(called_era(&fixture, EraPreference::Legacy).await, era);
            assert_eq!(called_era(&fixture, EraPreference::Modern).await, era);
        }
        let (initialize, discover) = handshakes(&server);
        assert!(initialize + discover <= 4, "{era}: {initialize} initialize, {discover} discover");
        fixture.registry.close().await;
    }
}

#[tokio::test]
async fn the_protocol_of_a_source_is_fixed_by_its_declaration() {
    for (protocol, era) in [("2025-11-25", "legacy"), ("2026-07-28", "modern")] {
        let server = start_server(Spoken::Both);
        let fixture = open(&server, json!({"protocol": protocol})).await;
        for preference in [EraPreference::Any, EraPreference::Legacy, EraPreference::Modern] {
            assert_eq!(called_era(&fixture, preference).await, era, "{protocol}");
        }
        let (initialize, discover) = handshakes(&server);
        assert_eq!((initialize > 0, discover > 0), (era == "legacy", era == "modern"), "{protocol}");
        fixture.registry.close().await;
    }
}
