//! Tables of schemas, their projections and the losses.

use serde_json::json;

use super::{check, check_unsupported, project_with};
use crate::render::Format::{Anthropic, Gemini, Openai, OpenaiStrict};

/// Object schema with one required argument `x`.
macro_rules! require_x {
    ($schema:tt) => {
        json!({"type": "object", "properties": {"x": $schema}, "required": ["x"]})
    };
}

#[test]
fn the_top_level_becomes_a_plain_object() {
    let conditions = json!({"type": "object", "properties": {"a": {}, "b": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]});
    let object = json!({"type": "object", "properties": {"a": {}, "b": {}}});
    let loss = "/anyOf: conditions between arguments are not supported, dropped";
    check(Anthropic, conditions.clone(), object.clone(), &[loss]);
    check(Openai, conditions, object, &[loss]);
    let forms = json!({"oneOf": [
        {"type": "object", "properties": {"id": {"type": "string"}, "n": {"type": "integer"}}, "required": ["id", "n"]},
        {"type": "object", "properties": {"id": {"type": "integer"}, "all": {"type": "boolean"}}, "required": ["id"]}
    ]});
    check(
        Anthropic,
        forms,
        json!({
            "properties": {"id": {"anyOf": [{"type": "string"}, {"type": "integer"}]}, "n": {"type": "integer"}, "all": {"type": "boolean"}},
            "required": ["id"],
            "type": "object"
        }),
        &["/oneOf: alternatives are not supported at the top level; their arguments are merged"],
    );
    let parts = json!({"allOf": [{"$ref": "#/$defs/a"}, {"properties": {"b": {"type": "string"}}, "required": ["b"]}],
        "$defs": {"a": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}}});
    let merged = json!({"$defs": {"a": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}},
        "type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["a", "b"]});
    check(Openai, parts, merged, &[]);
}

#[test]
fn a_percent_encoded_reference_is_followed() {
    let schema = || {
        let mut schema = require_x!({"$ref": "#/$defs/a%20place"});
        schema["$defs"] = json!({"a place": {"type": "integer"}});
        schema
    };
    check(Gemini, schema(), require_x!({"type": "integer"}), &[]);
    let mut strict = require_x!({"$ref": "#/$defs/a_20place"});
    strict["additionalProperties"] = json!(false);
    strict["$defs"] = json!({"a_20place": {"type": "integer"}});
    check(OpenaiStrict, schema(), strict, &[]);
    let merged = json!({"allOf": [{"$ref": "#/$defs/a%20place"}], "$defs": {"a place": {"properties": {"b": {}}}}});
    let object = json!({"$defs": {"a place": {"properties": {"b": {}}}}, "properties": {"b": {}}, "type": "object"});
    check(Anthropic, merged.clone(), object.clone(), &[]);
    check(Openai, merged, object, &[]);
}

#[test]
fn openai_arrays_get_items() {
    check(
        Openai,
        json!({"type": "object", "properties": {"a": {"type": "array"}, "b": {"type": "array", "items": {}}}}),
        json!({"type": "object", "properties": {"a": {"type": "array", "items": {}}, "b": {"type": "array", "items": {}}}}),
        &[],
    );
    check(Openai, json!({"type": "object"}), json!({"type": "object", "properties": {}}), &[]);
    check(
        Openai,
        json!({"type": "object", "not": {}}),
        json!({"type": "object", "properties": {}}),
        &["/not: {} is not supported, dropped"],
    );
}

#[test]
fn arguments_with_rejected_names_are_dropped() {
    let schema = json!({"type": "object", "properties": {"filter[id]": {}, "a.b-c": {}}});
    let legal = json!({"type": "object", "properties": {"a.b-c": {}}});
    check(Anthropic, schema.clone(), legal, &["/properties/filter[id]: this name is not supported; optional, dropped"]);
    check(Openai, schema.clone(), schema, &[]);
    let required = json!({"type": "object", "properties": {"a b": {}}, "required": ["a b"]});
    check_unsupported(Anthropic, required, "/properties/a b: this name is not supported, and the argument is required");
    check_unsupported(
        Gemini,
        json!({"type": "object", "properties": {"If-Match": {"type": "string"}}, "required": ["If-Match"]}),
        "/properties/If-Match: this name is not supported, and the argument is required",
    );
}

#[test]
fn nested_fields_may_have_any_name() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "object", "properties": {
        "$meta": {"type": "string"}, "x y": {"type": "string"}
    }, "required": ["$meta"]}}});
    check(Anthropic, schema.clone(), schema.clone(), &[]);
    check(Gemini, schema.clone(), schema, &[]);
}

#[test]
fn strict_objects_are_closed_and_all_their_fields_required() {
    check(
        OpenaiStrict,
        json!({"type": "object", "title": "T", "$schema": "s", "required": ["a"], "properties": {
            "a": {"type": "string", "description": "A", "minLength": 1, "format": "uri"},
            "b": {"type": "integer", "minimum": 1, "default": 3},
            "c": {"enum": ["x", "y"], "default": null},
            "d": {"type": "object", "properties": {"e": {"type": ["string", "null"]}}},
            "f": {"type": "array", "items": {"type": "string", "format": "date"}, "uniqueItems": true},
            "g": {"const": 1},
            "h": {"anyOf": [{"type": "string"}, {"type": "integer"}], "default": 5, "title": "H"}
        }}),
        json!({"type": "object", "properties": {
            "a": {"type": "string", "description": "A"},
            "b": {"type": ["integer", "null"], "minimum": 1},
            "c": {"type": ["string", "null"], "enum": ["x", "y", null]},
            "d": {"anyOf": [
                {"type": "object", "properties": {"e": {"type": ["string", "null"]}}, "required": ["e"], "additionalProperties": false},
                {"type": "null"}
            ]},
            "f": {"anyOf": [{"type": "array", "items": {"type": "string", "format": "date"}}, {"type": "null"}]},
            "g": {"anyOf": [{"type": "integer", "const": 1}, {"type": "null"}]},
            "h": {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}], "title": "H"}
        }, "required": ["a", "b", "c", "d", "f", "g", "h"], "additionalProperties": false, "title": "T"}),
        &[
            "/properties/a/format: \"uri\" is not supported, dropped",
            "/properties/a/minLength: 1 is not supported, dropped",
            "/properties/b/default: 3 is not supported, dropped",
            "/properties/f/uniqueItems: true is not supported, dropped",
            "/properties/h/default: 5 is not supported, dropped",
        ],
    );
    check(
        OpenaiStrict,
        json!({"type": "object"}),
        json!({"type": "object", "properties": {}, "required": [], "additionalProperties": false}),
        &[],
    );
}

#[test]
fn arbitrary_fields_are_not_supported_in_strict_mode() {
    let strict = |x: serde_json::Value| json!({"type": "object", "properties": {"x": x}, "required": ["x"], "additionalProperties": false});
    let map = json!({"type": "object", "additionalProperties": {"type": "string"}});
    check_unsupported(OpenaiStrict, require_x!(map), "/properties/x: an object with arbitrary fields is not supported");
    check_unsupported(
        OpenaiStrict,
        json!({"type": "object", "additionalProperties": true}),
        "it accepts arguments of any name",
    );
    check(
        OpenaiStrict,
        json!({"type": "object", "properties": {"x": {"type": "string"}, "m": {"type": "array", "items": {"type": "object"}}}, "required": ["x"]}),
        strict(json!({"type": "string"})),
        &["/properties/m: /properties/m/items: an object with arbitrary fields is not supported; optional, dropped"],
    );
    check(
        OpenaiStrict,
        require_x!({"anyOf": [{"type": "string"}, {"type": "object"}]}),
        strict(json!({"type": "string"})),
        &["/properties/x/anyOf/1: an object with arbitrary fields is not supported; this alternative is dropped"],
    );
    check(
        OpenaiStrict,
        require_x!({"description": "Whatever"}),
        strict(json!({"type": ["string", "number", "boolean", "null"], "description": "Whatever"})),
        &["/properties/x: any value is not supported, narrowed to string, number, boolean or null"],
    );
}

#[test]
fn strict_schemas_keep_their_references() {
    check(
        OpenaiStrict,
        json!({"type": "object", "properties": {
            "x": {"$ref": "#/definitions/node", "description": "The first"},
            "y": {"allOf": [{"$ref": "#/definitions/node"}]},
            "z": {"$ref": "#/definitions/free"}
        }, "required": ["x"], "definitions": {
            "node": {"type": "object", "properties": {"next": {"$ref": "#/definitions/node"}}},
            "free": {"type": "object"}, "unused": {"type": "string"}
        }}),
        json!({"type": "object", "properties": {
            "x": {"anyOf": [{"$ref": "#/$defs/node"}], "description": "The first"},
            "y": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}
        }, "required": ["x", "y"], "additionalProperties": false, "$defs": {
            "node": {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
                "required": ["next"], "additionalProperties": false}
        }}),
        &["/properties/z: /definitions/free: an object with arbitrary fields is not supported; optional, dropped"],
    );
    check_unsupported(
        OpenaiStrict,
        require_x!({"$ref": "#/nowhere"}),
        "/properties/x/$ref: the reference cannot be resolved",
    );
}

#[test]
fn strict_schemas_are_limited() {
    let mut deep = json!({"type": "string"});
    for _ in 0..10 {
        deep = json!({"type": "object", "properties": {"a": deep}, "required": ["a"]});
    }
    let at = "/properties/a".repeat(9);
    check_unsupported(
        OpenaiStrict,
        require_x!(deep),
        &format!("/properties/x{at}: objects nest deeper than 10 levels"),
    );
    let many: Vec<String> = (0..1_001).map(|number| format!("v{number}")).collect();
    let projected = super::project_with(OpenaiStrict, &require_x!({"type": "string", "enum": many}));
    assert_eq!(projected.losses[0].path, "/properties/x/enum");
    let fields: serde_json::Map<_, _> =
        (0..5_001).map(|number| (format!("p{number}"), json!({"type": "string"}))).collect();
    check_unsupported(
        OpenaiStrict,
        json!({"type": "object", "properties": fields}),
        "it has 5001 fields; 5000 are supported",
    );
}

#[test]
fn gemini_gets_a_subset_of_the_keywords() {
    check(
        Gemini,
        json!({"type": "object", "$schema": "s", "additionalProperties": false, "required": ["a", "gone"], "properties": {
            "a": {"type": ["string", "null"], "format": "uuid", "minLength": 1},
            "b": {"type": "integer", "exclusiveMinimum": 0, "enum": [1, 2]},
            "c": {"const": "x", "title": "C"},
            "d": {"type": ["string", "number"], "description": "D"},
            "e": {"anyOf": [{"type": "string", "enum": ["u", ""]}, {"type": "null"}], "default": null},
            "f": {"type": "array"},
            "g": {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string", "format": "date-time"}}]}
        }}),
        json!({"type": "object", "properties": {
            "a": {"type": "string", "minLength": 1, "nullable": true},
            "b": {"type": "integer", "minimum": 1},
            "c": {"type": "string", "enum": ["x"], "title": "C"},
            "d": {"anyOf": [{"type": "string"}, {"type": "number"}], "description": "D"},
            "e": {"type": "string", "enum": ["u"], "nullable": true},
            "f": {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "boolean"}]}},
            "g": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string", "format": "date-time"}}]}
        }, "required": ["a"]}),
        &[
            "/properties/a/format: \"uuid\" is not supported, dropped",
            "/properties/b/enum: [1,2] is not supported, dropped",
            "/properties/e/anyOf/0/enum: `enum` values that are empty or not strings are not supported, dropped",
            "/properties/f/items: any value is not supported, narrowed to string, number or boolean",
            "/properties/g/oneOf: `oneOf` was replaced by `anyOf`",
        ],
    );
    let projected = project_with(Gemini, &json!({"type": "object"}));
    assert_eq!((projected.text.unwrap().contains("parameters"), projected.losses.len()), (false, 0));
}

#[test]
fn references_are_inlined_for_gemini() {
    check(
        Gemini,
        json!({"type": "object", "properties": {
            "at": {"$ref": "#/$defs/place", "description": "Where"},
            "tree": {"$ref": "#/$defs/node"}
        }, "$defs": {
            "place": {"type": "object", "description": "A place", "properties": {"city": {"type": "string"}}, "required": ["city"]},
            "node": {"type": "object", "properties": {"left": {"$ref": "#/$defs/node"}, "free": {"type": "object"}}}
        }}),
        json!({"type": "object", "properties": {
            "at": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "description": "Where"},
            "tree": {"type": "object", "properties": {"left": {"type": "object"}, "free": {"type": "object"}}}
        }}),
        &[
            "/$defs/node/properties/free/additionalProperties: additional properties cannot be described; the object accepts any fields",
            "/$defs/node/properties/left: the recursive reference is cut off here; the object accepts any fields",
        ],
    );
}

#[test]
fn all_of_parts_are_merged() {
    check(
        Gemini,
        require_x!({"allOf": [
            {"type": "object", "properties": {"a": {"type": "number", "minimum": 1}}, "required": ["a"]},
            {"properties": {"a": {"type": "integer", "minimum": 5}, "b": {"type": "string"}}, "not": {}},
            {"type": "object", "not": {"type": "string"}}
        ]}),
        json!({"type": "object", "properties": {"x": {"type": "object", "properties": {
            "a": {"type": "integer", "minimum": 5}, "b": {"type": "string"}
        }, "required": ["a"]}}, "required": ["x"]}),
        &[
            "/properties/x/allOf/2/not: it conflicts with another part, dropped",
            "/properties/x/not: {} is not supported, dropped",
        ],
    );
}
