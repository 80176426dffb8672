//! The name of each operation's tool: its `operationId` made legal, else its method and path. Where that is too long or
//! another has it, eight digits of the hash of `METHOD /path` follow, so that no order of the document changes a name.

use std::collections::HashSet;

use serde_json::Value;

use super::convert::Found;
use crate::fingerprint::Fingerprint;
use crate::source::SourceId;
use crate::text::shown_short;
use crate::tool::{LONGEST, SEPARATOR};

/// In the order of the operations; legal and unique with the prefix of their source.
pub(super) fn names(found: &[Found<'_>], source: &SourceId) -> Vec<String> {
    let room = LONGEST - source.as_str().len() - SEPARATOR.len();
    let wishes: Vec<(String, bool)> = found.iter().map(wish).collect();
    let line = |found: &Found<'_>| format!("{} {}", found.method, found.path);
    // Whoever has the name to the letter keeps it; among equals the order of their lines decides, not of the document.
    let mut order: Vec<usize> = (0..found.len()).collect();
    order.sort_by_cached_key(|&index| (!wishes[index].1, line(&found[index])));
    let mut taken: HashSet<String> = HashSet::with_capacity(found.len());
    let mut names = vec![String::new(); found.len()];
    for index in order {
        let wish = &wishes[index].0;
        let hash = Fingerprint::of(line(&found[index]));
        let hashed = |digits: usize| {
            let kept: String = wish.chars().take(room - 1 - digits).collect();
            format!("{}_{}", kept.trim_end_matches('_'), hash.short(digits))
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
pub(super) fn told(found: &Found<'_>, name: &str) -> Option<String> {
    let (wish, _) = wish(found);
    let id = found.operation.value.get("operationId").and_then(Value::as_str)?;
    let taken = name != wish && name.len() < LONGEST && name.starts_with(&wish);
    taken.then(|| {
        let id = shown_short(id, 80);
        format!(
            "another operation has the operationId `{id}`, or one that becomes the same; the tool is called `{name}`"
        )
    })
}

/// An `operationId` as most tools are named for it.
pub fn legal(id: &str) -> String {
    let legal = |letter: char| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' };
    id.trim().chars().map(legal).collect()
}

/// What it would be called if it were alone, and whether the document says so to the letter.
fn wish(found: &Found<'_>) -> (String, bool) {
    let id = found.operation.value.get("operationId").and_then(Value::as_str).map(str::trim).unwrap_or_default();
    // One that is too long for a name is cut and hashed anyway; thousands of operations may share it.
    let id = &id[..id.floor_char_boundary(4 * LONGEST)];
    let made = legal(id);
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

    use super::super::library::At;
    use super::*;

    fn check(operations: &[(&str, &str, Value)], expected: &[&str]) {
        let found: Vec<Found<'_>> = operations
            .iter()
            .map(|(method, path, operation)| {
                let at = At { value: operation, place: "" };
                let (method, pointer) = ((*method).to_owned(), String::new());
                Found { method, path, pointer, item: at, operation: at }
            })
            .collect();
        let source = SourceId::parse("shop").unwrap();
        assert_eq!(names(&found, &source), expected);
        let mut turned = found.clone();
        turned.reverse();
        let mut again = names(&turned, &source);
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
