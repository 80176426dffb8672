//! Variants: `oneOf`, `anyOf`, and schemas that extend one with a discriminator.

use serde_json::json;

use super::*;

/// Checks which values the schema of a request accepts, listed and in full.
fn check_values(dialect: SchemaDialect, schema: Value, definitions: Value, values: &[(Value, bool)]) -> Value {
    let (listed, faults) = translate_request(dialect, schema, definitions);
    assert_eq!(faults, [""; 0]);
    let validator = toolcrib_schema::Validator::new(serde_json::value::to_raw_value(&listed).unwrap().into());
    assert_eq!(validator.note(), None, "{listed}");
    for (value, expected) in values {
        assert_eq!(validator.validate(value).is_ok(), *expected, "{value} in {listed}");
    }
    listed
}

fn one_of(names: &[&str], discriminator: Value) -> Value {
    let variants: Vec<Value> = names.iter().map(|name| reference(name)).collect();
    json!({ "oneOf": variants, "discriminator": discriminator })
}

fn object(properties: Value, required: &[&str]) -> Value {
    json!({ "type": "object", "properties": properties, "required": required })
}

#[test]
fn a_discriminator_assigns_values_to_variants() {
    let named = |name: &str| json!({ "$ref": format!("#/components/schemas/{name}") });
    let definitions = json!({
        "Pet": { "type": "object", "properties": { "kind": { "type": "string" } }, "required": ["kind"] },
        "Cat": { "allOf": [named("Pet"), { "properties": { "lives": { "type": "integer" } } }] },
        "Dog": { "allOf": [named("Pet"), { "properties": { "barks": { "type": "boolean" } } }] },
        "Fish": { "type": "object", "properties": { "kind": { "type": "string", "enum": ["fish"] } } },
    });
    let schema = json!({
        "oneOf": [named("Cat"), named("Dog"), named("Fish")],
        "discriminator": { "propertyName": "kind", "mapping": {
            "cat": "#/components/schemas/Cat", "tom": "Cat", "lost": "#/components/schemas/None" } },
    });
    let (listed, faults) = translate_request(SchemaDialect::OpenApi30, schema, definitions);
    assert_eq!(faults, [""; 0]);
    let kinds = |index: usize| listed["anyOf"][index]["properties"]["kind"].clone();
    assert_eq!(kinds(0), json!({ "enum": ["cat", "tom"] }));
    assert_eq!(kinds(1), json!({ "enum": ["Dog", "lost"] }));
    assert_eq!(kinds(2), json!({ "type": "string", "enum": ["fish"] }));
    let validator = jsonschema::validator_for(&listed).unwrap();
    for (value, expected) in [
        (json!({ "kind": "tom", "lives": 9 }), true),
        (json!({ "kind": "cat", "lives": "9" }), false),
        (json!({ "kind": "Dog", "lives": "9" }), true),
        (json!({ "kind": "bird" }), false),
    ] {
        assert_eq!(validator.is_valid(&value), expected, "{value}");
    }
}

#[test]
fn the_default_of_a_discriminator_takes_all_other_values() {
    let kind = json!({ "type": "string" });
    let cat = || object(json!({ "kind": kind, "lives": { "type": "integer" } }), &["kind", "lives"]);
    let other = || object(json!({ "kind": kind, "name": { "type": "string" } }), &["name"]);
    let discriminator = || json!({ "propertyName": "kind", "mapping": { "cat": "Cat" }, "defaultMapping": "Other" });
    let cases = [
        (json!({ "kind": "cat", "lives": 9 }), true),
        (json!({ "kind": "cat", "name": "Tom" }), false),
        (json!({ "kind": "bird", "name": "Tweety" }), true),
        (json!({ "kind": "Other", "name": "Tweety" }), true),
        (json!({ "name": "Tweety" }), true),
        (json!({ "kind": "bird", "lives": 9 }), false),
    ];
    let definitions = json!({ "Cat": cat(), "Other": other() });
    check_values(SchemaDialect::JsonSchema, one_of(&["Cat", "Other"], discriminator()), definitions, &cases);

    let extending = |schema: Value| json!({ "allOf": [reference("Pet"), schema] });
    let pet = json!({ "type": "object", "properties": { "kind": kind }, "discriminator": discriminator() });
    let definitions = json!({ "Pet": pet, "Cat": extending(cat()), "Other": extending(other()) });
    check_values(SchemaDialect::JsonSchema, reference("Pet"), definitions, &cases);
}

#[test]
fn a_value_may_match_several_variants() {
    let variants = json!([{ "type": "integer" }, { "type": "number" }]);
    check(SchemaDialect::JsonSchema, json!({ "oneOf": variants }), json!({ "anyOf": variants }));
    check(
        SchemaDialect::JsonSchema,
        json!({ "oneOf": variants, "anyOf": [{ "minimum": 1 }] }),
        json!({ "anyOf": [{ "minimum": 1 }], "allOf": [{ "anyOf": variants }] }),
    );
}

#[test]
fn values_of_a_discriminator_have_the_type_of_its_property() {
    let definitions = |kind: Value| {
        json!({
            "A": object(json!({ "kind": kind, "a": { "type": "integer" } }), &["kind", "a"]),
            "B": object(json!({ "kind": kind, "b": { "type": "integer" } }), &["kind", "b"]),
        })
    };
    for (kind, values, other) in [
        (json!({ "type": "integer" }), [json!(1), json!(2)], json!("1")),
        (json!({ "type": "number" }), [json!(1), json!(2)], json!("1")),
        (json!({ "type": "integer", "enum": [1, 2] }), [json!(1), json!(2)], json!(3)),
        (json!({ "type": "string" }), [json!("1"), json!("2")], json!(1)),
        (json!({}), [json!(1), json!("2")], json!(3)),
    ] {
        let schema = one_of(&["A", "B"], json!({ "propertyName": "kind", "mapping": { "1": "A", "2": "B" } }));
        let [first, second] = values;
        let cases = [
            (json!({ "kind": first, "a": 1 }), true),
            (json!({ "kind": second, "b": 1 }), true),
            (json!({ "kind": first, "b": 1 }), false),
            (json!({ "kind": second, "a": 1 }), false),
            (json!({ "kind": other, "a": 1, "b": 1 }), false),
        ];
        check_values(SchemaDialect::OpenApi30, schema, definitions(kind), &cases);
    }
    let schema = one_of(&["A", "B"], json!({ "propertyName": "kind", "mapping": { "true": "A", "false": "B" } }));
    let cases = [(json!({ "kind": true, "a": 1 }), true), (json!({ "kind": false, "a": 1 }), false)];
    check_values(SchemaDialect::JsonSchema, schema, definitions(json!({ "type": "boolean" })), &cases);
}

#[test]
fn a_variant_may_have_variants_of_its_own() {
    let kind = json!({ "type": "string" });
    let definitions = |feline: Value| {
        json!({
            "Feline": feline,
            "Cat": object(json!({ "kind": kind, "lives": { "type": "integer" } }), &["kind", "lives"]),
            "Lion": object(json!({ "kind": kind, "mane": { "type": "boolean" } }), &["kind", "mane"]),
            "Dog": object(json!({ "kind": kind, "barks": { "type": "boolean" } }), &["kind", "barks"]),
        })
    };
    let mapping = json!({ "propertyName": "kind", "mapping": { "cat": "Cat", "lion": "Lion" } });
    let mapped = json!({ "propertyName": "kind", "mapping": { "cat": "Feline", "lion": "Feline", "dog": "Dog" } });
    let unmapped = json!({ "propertyName": "kind", "mapping": { "cat": "Cat", "lion": "Lion", "dog": "Dog" } });
    for (feline, discriminator) in [
        (one_of(&["Cat", "Lion"], mapping.clone()), mapped.clone()),
        (one_of(&["Cat", "Lion"], mapping), unmapped.clone()),
        (json!({ "anyOf": [reference("Cat"), reference("Lion")] }), mapped),
        (json!({ "anyOf": [reference("Cat"), reference("Lion")] }), unmapped),
    ] {
        let cases = [
            (json!({ "kind": "cat", "lives": 9 }), true),
            (json!({ "kind": "lion", "mane": true }), true),
            (json!({ "kind": "dog", "barks": true }), true),
            (json!({ "kind": "cat", "barks": true }), false),
            (json!({ "kind": "dog" }), false),
        ];
        check_values(SchemaDialect::OpenApi30, one_of(&["Feline", "Dog"], discriminator), definitions(feline), &cases);
    }
}

#[test]
fn an_alias_of_a_variant_is_that_variant() {
    let kind = json!({ "type": "string" });
    let definitions = json!({
        "CatAlias": reference("Cat"),
        "Cat": object(json!({ "kind": kind, "lives": { "type": "integer" } }), &["kind", "lives"]),
        "Dog": object(json!({ "kind": kind, "barks": { "type": "boolean" } }), &["kind", "barks"]),
    });
    for (names, target) in [
        (["CatAlias", "Dog"], "#/components/schemas/Cat"),
        (["Cat", "Dog"], "CatAlias"),
        (["CatAlias", "Dog"], "http://h/#/components/schemas/Cat"),
    ] {
        let mapping = json!({ "propertyName": "kind", "mapping": { "cat": target, "dog": "Dog" } });
        let cases = [
            (json!({ "kind": "cat", "lives": 9 }), true),
            (json!({ "kind": "cat", "barks": true }), false),
            (json!({ "kind": "Cat", "lives": 9 }), false),
        ];
        check_values(SchemaDialect::OpenApi30, one_of(&names, mapping), definitions.clone(), &cases);
    }
    let cases = [(json!({ "kind": "Cat", "lives": 9 }), true), (json!({ "kind": "CatAlias", "barks": true }), false)];
    let schema = one_of(&["CatAlias", "Dog"], json!({ "propertyName": "kind" }));
    check_values(SchemaDialect::OpenApi30, schema, definitions, &cases);
}

/// The values that all variants inherit made them equal.
#[test]
fn inherited_values_are_restricted_to_those_of_the_variant() {
    let definitions = json!({
        "Event": object(json!({ "kind": { "type": "string", "enum": ["made", "sent", "lost"] } }), &["kind"]),
        "Order": { "allOf": [reference("Event"), { "properties": { "order": { "type": "string" } } }] },
        "Made": { "allOf": [reference("Order"), object(json!({ "by": { "type": "string" } }), &["by"])] },
        "Sent": { "allOf": [reference("Order"), object(json!({ "to": { "type": "string" } }), &["to"])] },
    });
    for mapping in
        [json!({ "made": "Made", "sent": "Sent" }), json!({ "made": "Made", "sent": "Sent", "gone": "Gone" })]
    {
        let schema = one_of(&["Made", "Sent"], json!({ "propertyName": "kind", "mapping": mapping }));
        let cases = [
            (json!({ "kind": "made", "by": "x" }), true),
            (json!({ "kind": "made", "to": "x" }), false),
            (json!({ "kind": "sent", "by": "x" }), false),
            // Listed by the property, and selected by no entry of the mapping.
            (json!({ "kind": "lost", "to": "x" }), true),
            (json!({ "kind": "gone", "to": "x" }), false),
        ];
        check_values(SchemaDialect::OpenApi30, schema, definitions.clone(), &cases);
    }
}

/// Schema names that no mapping confirms restricted the variants of a union without a discriminator.
#[test]
fn any_of_may_have_a_discriminator_and_inherit_one() {
    let definitions = json!({
        "Pet": { "type": "object", "properties": { "kind": { "type": "string" } }, "required": ["kind"],
            "discriminator": { "propertyName": "kind", "mapping": { "cat": "Cat" } } },
        "Cat": { "allOf": [reference("Pet"), object(json!({ "lives": { "type": "integer" } }), &["lives"])] },
        "Dog": { "allOf": [reference("Pet"), { "properties": { "barks": { "type": "boolean" } } }] },
    });
    let variants = json!([reference("Cat"), reference("Dog")]);
    for (schema, accepts_other_values) in [
        (json!({ "anyOf": variants, "discriminator": { "propertyName": "kind", "mapping": { "cat": "Cat" } } }), false),
        (json!({ "anyOf": variants }), true),
        (json!({ "oneOf": variants }), true),
    ] {
        let cases = [
            (json!({ "kind": "cat", "lives": 9 }), true),
            (json!({ "kind": "Dog" }), true),
            (json!({ "kind": "Dog", "barks": 1 }), false),
            (json!({ "kind": "Dog", "barks": 1, "lives": 9 }), false),
            (json!({ "kind": "dog", "barks": true }), accepts_other_values),
        ];
        let listed = check_values(SchemaDialect::JsonSchema, schema, definitions.clone(), &cases);
        assert_eq!(listed["anyOf"][0]["properties"]["kind"], json!({ "const": "cat" }));
    }
    // Names that the property lists are values.
    let mut definitions = definitions;
    definitions["Pet"]["discriminator"] = json!({ "propertyName": "kind" });
    definitions["Pet"]["properties"]["kind"]["enum"] = json!(["Cat", "Dog"]);
    let cases = [(json!({ "kind": "Cat", "lives": 9 }), true), (json!({ "kind": "Cat" }), false)];
    check_values(SchemaDialect::JsonSchema, json!({ "oneOf": variants }), definitions, &cases);
}

/// A mapping that contradicts the schemas removed values that they list.
#[test]
fn a_value_that_the_mapped_variant_does_not_list_stays_with_the_others() {
    let kinds = |values: &[&str], field: &str| {
        object(json!({ "kind": { "type": "string", "enum": values }, field: {} }), &["kind", field])
    };
    let definitions = json!({ "Cat": kinds(&["cat", "kitten"], "lives"), "Dog": kinds(&["dog", "puppy"], "barks") });
    let schema = one_of(&["Cat", "Dog"], json!({ "propertyName": "kind", "mapping": { "cat": "Dog", "dog": "Cat" } }));
    let cases = [
        (json!({ "kind": "cat", "lives": 9 }), true),
        (json!({ "kind": "kitten", "lives": 9 }), true),
        (json!({ "kind": "dog", "barks": true }), true),
        (json!({ "kind": "cat", "barks": true }), false),
    ];
    check_values(SchemaDialect::OpenApi30, schema, definitions, &cases);
}

/// Documents that are split over files: a variant without a name, and named schemas that are references.
#[test]
fn variants_may_be_whole_documents() {
    let documents = |schema: Value, mapping: Value| {
        let discriminator = json!({ "propertyName": "kind", "mapping": mapping });
        let pet = json!({ "type": "object", "properties": { "kind": { "type": "string" } }, "required": ["kind"],
            "discriminator": discriminator });
        let extend_pet =
            |field: &str| json!({ "allOf": [{ "$ref": "pet.json" }, object(json!({ field: {} }), &[field])] });
        let components = json!({ "Alias": reference("Cat"), "Cat": { "$ref": "cat.json" }, "Dog": { "$ref": "dog.json" },
            "Pet": { "$ref": "pet.json" } });
        let mut documents = DocumentSet::new(
            Url::parse("http://h/").unwrap(),
            json!({ "schema": schema, "components": { "schemas": components } }),
        );
        for (path, document) in
            [("pet.json", pet), ("cat.json", extend_pet("lives")), ("dog.json", extend_pet("barks"))]
        {
            documents.add(&Url::parse(&format!("http://h/{path}")).unwrap(), Ok(document));
        }
        documents
    };
    let check = |documents: DocumentSet, cases: &[(Value, bool)]| {
        let root = documents.root().unwrap();
        let mut translator = SchemaTranslator::new(&documents, SchemaDialect::OpenApi30, 1);
        let node = NodeRef { value: &root.value["schema"], ..root };
        let translated = translator.translate(node, Direction::Request, &mut Vec::new());
        let listed = translator.assemble(&translated, Direction::Request).listed;
        let validator = jsonschema::validator_for(&listed).unwrap();
        for (value, expected) in cases {
            assert_eq!(validator.is_valid(value), *expected, "{value} in {listed}");
        }
    };
    let cases = [
        (json!({ "kind": "cat", "lives": 9 }), true),
        (json!({ "kind": "cat" }), false),
        (json!({ "kind": "Dog" }), false),
        (json!({ "kind": "Dog", "barks": true }), true),
        (json!({ "kind": "bird" }), true),
    ];
    check(documents(reference("Pet"), json!({ "cat": "cat.json" })), &cases);
    let files = json!([{ "$ref": "cat.json" }, { "$ref": "dog.json" }]);
    let mapping = json!({ "cat": "cat.json", "lost": "#/components/schemas/None" });
    let union = json!({ "oneOf": files, "discriminator": { "propertyName": "kind", "mapping": mapping } });
    let cases = [
        (json!({ "kind": "cat", "lives": 9 }), true),
        (json!({ "kind": "dog", "barks": true }), true),
        (json!({ "kind": "dog", "lives": 9 }), false),
    ];
    check(documents(union, json!({})), &cases);
}

/// The variant for other values rejected everything but objects.
#[test]
fn a_base_with_variants_may_be_null() {
    for kind in [json!({ "type": "string" }), json!({ "type": "string", "enum": ["Cat"] })] {
        let definitions = json!({
            "Pet": { "type": ["object", "null"], "properties": { "kind": kind }, "required": ["kind"],
                "discriminator": { "propertyName": "kind" } },
            "Cat": { "allOf": [reference("Pet"), object(json!({ "lives": { "type": "integer" } }), &["lives"])] },
        });
        let cases = [
            (json!({ "pet": null }), true),
            (json!({ "pet": { "kind": "Cat", "lives": 9 } }), true),
            (json!({ "pet": { "kind": "Cat" } }), false),
        ];
        check_values(SchemaDialect::JsonSchema, object(json!({ "pet": reference("Pet") }), &[]), definitions, &cases);
    }
}

#[test]
fn schemas_that_extend_one_with_a_discriminator_are_its_variants() {
    let definitions = |discriminator: Value| {
        json!({
            "Pet": { "type": "object", "description": "A pet.", "discriminator": discriminator,
                "properties": { "kind": { "type": "string" }, "friend": reference("Pet") }, "required": ["kind"] },
            "PetAlias": reference("Pet"),
            "LionAlias": reference("Lion"),
            "Cat": { "allOf": [reference("Pet"), object(json!({ "lives": { "type": "integer" } }), &["lives"])] },
            "Lion": { "allOf": [reference("Cat"), object(json!({ "mane": { "type": "boolean" } }), &["mane"])] },
            "Dog": { "allOf": [reference("PetAlias"), { "properties": { "barks": { "type": "boolean" } } }] },
        })
    };
    let cases = [
        (json!({ "kind": "Cat", "lives": 9 }), true),
        (json!({ "kind": "Cat" }), false),
        (json!({ "kind": "Lion", "lives": 9, "mane": true }), true),
        (json!({ "kind": "Lion", "lives": 9 }), false),
        (json!({ "kind": "Dog", "barks": true, "friend": { "kind": "Cat", "lives": 1 } }), true),
        (json!({ "kind": "Dog", "friend": { "kind": "Cat" } }), false),
        // The document does not know all values.
        (json!({ "kind": "bird" }), true),
        (json!({ "lives": 9 }), false),
    ];
    let wrapped = json!({ "allOf": [reference("Pet")], "description": "The pet." });
    for schema in [reference("Pet"), reference("PetAlias"), wrapped] {
        for discriminator in [json!("kind"), json!({ "propertyName": "kind" })] {
            let listed = check_values(SchemaDialect::OpenApi30, schema.clone(), definitions(discriminator), &cases);
            assert!(listed.to_string().contains(r#""const":"Lion""#), "{listed}");
        }
    }
    // A variant alone is not restricted.
    let cases = [(json!({ "kind": "tom", "lives": 9 }), true), (json!({ "kind": "tom" }), false)];
    check_values(SchemaDialect::OpenApi30, reference("Cat"), definitions(json!("kind")), &cases);
}

/// Generators write both: the base lists its variants, and each of them extends the base.
#[test]
fn a_base_that_lists_the_schemas_that_extend_it_is_not_circular() {
    let definitions = json!({
        "Pet": { "type": "object", "properties": { "kind": { "type": "string" }, "name": { "type": "string" } },
            "required": ["kind", "name"], "oneOf": [reference("Cat"), reference("Dog")],
            "discriminator": { "propertyName": "kind", "mapping": { "cat": "Cat", "dog": "Dog" } } },
        "Cat": { "allOf": [reference("Pet"), object(json!({ "lives": { "type": "integer" } }), &["lives"])] },
        "Dog": { "allOf": [reference("Pet"), object(json!({ "barks": { "type": "boolean" } }), &["barks"])] },
    });
    let cases = [
        (json!({ "kind": "cat", "name": "Tom", "lives": 9 }), true),
        (json!({ "kind": "cat", "name": "Tom" }), false),
        (json!({ "kind": "cat", "lives": 9 }), false),
        (json!({ "kind": "dog", "name": "Rex", "lives": 9 }), false),
    ];
    check_values(SchemaDialect::OpenApi30, reference("Pet"), definitions.clone(), &cases);
    let cases = [(json!({ "kind": "cat", "name": "Tom", "lives": 9 }), true), (json!({ "kind": "cat" }), false)];
    check_values(SchemaDialect::OpenApi30, reference("Cat"), definitions, &cases);
}

/// A common base of a whole API, and variants that make a schema too large.
#[test]
fn too_many_variants_are_left_out() {
    let text = "x".repeat(140);
    let large: serde_json::Map<String, Value> =
        (0..60).map(|n| (format!("field_{n}"), json!({ "type": "string", "description": text }))).collect();
    for (count, fields) in [(200, serde_json::Map::new()), (30, large)] {
        let mut definitions = json!({ "Base": { "type": "object", "properties": { "kind": { "type": "string" } },
            "discriminator": { "propertyName": "kind" } } });
        for number in 0..count {
            definitions[format!("D{number}")] = json!({ "allOf": [reference("Base"), { "properties": fields }] });
        }
        let root = json!({ "schema": object(json!({ "it": reference("Base") }), &["it"]), "components": { "schemas": definitions } });
        let documents = DocumentSet::new(Url::parse("http://h/").unwrap(), root);
        let root = documents.root().unwrap();
        let mut translator = SchemaTranslator::new(&documents, SchemaDialect::OpenApi30, 1);
        let node = NodeRef { value: &root.value["schema"], ..root };
        let translated = translator.translate(node, Direction::Request, &mut Vec::new());
        let AssembledSchema { listed, full } = translator.assemble(&translated, Direction::Request);
        assert_eq!(full, None);
        assert_eq!(
            listed["properties"]["it"],
            json!({ "type": "object", "properties": { "kind": { "type": "string" } } })
        );
    }
}

#[test]
fn schemas_that_all_extend_one_another_end() {
    let discriminator = json!({ "propertyName": "kind" });
    let dense: serde_json::Map<String, Value> = (0..40)
        .map(|n| {
            let others: Vec<Value> = (0..40).filter(|other| *other != n).map(|n| reference(&format!("D{n}"))).collect();
            (format!("D{n}"), json!({ "allOf": others, "discriminator": discriminator }))
        })
        .collect();
    let chain: serde_json::Map<String, Value> = (0..200)
        .map(|n| {
            let base = if n == 0 { json!({}) } else { reference(&format!("D{}", n - 1)) };
            (format!("D{n}"), json!({ "allOf": [base], "discriminator": discriminator }))
        })
        .collect();
    for definitions in [dense, chain] {
        let variants: Vec<Value> = definitions.keys().map(|name| reference(name)).collect();
        let schema = json!({ "type": "object", "properties": { "a": { "oneOf": variants }, "b": reference("D1") } });
        let (listed, _) = translate_request(SchemaDialect::OpenApi30, schema, definitions.into());
        assert!(listed.to_string().len() <= 128 * 1024);
    }
}

/// Each value that a subtype inherited with the property selected it.
#[test]
fn a_listed_value_that_nothing_assigns_to_a_subtype_selects_none() {
    let definitions = |card: Value| {
        let discriminator = json!({ "propertyName": "type", "mapping": { "card": "Card" } });
        json!({
            "Payment": { "type": "object", "discriminator": discriminator, "required": ["type"],
                "properties": { "type": { "type": "string", "enum": ["card", "cash", "voucher"] } } },
            "Card": { "allOf": [reference("Payment"), object(card, &["number"])] },
        })
    };
    let number = json!({ "type": "string" });
    let cases = [
        (json!({ "type": "card", "number": "1" }), true),
        (json!({ "type": "card" }), false),
        (json!({ "type": "cash" }), true),
        (json!({ "type": "voucher", "number": "1" }), true),
        (json!({ "type": "cheque" }), false),
    ];
    check_values(SchemaDialect::OpenApi30, reference("Payment"), definitions(json!({ "number": number })), &cases);
    // Values that the subtype lists itself select it.
    let kind = json!({ "type": "string", "enum": ["card", "voucher"] });
    let cases =
        [(json!({ "type": "voucher", "number": "1" }), true), (json!({ "type": "voucher" }), false), cases[2].clone()];
    let own = definitions(json!({ "number": number, "type": kind }));
    check_values(SchemaDialect::OpenApi30, reference("Payment"), own, &cases);
}

/// A mapping to the base, or to a schema that is no member of the union, was taken for one to a missing schema.
#[test]
fn a_mapping_to_a_schema_outside_the_union_selects_no_variant() {
    let definitions = json!({
        "Pet": { "type": "object", "properties": { "kind": { "type": "string" } }, "required": ["kind"],
            "discriminator": { "propertyName": "kind", "mapping": { "pet": "Pet", "cat": "Cat" } } },
        "Cat": { "allOf": [reference("Pet"), object(json!({ "lives": { "type": "integer" } }), &["lives"])] },
        "Dog": { "allOf": [reference("Pet"), object(json!({ "barks": { "type": "boolean" } }), &["barks"])] },
        "Fish": { "allOf": [reference("Pet"), object(json!({ "fins": { "type": "integer" } }), &["fins"])] },
    });
    let cases = [
        (json!({ "kind": "pet" }), true),
        (json!({ "kind": "cat" }), false),
        (json!({ "kind": "Dog" }), false),
        (json!({ "kind": "Dog", "barks": true }), true),
    ];
    check_values(SchemaDialect::OpenApi30, reference("Pet"), definitions.clone(), &cases);
    let cases = [
        (json!({ "kind": "Dog", "barks": true }), true),
        (json!({ "kind": "Fish", "fins": 2 }), true),
        (json!({ "kind": "cat", "fins": 2 }), false),
        (json!({ "kind": "pet", "fins": 2 }), false),
    ];
    let schema = one_of(&["Dog", "Fish"], definitions["Pet"]["discriminator"].clone());
    check_values(SchemaDialect::OpenApi30, schema, definitions, &cases);
}

#[test]
fn a_subtype_that_repeats_the_discriminator_is_a_variant() {
    let definitions = json!({
        "Pet": { "type": "object", "properties": { "kind": { "type": "string" } }, "required": ["kind"],
            "discriminator": { "propertyName": "kind", "mapping": { "cat": "Cat", "lion": "Lion" } } },
        "Cat": { "allOf": [reference("Pet"), object(json!({ "lives": { "type": "integer" } }), &["lives"])],
            "discriminator": { "propertyName": "kind", "mapping": { "lion": "Lion" } } },
        "Lion": { "allOf": [reference("Cat"), object(json!({ "mane": { "type": "boolean" } }), &["mane"])] },
    });
    let cases = [
        (json!({ "kind": "cat", "lives": 9 }), true),
        (json!({ "kind": "cat" }), false),
        (json!({ "kind": "lion", "lives": 9, "mane": true }), true),
        (json!({ "kind": "lion", "lives": 9 }), false),
        (json!({ "kind": "bird" }), true),
    ];
    let listed = check_values(SchemaDialect::OpenApi30, reference("Pet"), definitions, &cases);
    assert!(listed.to_string().contains(r#""const":"cat""#), "{listed}");
}

#[test]
fn values_of_a_discriminator_have_the_type_that_all_declarations_allow() {
    let definitions = json!({
        "Pet": object(json!({ "kind": { "type": ["string", "integer"] } }), &["kind"]),
        "Cat": { "allOf": [reference("Pet"), object(json!({ "kind": { "type": "number" } }), &[])] },
        "Dog": { "allOf": [reference("Pet"), object(json!({ "kind": { "type": "string" } }), &[])] },
    });
    let schema = one_of(&["Cat", "Dog"], json!({ "propertyName": "kind", "mapping": { "1": "Cat", "2": "Dog" } }));
    let (listed, faults) = translate_request(SchemaDialect::JsonSchema, schema, definitions);
    assert_eq!(faults, [""; 0]);
    let kinds: Vec<&Value> = (0..2).map(|index| &listed["anyOf"][index]["properties"]["kind"]).collect();
    assert_eq!(kinds, [&json!({ "const": 1 }), &json!({ "const": "2" })]);
}

/// Documents whose mapping, variants and listed values multiply.
#[test]
fn assigning_values_to_variants_is_bounded() {
    let work = |schema: Value, definitions: Value| {
        let root = json!({ "schema": schema, "components": { "schemas": definitions } });
        let documents = DocumentSet::new(Url::parse("http://h/").unwrap(), root);
        let root = documents.root().unwrap();
        let mut translator = SchemaTranslator::new(&documents, SchemaDialect::OpenApi30, 1);
        let node = NodeRef { value: &root.value["schema"], ..root };
        let translated = translator.translate(node, Direction::Request, &mut Vec::new());
        translator.assemble(&translated, Direction::Request);
        (translated.value, translator.work_done)
    };
    let mapping = |target: &str| -> serde_json::Map<String, Value> {
        (0..1_000).map(|n| (format!("{n:0100}"), target.into())).collect()
    };
    let definitions = json!({ "A": object(json!({ "kind": { "type": "string" } }), &["kind"]) });
    let mapped = |target| one_of(&["A"; 100], json!({ "propertyName": "kind", "mapping": mapping(target) }));
    // Each variant is selected by all entries: the product is charged.
    let (_, done) = work(mapped("A"), definitions.clone());
    assert!(done > 100 * 1_000, "{done}");
    // Too many missing schemas to mean a certain variant.
    let (translated, done) = work(mapped("None"), definitions);
    assert_eq!(translated["anyOf"][0], reference_to_definition("A"));
    assert!(done < 100 * 1_000, "{done}");
    // Values that many subtypes inherit.
    let values: Vec<String> = (0..20_000).map(|n| format!("value {n}")).collect();
    let mut definitions = json!({ "Base": { "type": "object", "discriminator": "kind",
        "properties": { "kind": { "type": "string", "enum": values } } } });
    for number in 0..30 {
        definitions[format!("value {number}")] = json!({ "allOf": [reference("Base")] });
    }
    work(reference("Base"), definitions);
}

fn reference_to_definition(name: &str) -> Value {
    json!({ "$ref": format!("#/$defs/{name}") })
}
