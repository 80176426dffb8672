//! Table of the nodes that share the store, on the overview.

use maud::{Markup, html};
use toolcrib::core::text::sanitize_truncated;
use toolcrib::store::NodeStatus;

use super::text::{Tone, format_millis, format_number, state_badge};

/// Maximum number of nodes in the table.
const MAX_NODE_ROWS: usize = 100;

/// Renders the nodes in the order of their labels. `own` is the label of the node that answers.
pub(super) fn render_nodes(nodes: &[NodeStatus], own: &str) -> Markup {
    html! {
        section aria-labelledby="nodes-title" {
            h2 id="nodes-title" { "Nodes" }
            p.faint { "They share one store. This page is from " code { (own) } "." }
            table.list {
                caption.unseen { "Nodes that share the store" }
                thead {
                    tr {
                        th scope="col" { "Node" } th scope="col" { "State" } th scope="col" { "Version" }
                        th.number scope="col" { "Position" } th.number scope="col" { "Lag" } th scope="col" { "Last seen" }
                    }
                }
                tbody {
                    @for node in nodes.iter().take(MAX_NODE_ROWS) {
                        @let (tone, label) = if node.alive { (Tone::Good, "alive") } else { (Tone::Bad, "silent") };
                        tr id=(format!("node-{}", node.id)) {
                            th scope="row" { (sanitize_truncated(&node.label, 64)) }
                            td data-label="State" { (state_badge(tone, label)) }
                            td data-label="Version" { (sanitize_truncated(&node.version, 40)) }
                            td.number data-label="Position" { (format_number(node.position)) }
                            td.number data-label="Lag" { (format_number(node.lag)) }
                            td data-label="Last seen" { (format_millis(node.last_seen_ms)) " ago" }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_has_a_row() {
        let node = |label: &str, alive| NodeStatus {
            id: format!("{label}-1"),
            label: label.to_owned(),
            version: "0.3.0".to_owned(),
            position: 18_204,
            lag: 7,
            last_seen_ms: 1_200,
            alive,
        };
        let html = render_nodes(&[node("a", true), node("<b>", false)], "a").into_string();
        for part in ["alive", "silent", "0.3.0", "18,204", ">7<", "1.2 s ago", "&lt;b&gt;"] {
            assert!(html.contains(part), "{part}: {html}");
        }
    }
}
