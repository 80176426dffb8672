//! Secrets in every setting of a source that accepts one, through every command, route and page at three log levels: none is
//! disclosed in any encoding. The servers of this test repeat their secrets in errors, on stderr, in their descriptions and
//! when they crash.

mod canaries;
mod operations;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use serde_json::{Value, json};
use toolcrib_testkit::programs;

use canaries::{Canaries, Canary, canary_core, canary_sources, find_canaries};
use operations::{CollectedOutputs, RepeatingServer, SecretsRun, find_python, list_files, read_store};

use crate::support::test_server::TestWorkspace;

const LOG_LEVELS: [&[&str]; 3] = [&[], &["-v"], &["-vvv"]];

#[test]
fn no_secret_of_a_source_is_disclosed() {
    let Some(python) = find_python() else { return programs::skip("secrets", "no Python") };
    let workspace = TestWorkspace::new(&json!({}), &json!({}));
    let collected = workspace.path("traces");
    // `data` is searched for secrets; files that contain them are beside it.
    let beside = workspace.path("beside");
    fs::create_dir(&beside).unwrap();
    let mut secrets = Canaries { directory: &beside, all: Vec::new(), variables: Vec::new() };
    let granted = secrets.value("*", false);
    secrets.all.clear();
    let repeats = RepeatingServer::start(&python, &collected, &granted.replace("c01", "c99").replace("01k", "99k"));
    let sources = canary_sources(&mut secrets, &python, repeats.port);
    let added = secrets.literal("*");
    let proxy = secrets.value("http://me:*@127.0.0.1:9", false);
    let Canaries { mut all, mut variables, .. } = secrets;
    all.push(Canary { number: 99, value: canary_core(99), is_literal: false });
    assert!(all.len() >= 47, "{} secrets", all.len());
    workspace.configure(&sources, &json!({}));
    let parameter = |name: &str| json!({ "name": name, "in": "query", "schema": { "type": "integer" } });
    let parameters = ["status", "item", "how"].map(parameter);
    let operation =
        json!({ "operationId": "ask", "parameters": parameters, "responses": { "200": { "description": "done" } } });
    let document = json!({ "openapi": "3.1.0", "info": { "title": "R", "version": "1" }, "paths": { "/ask": { "get": operation } } });
    fs::write(workspace.path("api.json"), document.to_string()).unwrap();
    variables.extend([
        ("https_proxy".to_owned(), proxy),
        ("no_proxy".to_owned(), "127.0.0.1".to_owned()),
        ("OTEL_EXPORTER_OTLP_ENDPOINT".to_owned(), format!("http://127.0.0.1:{}", repeats.port)),
    ]);

    // Toolcrib makes a log that others may read private again.
    fs::create_dir_all(workspace.path("data/logs")).unwrap();
    fs::set_permissions(workspace.path("data"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(workspace.path("data/logs"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(workspace.path("data/logs/repeats.log"), "").unwrap();
    fs::set_permissions(workspace.path("data/logs/repeats.log"), fs::Permissions::from_mode(0o644)).unwrap();

    let mut run = SecretsRun { workspace: &workspace, variables, level: &[], outputs: CollectedOutputs::default() };
    for level in LOG_LEVELS {
        run.level = level;
        run.run_server(&added);
    }
    let CollectedOutputs { texts, operations } = run.outputs;
    assert!(operations >= 300, "{operations} operations");
    let mut found = Vec::new();
    for (name, bytes) in &texts {
        find_canaries(&all, name, bytes, &mut found);
    }
    // The servers were contacted and did repeat their secrets.
    let was_printed = |expected: &str| texts.iter().any(|(_, bytes)| String::from_utf8_lossy(bytes).contains(expected));
    for expected in ["failed: ***", "refused: ***", "fatal: ***", "got ***", "Works with ***"] {
        assert!(was_printed(expected), "`{expected}` was never printed");
    }

    let (others, definitions) = read_store(&python, &workspace.path("data"));
    find_canaries(&all, "the store", &others, &mut found);
    let (literals, references): (Vec<Canary>, Vec<Canary>) = all.into_iter().partition(|canary| canary.is_literal);
    find_canaries(&references, "the definitions", &definitions, &mut found);
    let mut below = Vec::new();
    list_files(&workspace.path("data"), &mut below);
    for path in below {
        let bytes = fs::read(&path).unwrap();
        find_canaries(&references, &path.display().to_string(), &bytes, &mut found);
        // Only the row of a source's definition may contain literal secrets.
        if !path.file_name().unwrap().to_string_lossy().starts_with("toolcrib.db") {
            find_canaries(&literals, &path.display().to_string(), &bytes, &mut found);
        }
    }
    let traces = fs::read(&collected).unwrap();
    assert!(!traces.is_empty(), "no traces were exported");
    find_canaries(&references, "the traces", &traces, &mut found);
    find_canaries(&literals, "the traces", &traces, &mut found);
    assert!(found.is_empty(), "{} times:\n{}", found.len(), found[..found.len().min(20)].join("\n\n"));

    let mode = |name: &str| fs::metadata(workspace.path(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("data/logs"), mode("data/logs/repeats.log"), mode("data/logs/broken.log")), (0o700, 0o600, 0o600));
}

#[test]
fn export_masks_literal_secrets() {
    let workspace = TestWorkspace::new(
        &json!({
            "one": { "command": "server", "args": ["--token", "abc=", "${env:BARE}"], "env": { "A": "literal-value" } },
            "two": { "url": "https://me:pw@h.example/mcp?key=abc&t=${env:T}", "auth": { "bearer": "${env:T}" } },
        }),
        &json!({}),
    );
    let run = |arguments: &[&str]| {
        let output = workspace.toolcrib(arguments).stdin(Stdio::null()).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, masked, hints) = run(&["export", "--json"]);
    assert_eq!(code, Some(0));
    let exported: Value = serde_json::from_str(&masked).unwrap();
    assert_eq!(exported["sources"]["one"]["args"], json!(["--token", "***", "${env:BARE}"]));
    assert_eq!(exported["sources"]["one"]["env"], json!({ "A": "***" }));
    assert_eq!(exported["sources"]["two"]["url"], "https://***@h.example/mcp?key=***&t=${env:T}");
    assert_eq!(exported["sources"]["two"]["auth"], json!({ "bearer": "${env:T}" }));
    assert!(hints.contains("`args[1]`, `env.A` of `one`") && hints.contains("`url` of `two`"), "{hints}");
    assert!(hints.contains("--secrets"), "{hints}");

    // A masked export is a valid configuration.
    let (_, yaml, _) = run(&["export"]);
    fs::write(workspace.path("toolcrib.json"), &masked).unwrap();
    assert_eq!(run(&["export"]).1, yaml);
    workspace.configure(&exported["sources"], &json!({}));
    assert!(!run(&["sources"]).1.contains("failed"));
}

#[test]
fn export_secrets_writes_literal_values() {
    let workspace =
        TestWorkspace::new(&json!({ "one": { "command": "server", "env": { "A": "literal-value" } } }), &json!({}));
    let output = workspace.toolcrib(&["export", "--secrets"]).stdin(Stdio::null()).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("literal-value"));
    assert!(String::from_utf8_lossy(&output.stderr).contains("keep the file safe"));
}

#[test]
fn the_console_login_link_is_not_printed_to_a_pipe() {
    let workspace = TestWorkspace::new(&json!({}), &json!({}));
    let mut command = workspace.toolcrib(&["serve", "--listen", "127.0.0.1:0"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let listening = lines.next().unwrap();
    let console = lines.next().unwrap();
    let hint = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok).next().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let url = listening.strip_prefix("listening on ").unwrap();
    assert_eq!(console, format!("console at {url}/"));
    assert!(hint.contains("admin.token") && !hint.contains("key="), "{hint}");
    assert_eq!(lines.next(), None);
}
