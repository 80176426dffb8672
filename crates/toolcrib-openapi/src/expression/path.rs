//! Paths from a value to a part of it: `.name`, `[0]`, and a JSON pointer after `#`. Dots are ambiguous, since names
//! may contain them: of several readings, the longest existing name wins.

use serde_json::Value;
use toolcrib_core::text::sanitize_truncated;

/// Follows the part of an expression after its root, such as `.pets[0].name` or `.pets#/0/name`. Errors are reasons.
pub(super) fn follow_path<'a>(root: &'a Value, path: &str) -> Result<&'a Value, String> {
    let (mut rest, pointer) = split_pointer(path);
    let mut value = root;
    while !rest.is_empty() {
        // Each step consumes at least one character, so the loop ends.
        (value, rest) = match rest.strip_prefix('.') {
            Some(names) => step_by_name(value, names)?,
            None => step_by_index(value, rest)?,
        };
    }
    match pointer {
        None => Ok(value),
        Some(pointer) => {
            value.pointer(pointer).ok_or_else(|| format!("there is no value at `{}`", sanitize_truncated(pointer, 100)))
        }
    }
}

/// Splits off the JSON pointer. A `#` without a pointer after it is part of a name.
fn split_pointer(path: &str) -> (&str, Option<&str>) {
    // `$response.body#` is the whole value.
    if let Some(path) = path.strip_suffix('#') {
        return (path, Some(""));
    }
    match path.find("#/") {
        Some(position) => (&path[..position], Some(&path[position + 1..])),
        None => (path, None),
    }
}

/// Maximum number of dots in one name. Names may contain dots, and the longest name that exists wins; the bound keeps
/// long paths through deep values from taking quadratic time.
const MAX_DOTS_IN_NAME: usize = 16;

/// Takes one step by property name, or by index for arrays. Returns the value and the rest of the path.
fn step_by_name<'a, 'w>(value: &'a Value, names: &'w str) -> Result<(&'a Value, &'w str), String> {
    let ends = names.match_indices(['.', '[']).map(|(position, _)| position).chain([names.len()]);
    let ends: Vec<usize> = ends.take(MAX_DOTS_IN_NAME + 1).collect();
    if let Value::Object(object) = value
        && let Some((end, found)) = ends.iter().rev().find_map(|&end| Some((end, object.get(&names[..end])?)))
    {
        return Ok((found, &names[end..]));
    }
    let first = &names[..ends[0]];
    let item = value.as_array().and_then(|items| items.get(first.parse::<usize>().ok()?));
    item.map(|item| (item, &names[ends[0]..]))
        .ok_or_else(|| format!("there is no `{}`", sanitize_truncated(first, 100)))
}

/// Takes one step by `[0]` or by a quoted name in brackets.
fn step_by_index<'a, 'w>(value: &'a Value, rest: &'w str) -> Result<(&'a Value, &'w str), String> {
    let end = rest.find(']').map_or(rest.len(), |position| position + 1);
    let (index, rest) = rest.split_at(end);
    let inside = index.trim_start_matches('[').trim_end_matches(']').trim();
    let quoted = ['\'', '"'].iter().find_map(|&quote| inside.strip_prefix(quote)?.strip_suffix(quote));
    let found = match quoted {
        Some(name) => value.get(name),
        None => inside.parse::<usize>().ok().and_then(|index| value.get(index)),
    };
    found.map(|found| (found, rest)).ok_or_else(|| format!("there is no `{}`", sanitize_truncated(index, 100)))
}
