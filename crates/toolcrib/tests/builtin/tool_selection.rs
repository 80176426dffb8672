use super::*;

#[test]
fn all_selects_only_read_only_tools() {
    let tools = build_tools(&["all"]).unwrap();
    let names: Vec<_> = tools.iter().map(|(definition, _)| definition.name.as_str()).collect();
    assert_eq!(names, builtin::READ_ONLY_TOOLS);
    for (definition, _) in &tools {
        assert_eq!(definition.verdict, Verdict::Allow, "{}", definition.name);
        assert_eq!(definition.annotations["readOnlyHint"], true, "{}", definition.name);
    }
}

#[test]
fn mutating_tools_must_be_named_and_ask_for_consent() {
    for name in builtin::MUTATING_TOOLS {
        let tools = build_tools(&["all", name, name]).unwrap();
        let definition = &tools.iter().find(|(definition, _)| definition.name == name).unwrap().0;
        assert_eq!(tools.len(), builtin::READ_ONLY_TOOLS.len() + 1);
        assert_eq!(definition.verdict, Verdict::Ask);
        assert_eq!(definition.annotations["readOnlyHint"], false);
    }
}

#[test]
fn every_tool_has_a_description_and_a_strict_schema() {
    let names: Vec<_> = builtin::tool_names().collect();
    for (definition, _) in build_tools(&names).unwrap() {
        assert_eq!(definition.input_schema["additionalProperties"], false, "{}", definition.name);
        assert!((80..700).contains(&definition.description.len()), "{}", definition.name);
        assert!(definition.title.is_some() && !definition.internal);
    }
}

#[test]
fn an_unknown_name_is_a_config_error_with_the_nearest() {
    for (name, message) in [
        ("file_raed", "no built-in tool named `file_raed`; did you mean `file_read`?"),
        ("Bash", "no built-in tool named `Bash`; did you mean `bash`?"),
    ] {
        let error = build_tools(&[name]).map(drop).unwrap_err();
        assert_eq!((error.code, error.message.as_str()), (Code::ConfigInvalid, message));
    }
    assert!(build_tools(&["zzz"]).map(drop).unwrap_err().message.contains("there are `all`, `calculate`"));
    assert!(build_tools(&[]).unwrap().is_empty());
}

#[test]
fn relative_roots_are_a_config_error() {
    let config = BuiltinSource { tools: vec!["all".into()], roots: vec!["here".into()], allow_private: false };
    assert_eq!(builtin::build_tools(&config, &test_context()).map(drop).unwrap_err().code, Code::ConfigInvalid);
}

#[test]
fn a_definition_rejects_invalid_names_and_schemas() {
    let schema = || json!({ "type": "object" });
    for name in ["x", "current_time", "a1_b2"] {
        assert_eq!(BuiltinDefinition::new(name, "", schema()).unwrap().name, name);
    }
    for name in ["", "_x", "x_", "a__b", "A", "a-b", "ü", "call_tool", &"x".repeat(65)] {
        assert_eq!(BuiltinDefinition::new(name, "", schema()).unwrap_err().code, Code::ConfigInvalid, "{name}");
    }
    assert_eq!(BuiltinDefinition::new("x", "", json!([])).unwrap_err().code, Code::ConfigInvalid);
}

#[tokio::test]
async fn no_tool_panics_on_invalid_arguments() {
    let tools = build_tools(&builtin::tool_names().collect::<Vec<_>>()).unwrap();
    for (definition, handler) in &tools {
        for input in [json!(null), json!([]), json!("x"), json!({ "unknown": 1 }), json!({ "path": 7 })] {
            let error = handler(input.clone()).await.unwrap_err();
            assert_eq!(error.code, Code::ToolInvalidInput, "{} {input}", definition.name);
        }
    }
}
