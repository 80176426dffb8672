//! Converts YAML documents that are not configurations, such as OpenAPI documents, to JSON values. Lines and spellings
//! of scalars are dropped.
//!
//! The YAML parser is that of configuration files, which treats `yes` and `no` as booleans. OpenAPI documents follow
//! YAML 1.2, where they are text: an `enum` of `[yes, no]` must not become `[true, false]`. The kept spelling makes
//! that possible.

use serde_json::{Map, Number, Value as Json};
use toolcrib_core::json::parse_integer;

use super::{ConfigDiagnostic, ConfigNode, NodeValue, yaml};

/// Parses YAML with the core schema of YAML 1.2: of all words, only `true`, `false` and `null` are not text. The last
/// of several equal keys is used. Aliases may copy at most `max_copies` nodes in total; beyond that, parsing fails.
pub fn yaml_to_json(text: &str, max_copies: usize) -> Result<Json, ConfigDiagnostic> {
    yaml::parse(text, "", max_copies).map(node_to_json)
}

/// Converts a node. Booleans in other spellings than `true` and `false` become text.
pub(crate) fn node_to_json(node: ConfigNode) -> Json {
    match node.value {
        NodeValue::Null => Json::Null,
        NodeValue::Bool(flag, spelling) if spelling.eq_ignore_ascii_case(if flag { "true" } else { "false" }) => {
            Json::Bool(flag)
        }
        NodeValue::Bool(_, spelling) | NodeValue::Text(spelling) => Json::String(spelling),
        NodeValue::Number(spelling) => parse_number(&spelling).unwrap_or(Json::String(spelling)),
        NodeValue::List(nodes) => nodes.into_iter().map(node_to_json).collect(),
        NodeValue::Map(entries) => {
            entries.into_iter().map(|entry| (entry.key, node_to_json(entry.node))).collect::<Map<_, _>>().into()
        }
    }
}

/// Parses a number in JSON, hexadecimal or octal notation, or with a leading `+`. `None` for one that JSON cannot hold.
/// Integers keep all digits, see `toolcrib_core::json::parse_exact`.
fn parse_number(spelling: &str) -> Option<Json> {
    let integer = parse_integer(spelling.trim_start_matches('+'));
    if let Some(number) = integer.or_else(|| serde_json::from_str(spelling).ok().map(Json::Number)) {
        return Some(number);
    }
    // JSON has neither hexadecimal nor octal numbers, and no leading `+`. Their values are kept, their notation is not.
    let radix = |prefix, radix| u64::from_str_radix(spelling.strip_prefix(prefix)?, radix).ok();
    match radix("0x", 16).or_else(|| radix("0o", 8)) {
        Some(number) => Some(number.into()),
        None => match spelling.trim_start_matches('+').parse::<i64>() {
            Ok(number) => Some(number.into()),
            Err(_) => Number::from_f64(spelling.parse().ok()?).map(Json::Number),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn scalars_follow_the_core_schema_of_yaml_1_2() {
        let long: Json = parse_integer("123456789012345678901234567890").unwrap();
        assert_eq!(
            yaml_to_json("[123456789012345678901234567890, +123456789012345678901234567890, '1']", 9).unwrap(),
            json!([long, long, "1"])
        );
        let text = "a: no\nb: true\nc: 0x10\nd: 1.50\ne: 007\nf: 1_0\ng: ~\n200: {x: &x [1, '2']}\nh: *x\ni: 2020-01-02\nj: +3\na: NO";
        let expected = json!({
            "a": "NO", "b": true, "c": 16, "d": 1.5, "e": 7, "f": "1_0", "g": null, "200": {"x": [1, "2"]}, "h": [1, "2"],
            "i": "2020-01-02", "j": 3,
        });
        assert_eq!(yaml_to_json(text, 100).unwrap(), expected);
        assert!(yaml_to_json("a: &a [1, 2]\nb: [*a, *a, *a]", 5).is_err());
    }
}
