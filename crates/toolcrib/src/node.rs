//! Identity of this process among all that share its store.
//!
//! Some handles can be served only by the process that issued them: sessions of legacy MCP clients, pages of large
//! results, states of suspended requests. Each begins with the signed id of that process, so that another one can tell
//! a handle of its neighbour from a forged or outdated one.

use crate::secret::keyed_hash;

/// Signed id of a process: 8 hex digits, chosen at random when the registry is opened, and 16 hex digits of their
/// signature with the key of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeId(String);

/// Number of characters of a [`NodeId`].
pub(crate) const NODE_ID_LEN: usize = 24;

impl NodeId {
    /// Creates a random id.
    pub(crate) fn random(store_key: &[u8; 32]) -> NodeId {
        NodeId::signed(store_key, rand::random())
    }

    fn signed(store_key: &[u8; 32], id: u32) -> NodeId {
        let id = format!("{id:08x}");
        let signature = keyed_hash(store_key, &format!("node {id}")).short_hex(16);
        NodeId(id + &signature)
    }

    /// Returns the text with which handles of this process begin.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_depends_on_the_id_and_on_the_key_of_the_store() {
        let node = NodeId::signed(&[1; 32], 7);
        assert_eq!(node, NodeId::signed(&[1; 32], 7), "every process on the store computes the same");
        assert_eq!((node.as_str().len(), &node.as_str()[..8]), (NODE_ID_LEN, "00000007"));
        let other_store = NodeId::signed(&[2; 32], 7);
        let other_node = NodeId::signed(&[1; 32], 8);
        assert_eq!(&other_store.as_str()[..8], &node.as_str()[..8]);
        assert_ne!(&other_store.as_str()[8..], &node.as_str()[8..]);
        assert_ne!(&other_node.as_str()[8..], &node.as_str()[8..]);
    }
}
