//! The way from a value to a part of it: `.name`, `[0]` and a JSON pointer after `#`.

use serde_json::Value;

use crate::text::sanitize_truncated;

/// Follows what stands after the root of an expression, such as `.pets[0].name` or `.pets#/0/name`.
pub(super) fn follow_path<'a>(root: &'a Value, way: &str) -> Result<&'a Value, String> {
    let (mut rest, pointer) = split_pointer(way);
    let mut value = root;
    while !rest.is_empty() {
        (value, rest) = match rest.strip_prefix('.') {
            Some(names) => step_by_name(value, names)?,
            None => step_by_index(value, rest)?,
        };
    }
    match pointer {
        None => Ok(value),
        Some(pointer) => {
            value.pointer(pointer).ok_or_else(|| format!("there is nothing at `{}`", sanitize_truncated(pointer, 100)))
        }
    }
}

/// A `#` belongs to a name unless a pointer follows it.
fn split_pointer(way: &str) -> (&str, Option<&str>) {
    if let Some(way) = way.strip_suffix('#') {
        return (way, Some(""));
    }
    match way.find("#/") {
        Some(at) => (&way[..at], Some(&way[at + 1..])),
        None => (way, None),
    }
}

/// Names may have dots in them: of several that fit, the longest is meant. So many are tried at each level, which keeps
/// the way through a deep value from costing its length for every dot.
const MAX_DOTS_IN_NAME: usize = 16;

/// See [`MAX_DOTS`].
fn step_by_name<'a, 'w>(value: &'a Value, names: &'w str) -> Result<(&'a Value, &'w str), String> {
    let ends = names.match_indices(['.', '[']).map(|(at, _)| at).chain([names.len()]);
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

/// `[0]`, or a name in quotes.
fn step_by_index<'a, 'w>(value: &'a Value, rest: &'w str) -> Result<(&'a Value, &'w str), String> {
    let end = rest.find(']').map_or(rest.len(), |at| at + 1);
    let (index, rest) = rest.split_at(end);
    let inside = index.trim_start_matches('[').trim_end_matches(']').trim();
    let quoted = ['\'', '"'].iter().find_map(|&quote| inside.strip_prefix(quote)?.strip_suffix(quote));
    let found = match quoted {
        Some(name) => value.get(name),
        None => inside.parse::<usize>().ok().and_then(|index| value.get(index)),
    };
    found.map(|found| (found, rest)).ok_or_else(|| format!("there is no `{}`", sanitize_truncated(index, 100)))
}
