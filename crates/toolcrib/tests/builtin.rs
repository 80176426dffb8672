//! The built-in tools from outside: what they return, and what they reject.
#![cfg(unix)]

mod bash;
mod files;
#[cfg(target_os = "linux")]
mod race;
mod tool_selection;
mod url_fetch;

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use toolcrib::builtins::{self as builtin, BuiltinContext};
use toolcrib::guard::GuardExe;
use toolcrib::{BuiltinDefinition, BuiltinHandler, BuiltinOutput};
use toolcrib_core::policy::Verdict;
use toolcrib_core::source::BuiltinSource;
use toolcrib_core::{Code, Error, Timestamp};
use toolcrib_testkit::http_server::{HttpReply, LoopbackServer};
use toolcrib_testkit::observe::{is_running, read_lines, wait_until};

use crate::support::skip_time;

#[tokio::test]
async fn current_time_formats_the_time_of_the_context() {
    let tool = tool("current_time", None);
    for (input, time, weekday, offset) in [
        (json!({}), "2026-11-15T00:00:00+00:00", "Sunday", "+00:00"),
        (json!({ "timezone": "utc" }), "2026-11-15T00:00:00+00:00", "Sunday", "+00:00"),
        (json!({ "timezone": "Europe/Berlin" }), "2026-11-15T01:00:00+01:00", "Sunday", "+01:00"),
        (json!({ "timezone": "America/New_York" }), "2026-11-14T19:00:00-05:00", "Saturday", "-05:00"),
    ] {
        let output = tool(input).await.unwrap().structured.unwrap();
        assert_eq!([&output["time"], &output["weekday"], &output["utc_offset"]], [time, weekday, offset]);
        assert_eq!(output["unix"], 1_794_700_800);
    }
    for timezone in ["Mars/Olympus", "../../etc/passwd", "/etc/localtime", ""] {
        let error = tool(json!({ "timezone": timezone })).await.unwrap_err();
        assert!(error.message.contains("give an IANA name"), "{error}");
    }
}

#[tokio::test]
async fn calculate_follows_the_rules_of_arithmetic() {
    let tool = tool("calculate", None);
    for (expression, result) in [
        ("1 + 2 * 3", json!(7)),
        ("(1+2)*3", json!(9)),
        ("2^3^2", json!(512)),
        ("-2^2", json!(-4)),
        ("(-2)^2", json!(4)),
        ("2^-1", json!(0.5)),
        ("2**10", json!(1024)),
        ("--3", json!(3)),
        ("7 % 3", json!(1)),
        ("-7 % 3", json!(-1)),
        ("7.5 % 2", json!(1.5)),
        ("1/3", json!(0.333333333333333)),
        ("6/3", json!(2)),
        ("0.1 + 0.2", json!(0.3)),
        ("9007199254740993 + 2", json!(9_007_199_254_740_995_i64)),
        ("2^100", json!("1267650600228229401496703205376")),
        ("2^100 % 7", json!(2)),
        ("1e3 + .5", json!(1000.5)),
        ("10^300", json!(1e300)),
        ("sqrt(16) + abs(-3)", json!(7)),
        ("min(3, 1, 2) + max(4, 5)", json!(6)),
        ("round(2.5) + round(-2.5) + floor(1.9) + ceil(1.1)", json!(3)),
        ("round(1.23456, 2)", json!(1.23)),
        ("round(1234, -2)", json!(1200)),
        ("log(1000) + log2(8) + log10(10) + log(8, 2)", json!(10)),
        ("ln(e) + exp(0) + pow(2, 3)", json!(10)),
        ("sin(0) + cos(0) + tan(0)", json!(1)),
        ("2 × π ÷ 2 − pi", json!(0)),
        ("PI * 1000", json!(3141.59265358979)),
    ] {
        assert_eq!(
            tool(json!({ "expression": expression })).await.unwrap().structured.unwrap()["result"],
            result,
            "{expression}"
        );
    }
    let deep = format!("{}1{}", "(".repeat(400), ")".repeat(400));
    let minus = "-".repeat(900);
    for (expression, reason) in [
        ("1/0", "division by zero"),
        ("5 % 0", "division by zero"),
        ("0^-1", "division by zero: zero to a negative power"),
        ("10^400", "the result is too large"),
        ("1e999", "the result is too large"),
        ("sqrt(-1)", "the square root of a negative number is not real"),
        ("(-8)^(1/3)", "the result is not a real number"),
        ("ln(0)", "a logarithm needs a number above zero"),
        ("log(5, 1)", "division by zero"),
        ("1 +", "the expression ends too early"),
        ("", "the expression ends too early"),
        ("(1", "a `)` is missing at the end"),
        ("1)", "unexpected `)` at position 2"),
        ("2 3", "unexpected `3` at position 3"),
        ("2e", "unexpected `e` at position 2"),
        ("x", "`x` is unknown; there are the constants `pi` and `e`"),
        ("sqrt(1, 2)", "`sqrt` does not take 2 arguments"),
        (
            "import(1)",
            "no function named `import`; there are sqrt, abs, min, max, round, floor, ceil, sin, cos, tan, ln, log, log2, log10, exp, pow",
        ),
        ("1; rm -rf /", "unexpected `;` at position 2"),
        ("...", "`.` is not a number"),
        (&deep, "the expression is nested deeper than 50 levels"),
        (&minus, "the expression is nested deeper than 50 levels"),
        (&"1".repeat(2000), "the expression is longer than 1000 characters"),
    ] {
        let error = tool(json!({ "expression": expression })).await.unwrap_err();
        assert_eq!((error.code, error.message.as_str()), (Code::ToolInvalidInput, reason), "{expression}");
    }
}

/// Root directory with a few files, and a secret file outside of it.
struct TestRoot {
    _directory: TempDir,
    root: PathBuf,
}

impl TestRoot {
    fn new() -> TestRoot {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap().join("root");
        let test_root = TestRoot { root, _directory: directory };
        test_root.write("one.txt", b"eins\nuno\n");
        test_root.write("a/two.txt", b"zwei\n");
        test_root.write("a/b/three.rs", b"fn main() {}");
        std::fs::write(test_root.outside_path(), "secret").unwrap();
        test_root
    }

    fn outside_path(&self) -> PathBuf {
        self.root.with_file_name("outside.txt")
    }

    fn write(&self, path: &str, content: &[u8]) {
        let path = self.root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.root.join(path)).unwrap()
    }

    async fn call(&self, name: &str, input: Value) -> Result<BuiltinOutput, Error> {
        tool(name, Some(&self.root))(input).await
    }

    /// Text blocks of a successful call, joined with `|`.
    async fn call_text(&self, name: &str, input: Value) -> String {
        joined_text(&self.call(name, input).await.unwrap())
    }
}

fn joined_text(output: &BuiltinOutput) -> String {
    output.content.iter().map(|block| block["text"].as_str().unwrap()).collect::<Vec<_>>().join("|")
}

fn test_context() -> BuiltinContext {
    BuiltinContext { now: Arc::new(|| Timestamp(1_794_700_800_000)), guard: GuardExe::None }
}

fn build_tools(names: &[&str]) -> Result<Vec<(BuiltinDefinition, BuiltinHandler)>, Error> {
    let tools = names.iter().map(|name| (*name).to_owned()).collect();
    builtin::build_tools(&BuiltinSource { tools, ..BuiltinSource::default() }, &test_context())
}

fn tool(name: &str, root: Option<&Path>) -> BuiltinHandler {
    tool_with_roots(name, &root.map(Path::to_path_buf).into_iter().collect::<Vec<_>>())
}

fn tool_with_roots(name: &str, roots: &[PathBuf]) -> BuiltinHandler {
    let roots = roots.iter().map(|root| root.display().to_string()).collect();
    build_handler(&BuiltinSource { tools: vec![name.into()], roots, allow_private: false })
}

fn tool_allowing_private(name: &str) -> BuiltinHandler {
    build_handler(&BuiltinSource { tools: vec![name.into()], roots: Vec::new(), allow_private: true })
}

fn build_handler(config: &BuiltinSource) -> BuiltinHandler {
    builtin::build_tools(config, &test_context()).unwrap().remove(0).1
}
