//! The console in a real browser: live updates between two windows, layout and accessibility of every page, and escaping of
//! text from sources. The browser scripts are in `fixtures/browser`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use toolcrib_testkit::programs;

use crate::support::test_server::{ServeProcess, TestWorkspace};

/// Screenshots for the documentation: name of the picture and name of the file in `docs/images`.
const DOCUMENTED_SCREENSHOTS: [(&str, &str); 4] = [
    ("first/overview-light-wide", "console-overview"),
    ("first/overview-dark-wide", "console-overview-dark"),
    ("first/tool-light-wide", "console-tool"),
    ("first/tools-light-narrow", "console-phone"),
];
/// Tools of the source whose list is too long for a preview to show without scrolling.
const ARCHIVE_TOOLS: usize = 60;

#[test]
fn changes_in_one_window_appear_live_in_another() {
    let Some(everything) = programs::everything_server() else {
        return programs::skip("console", "no server-everything");
    };
    let workspace = TestWorkspace::new(&json!({ "core": { "builtin": "all" } }), &json!({}));
    let (program, arguments) = everything;
    // Time is the subject: of a server that is ready at once, the pages may never show that it is being discovered.
    let script = workspace.path("start.sh");
    let start = format!("sleep 3; exec {} {} stdio", program.display(), arguments.join(" "));
    fs::write(&script, start).unwrap();
    let command = format!("sh {}", script.display());
    run_browser_script("tour", &workspace.serve(), &[("COMMAND", &command)]);
}

#[test]
fn every_page_is_accessible() {
    let workspace = TestWorkspace::new(&json!({}), &json!({}));
    let shop = workspace.start_listening(&["demo", "--api"]);
    let sources = sample_sources(&workspace, &shop);
    workspace.configure(&sources, &json!({}));
    let path = format!("{}:{}", workspace.path("bin").display(), std::env::var("PATH").unwrap());
    let server = workspace.start_listening_with(&["serve", "--listen", "127.0.0.1:0"], &[("PATH", &path)]);
    let pictures = Path::new(env!("CARGO_TARGET_TMPDIR")).join("console");
    let tickets = workspace.path("tickets.json");
    let names = sources.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(",");
    let variables =
        [("PICTURES", pictures.to_str().unwrap()), ("TICKETS", tickets.to_str().unwrap()), ("SOURCES", &names)];
    run_browser_script("looks", &server, &variables);
    update_documented_pictures(&pictures, &DOCUMENTED_SCREENSHOTS);
}

#[test]
fn access_is_managed_with_previews_by_administrators_only() {
    let workspace = TestWorkspace::new(&json!({}), &json!({}));
    let server = json!({ "command": env!("CARGO_BIN_EXE_toolcrib"), "args": ["__demo-server"] });
    let tools = (0..ARCHIVE_TOOLS)
        .map(|shelf| json!({ "name": format!("shelf_{shelf}"), "inputSchema": { "type": "object" } }));
    fs::write(workspace.path("archive.json"), Value::from_iter(tools).to_string()).unwrap();
    let archive = programs::scripted_source(&["--tools-file", workspace.path("archive.json").to_str().unwrap()]);
    let config = json!({
        "sources": { "library": server, "archive": archive, "core": { "builtin": "all" } },
        "groups": { "fixed": { "title": "Of the file", "select": [{ "source": "core" }], "tools": ["library__nothing"] } },
    });
    fs::write(workspace.path("toolcrib.json"), config.to_string()).unwrap();
    workspace.discover();
    let pictures = Path::new(env!("CARGO_TARGET_TMPDIR")).join("console-access");
    // With a relative path of the file, so that screenshots show nothing of this machine.
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolcrib"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--json", "--config", "toolcrib.json", "--data", "data"]);
    workspace.isolate(&mut command);
    run_browser_script("access", &workspace.start(command), &[("PICTURES", pictures.to_str().unwrap())]);
    update_documented_pictures(&pictures, &[("access-light-wide", "console-access")]);
}

#[test]
fn text_from_a_source_is_never_rendered_as_markup() {
    let Some(node) = programs::node() else { return programs::skip("console", "no Node.js") };
    let title = "mark <img src=x onerror=window.pwned=1>";
    let hostile =
        |way: &str| json!({ "command": node, "args": [browser_script("hostile_server"), way], "title": title });
    let sources = json!({ "hostile": hostile("steady"), "failing": hostile("fails"), "changing": hostile("changes") });
    let workspace = TestWorkspace::new(&sources, &json!({}));
    run_browser_script("markup", &workspace.serve(), &[]);
}

/// Sources with generic names, so that screenshots show nothing of this machine.
fn sample_sources(workspace: &TestWorkspace, shop: &ServeProcess) -> Value {
    let write = |name: &str, command: &str| {
        let path = workspace.path("bin").join(name);
        fs::create_dir_all(workspace.path("bin")).unwrap();
        fs::write(&path, format!("#!/bin/sh\nexec {command}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    write("library-server", &format!("{} __demo-server", env!("CARGO_BIN_EXE_toolcrib")));
    // A server whose one tool changes during the test.
    let (tickets, list) = (programs::scripted_server(), workspace.path("tickets.json"));
    fs::write(&list, "[]").unwrap();
    write("tickets-server", &format!("{} --tools-file {}", tickets.display(), list.display()));
    let mut sources = json!({
        "tickets": { "command": "tickets-server", "title": "Help desk" },
        "library": { "command": "library-server", "title": "City library" },
        "shop": { "openapi": format!("{}/openapi.json", shop.url), "title": "Corner shop" },
        "docs": { "url": "http://127.0.0.1:9/mcp", "headers": { "Authorization": "Bearer ${env:DOCS_TOKEN:-none}" } },
        "core": { "builtin": "all" },
    });
    if let Some((node, arguments)) = programs::memory_server() {
        write("memory-server", &format!("{} {}", node.display(), arguments.join(" ")));
        sources["memory"] = json!({ "command": "memory-server" });
    }
    sources
}

/// Copies screenshots to the documentation, if `TOOLCRIB_UPDATE_PICTURES` is set and there was a browser to take them.
fn update_documented_pictures(pictures: &Path, screenshots: &[(&str, &str)]) {
    if std::env::var_os("TOOLCRIB_UPDATE_PICTURES").is_none() || !pictures.exists() {
        return;
    }
    let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/images");
    fs::create_dir_all(&images).unwrap();
    for (picture, name) in screenshots {
        fs::copy(pictures.join(format!("{picture}.png")), images.join(format!("{name}.png"))).unwrap();
    }
}

/// Runs a browser script against the server; `more` are further environment variables.
#[track_caller]
fn run_browser_script(story: &str, server: &ServeProcess, more: &[(&str, &str)]) {
    let (Some(node), Some(modules), Some(chromium)) =
        (programs::node(), programs::node_modules(), programs::chromium())
    else {
        return programs::skip("console", "no browser, or nothing to drive it with");
    };
    let mut command = Command::new(node);
    command.arg(browser_script(story)).envs(more.iter().copied());
    command.env("BASE", &server.url).env("LINK", server.console_url());
    command.env("NODE_MODULES", modules).env("CHROMIUM", chromium);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{story}:\n{}", String::from_utf8_lossy(&output.stderr));
}

fn browser_script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../fixtures/browser/{name}.mjs"))
}
