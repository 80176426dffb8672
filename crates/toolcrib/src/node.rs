//! Identity of this process among all that share its store.
//!
//! Some handles can be served only by the process that issued them: sessions of legacy MCP clients, pages of large
//! results, states of suspended requests. Each begins with the signed id of that process, so that another one can tell
//! a handle of its neighbour or predecessor, whose content is lost, from a forged or foreign one.

use std::fmt;

use crate::secret::keyed_hash;

/// Signed id of a process: 8 hex digits, chosen at random when the registry is opened, and 16 hex digits of their
/// signature with the key of the store.
#[derive(Clone, PartialEq, Eq)]
pub struct NodeId {
    text: String,
    /// Key of the store, to verify the ids of other processes.
    store_key: [u8; 32],
}

/// Process that issued a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandleOrigin {
    /// This process.
    ThisProcess,
    /// Another process on the same store, or this program before a restart. What the handle stands for is lost here.
    OtherProcess,
    /// Not a process of this store: the handle is forged, or belongs to another program.
    Unknown,
}

/// Number of characters of a [`NodeId`].
pub(crate) const NODE_ID_LEN: usize = 24;
/// Number of characters before the signature.
const UNSIGNED_LEN: usize = 8;

impl NodeId {
    /// Creates a random id.
    pub(crate) fn random(store_key: &[u8; 32]) -> NodeId {
        NodeId::signed(store_key, rand::random())
    }

    fn signed(store_key: &[u8; 32], id: u32) -> NodeId {
        let id = format!("{id:08x}");
        NodeId { text: sign(store_key, &id), store_key: *store_key }
    }

    /// Returns the text with which handles of this process begin.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the id without its signature, for people.
    pub(crate) fn unsigned(&self) -> &str {
        self.text.get(..UNSIGNED_LEN).unwrap_or(&self.text)
    }

    /// Returns the origin of a handle, by the id with which it begins. Takes any text.
    pub fn classify(&self, handle: &str) -> HandleOrigin {
        match handle.get(..NODE_ID_LEN).zip(handle.get(..UNSIGNED_LEN)) {
            Some((node, _)) if node == self.text => HandleOrigin::ThisProcess,
            Some((node, id)) if node == sign(&self.store_key, id) => HandleOrigin::OtherProcess,
            Some(_) | None => HandleOrigin::Unknown,
        }
    }
}

/// Without the key of the store.
impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NodeId").field(&self.text).finish()
    }
}

/// Appends the signature to an id.
fn sign(store_key: &[u8; 32], id: &str) -> String {
    let signature = keyed_hash(store_key, &format!("node {id}")).short_hex(NODE_ID_LEN - UNSIGNED_LEN);
    format!("{id}{signature}")
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

    #[test]
    fn a_handle_is_attributed_by_its_signature() {
        let node = NodeId::signed(&[1; 32], 7);
        let check = |handle: &str, origin: HandleOrigin| assert_eq!(node.classify(handle), origin, "{handle}");
        let handle = |key: u8, id: u32| format!("{}-toolcrib-1", NodeId::signed(&[key; 32], id).as_str());
        check(&handle(1, 7), HandleOrigin::ThisProcess);
        check(&handle(1, 8), HandleOrigin::OtherProcess);
        check(&handle(2, 7), HandleOrigin::Unknown);
        // An id of this process with the signature of another one.
        check(&format!("00000007{}", &handle(1, 8)[8..]), HandleOrigin::Unknown);
        for text in ["", "00000007", &node.as_str()[..23], &"é".repeat(20), &format!("0000000é{}", "0".repeat(20))] {
            check(text, HandleOrigin::Unknown);
        }
    }
}
