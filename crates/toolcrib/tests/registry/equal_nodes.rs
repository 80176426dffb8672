//! Nodes at the same position show the same: bytes of lists and summary, hits of searches, and the keys of views, of
//! which ETags are made.

use serde_json::{Value, json};
use toolcrib::catalog::render::Format;
use toolcrib::catalog::search::Query;
use toolcrib::catalog::summary::SummaryBudget;
use toolcrib::refresh::RefreshStatus;
use toolcrib::testkit::ScriptedSource;
use toolcrib::{Refresh, Registry};

use crate::support::{agent, force_refresh, open_yaml, wait_until};

const YAML: &str = "sources: { shop: { command: scripted } }";

/// Everything that must be equal.
#[derive(Debug, PartialEq)]
struct Shown {
    position: u64,
    key: String,
    lists: Vec<String>,
    search: String,
    summary: String,
}

async fn shown_by(registry: &Registry) -> Shown {
    registry.statistics().count_tokens().await;
    let (view, position) = registry.view_with_position(&agent());
    let formats = [Format::Mcp, Format::Json, Format::OpenaiStrict, Format::Gemini];
    Shown {
        position,
        key: view.key().to_string(),
        lists: formats.into_iter().map(|format| view.render(format).unwrap()).collect(),
        search: format!("{:?}", view.search(&Query::new("zeppelin")).hits),
        summary: view.summary(SummaryBudget::default()).text,
    }
}

/// A tool whose schema has its keys in one of two orders.
fn order_tool(is_reversed: bool) -> Value {
    let mut fields = vec![("type", json!("object")), ("title", json!("Order")), ("properties", json!({}))];
    if is_reversed {
        fields.reverse();
    }
    let schema: serde_json::Map<String, Value> = fields.into_iter().map(|(key, value)| (key.into(), value)).collect();
    json!({ "name": "order", "description": "Orders something", "inputSchema": schema })
}

#[tokio::test]
async fn nodes_that_find_another_order_of_keys_or_another_title_show_the_same() {
    let shop = ScriptedSource::new([order_tool(false)]);
    let one = open_yaml(YAML, &[("shop", &shop)]).await;
    one.refresh(Refresh::default()).await;
    let mut other = one.open_again(YAML).await;
    let before = shown_by(&one).await;
    assert_eq!(shown_by(&other).await, before);

    // Found by either node; a restart in between reads what is stored.
    for (number, is_reversed) in [true, false, true].into_iter().enumerate() {
        shop.set_tools([order_tool(is_reversed)]);
        let finder: &Registry = if number % 2 == 0 { &other } else { &one };
        assert_eq!(force_refresh(finder, "shop").await.status, RefreshStatus::Unchanged);
        assert_eq!(shown_by(&one).await, before);
        assert_eq!(shown_by(&other).await, before);
        other.close().await;
        other = one.open_again(YAML).await;
        assert_eq!(shown_by(&other).await, before);
    }

    // A title is recorded, so that both nodes learn of it at the same position.
    let has_hits = async |registry: &Registry| shown_by(registry).await.search.contains("order");
    for (title, is_found) in [("Zeppelin shop", true), ("Shop", false), ("Zeppelin shop", true)] {
        shop.set_about(title);
        let outcome = force_refresh(&other, "shop").await;
        assert_eq!((outcome.changed.len(), outcome.unchanged), (0, 1));
        wait_until("both are at the same position", || one.position() == other.position()).await;
        let shown = shown_by(&one).await;
        assert_eq!(shown_by(&other).await, shown, "{title}");
        assert_eq!(has_hits(&one).await, is_found, "{title}");
        other.close().await;
        other = one.open_again(YAML).await;
        assert_eq!(shown_by(&other).await, shown, "{title}");
    }
    assert_eq!(force_refresh(&one, "shop").await.status, RefreshStatus::Unchanged);
}
