//! The name of each operation's tool: its `operationId` made legal, else its method and path. Where that is too long or
//! another has it, eight digits of the hash of `METHOD /path` follow, so that no order of the document changes a name.

use std::collections::HashSet;

use serde_json::Value;

use super::convert::OperationRef;
use crate::fingerprint::Fingerprint;
use crate::source::SourceId;
use crate::text::sanitize_truncated;
use crate::tool::{MAX_TOOL_NAME_LEN, SEPARATOR};

/// In the order of the operations; legal and unique with the prefix of their source.
pub(super) fn assign_names(found: &[OperationRef<'_>], source: &SourceId) -> Vec<String> {
    let room = MAX_TOOL_NAME_LEN - source.as_str().len() - SEPARATOR.len();
    let wishes: Vec<(String, bool)> = found.iter().map(preferred_name).collect();
    let line = |found: &OperationRef<'_>| format!("{} {}", found.method, found.path);
    // Whoever has the name to the letter keeps it; among equals the order of their lines decides, not of the document.
    let mut order: Vec<usize> = (0..found.len()).collect();
    order.sort_by_cached_key(|&index| (!wishes[index].1, line(&found[index])));
    let mut taken: HashSet<String> = HashSet::with_capacity(found.len());
    let mut names = vec![String::new(); found.len()];
    for index in order {
        let wish = &wishes[index].0;
        let hash = Fingerprint::digest(line(&found[index]));
        let hashed = |digits: usize| {
            let kept: String = wish.chars().take(room - 1 - digits).collect();
            format!("{}_{}", kept.trim_end_matches('_'), hash.short_hex(digits))
        };
        let name = match wish.len() <= room && !taken.contains(wish) {
            true => wish.clone(),
            // More digits in the one case among billions.
            false => Some(hashed(8)).filter(|name| !taken.contains(name)).unwrap_or_else(|| hashed(16)),
        };
        taken.insert(name.clone());
        names[index] = name;
    }
    names
}

/// What whoever reads the document should know of a name: that another operation has the same id.
pub(super) fn duplicate_id_warning(found: &OperationRef<'_>, name: &str) -> Option<String> {
    let (wish, _) = preferred_name(found);
    let id = found.operation.value.get("operationId").and_then(Value::as_str)?;
    let taken = name != wish && name.len() < MAX_TOOL_NAME_LEN && name.starts_with(&wish);
    taken.then(|| {
        let id = sanitize_truncated(id, 80);
        format!(
            "another operation has the operationId `{id}`, or one that becomes the same; the tool is called `{name}`"
        )
    })
}

/// An `operationId` as most tools are named for it.
pub fn sanitize_name(id: &str) -> String {
    let legal = |letter: char| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' };
    id.trim().chars().map(legal).collect()
}

/// What it would be called if it were alone, and whether the document says so to the letter.
fn preferred_name(found: &OperationRef<'_>) -> (String, bool) {
    let id = found.operation.value.get("operationId").and_then(Value::as_str).map(str::trim).unwrap_or_default();
    // One that is too long for a name is cut and hashed anyway; thousands of operations may share it.
    let id = &id[..id.floor_char_boundary(4 * MAX_TOOL_NAME_LEN)];
    let made = sanitize_name(id);
    if made.contains(|letter: char| letter.is_ascii_alphanumeric()) {
        let exact = made == id;
        return (made, exact);
    }
    let mut slug = found.method.to_ascii_lowercase();
    for part in found.path.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|part| !part.is_empty()) {
        slug.push('_');
        slug.push_str(part);
    }
    (slug, false)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::document_set::NodeRef;
    use super::*;

    fn check(operations: &[(&str, &str, Value)], expected: &[&str]) {
        let found: Vec<OperationRef<'_>> = operations
            .iter()
            .map(|(method, path, operation)| {
                let at = NodeRef { value: operation, document_url: "" };
                let method = (*method).to_owned();
                let pointer = String::new();
                OperationRef { method, path, pointer, path_item: at, operation: at }
            })
            .collect();
        let source = SourceId::parse("shop").unwrap();
        assert_eq!(assign_names(&found, &source), expected);
        let mut turned = found.clone();
        turned.reverse();
        let mut again = assign_names(&turned, &source);
        again.reverse();
        assert_eq!(again, expected, "the order of the document changes no name");
    }

    #[test]
    fn names_come_from_the_document_alone() {
        let id = |id: &str| json!({ "operationId": id });
        check(
            &[
                ("GET", "/pets", id("listPets")),
                ("GET", "/pets/{id}", id("pets/get pet")),
                ("DELETE", "/pets/{petId}/x.y", json!({})),
                ("GET", "/中文", id("中文")),
                ("POST", "/", id("")),
            ],
            &["listPets", "pets_get_pet", "delete_pets_petId_x_y", "get", "post"],
        );
        check(
            &[("GET", "/b", id("same")), ("GET", "/a", id("same")), ("GET", "/c", id("same!"))],
            &["same_db789e7b", "same", "same_"],
        );
        let long = "x".repeat(70);
        check(&[("GET", "/a", id(&long))], &[&format!("{}_f302dfbc", "x".repeat(49))]);
    }
}
