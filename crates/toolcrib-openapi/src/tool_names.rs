//! Names the tool of each operation: the sanitised `operationId`, else method and path. Names that are too long or
//! taken get eight digits of the hash of `METHOD /path`, so that they do not depend on the order of the document.
//!
//! ```text
//! operationId `pets/get pet`      -> pets_get_pet
//! no id, DELETE /pets/{petId}/x.y -> delete_pets_petId_x_y
//! a second `same`, GET /b         -> same_db789e7b
//! ```

use std::collections::HashSet;

use serde_json::Value;
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::source::SourceId;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::tool::{MAX_TOOL_NAME_LEN, SEPARATOR};

use super::convert::OperationRef;

/// Returns a name for each operation, in the same order. Names are valid and unique with the prefix of their source.
pub(super) fn assign_names(operations: &[OperationRef<'_>], source: &SourceId) -> Vec<String> {
    // The limit of providers applies to the whole name, with the prefix.
    let max_len = MAX_TOOL_NAME_LEN - source.as_str().len() - SEPARATOR.len();
    let preferred: Vec<(String, bool)> = operations.iter().map(preferred_name).collect();
    let request = |operation_ref: &OperationRef<'_>| format!("{} {}", operation_ref.method, operation_ref.path);
    // An operation whose id needs no sanitising keeps its name; among equals `METHOD /path` decides, not document
    // order.
    let mut order: Vec<usize> = (0..operations.len()).collect();
    order.sort_by_cached_key(|&index| (!preferred[index].1, request(&operations[index])));
    let mut used: HashSet<String> = HashSet::with_capacity(operations.len());
    let mut names = vec![String::new(); operations.len()];
    for index in order {
        let preferred_name = &preferred[index].0;
        let hash = Fingerprint::digest(request(&operations[index]));
        let hashed = |digits: usize| {
            let prefix: String = preferred_name.chars().take(max_len - 1 - digits).collect();
            format!("{}_{}", prefix.trim_end_matches('_'), hash.short_hex(digits))
        };
        let name = if preferred_name.len() <= max_len && !used.contains(preferred_name) {
            preferred_name.clone()
        } else {
            // Two hashes with the same eight digits are improbable, but not impossible.
            Some(hashed(8)).filter(|name| !used.contains(name)).unwrap_or_else(|| hashed(16))
        };
        used.insert(name.clone());
        names[index] = name;
    }
    names
}

/// Returns a warning if an operation lost its name because another has the same id.
pub(super) fn duplicate_id_warning(operation_ref: &OperationRef<'_>, name: &str) -> Option<String> {
    let (preferred_name, _) = preferred_name(operation_ref);
    let id = operation_ref.operation.value.get("operationId").and_then(Value::as_str)?;
    let used = name != preferred_name && name.len() < MAX_TOOL_NAME_LEN && name.starts_with(&preferred_name);
    used.then(|| {
        let id = sanitize_truncated(id, 80);
        format!(
            "another operation has the operationId `{id}`, or one that becomes the same; the tool is called `{name}`"
        )
    })
}

/// Replaces all characters of an `operationId` that tool names must not have.
pub fn sanitize_name(id: &str) -> String {
    let replace = |character: char| if character.is_ascii_alphanumeric() || character == '-' { character } else { '_' };
    id.trim().chars().map(replace).collect()
}

/// Returns the name without regard to others, and whether it equals the `operationId`.
fn preferred_name(operation_ref: &OperationRef<'_>) -> (String, bool) {
    let id =
        operation_ref.operation.value.get("operationId").and_then(Value::as_str).map(str::trim).unwrap_or_default();
    // Longer ids are cut and hashed anyway, and thousands of operations may share one.
    let id = &id[..id.floor_char_boundary(4 * MAX_TOOL_NAME_LEN)];
    let name = sanitize_name(id);
    if name.contains(|character: char| character.is_ascii_alphanumeric()) {
        let is_exact = name == id;
        return (name, is_exact);
    }
    // Without a usable id: method and words of the path, such as `get_pets_id`.
    let mut slug = operation_ref.method.to_ascii_lowercase();
    for word in
        operation_ref.path.split(|character: char| !character.is_ascii_alphanumeric()).filter(|word| !word.is_empty())
    {
        slug.push('_');
        slug.push_str(word);
    }
    (slug, false)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::document_set::NodeRef;
    use super::*;

    fn check(operations: &[(&str, &str, Value)], expected: &[&str]) {
        let operations: Vec<OperationRef<'_>> = operations
            .iter()
            .map(|(method, path, operation)| {
                let node = NodeRef { value: operation, document_url: "" };
                let method = (*method).to_owned();
                let pointer = String::new();
                OperationRef { method, path, pointer, path_item: node, operation: node }
            })
            .collect();
        let source = SourceId::parse("shop").unwrap();
        assert_eq!(assign_names(&operations, &source), expected);
        let mut reversed = operations.clone();
        reversed.reverse();
        let mut reversed_names = assign_names(&reversed, &source);
        reversed_names.reverse();
        assert_eq!(reversed_names, expected, "the order of the document changes no name");
    }

    #[test]
    fn names_do_not_depend_on_document_order() {
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
