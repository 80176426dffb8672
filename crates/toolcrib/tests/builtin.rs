//! The built-in tools, from outside: what they answer, and what they refuse.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "what the tests share is a test too")]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use toolcrib::builtin::{self, Answer, Definition, Handler, Host};
use toolcrib::guard::GuardExe;
use toolcrib_core::policy::Verdict;
use toolcrib_core::source::Builtin;
use toolcrib_core::{Code, Error, Timestamp};

mod standard {
    use super::*;

    #[test]
    fn all_changes_nothing() {
        let tools = tools(&["all"]).unwrap();
        let names: Vec<_> = tools.iter().map(|(definition, _)| definition.name.as_str()).collect();
        assert_eq!(names, builtin::SAFE);
        for (definition, _) in &tools {
            assert_eq!(definition.verdict, Verdict::Allow, "{}", definition.name);
            assert_eq!(definition.annotations["readOnlyHint"], true, "{}", definition.name);
        }
    }

    #[test]
    fn what_changes_things_is_named_and_asks() {
        for name in builtin::DANGEROUS {
            let tools = tools(&["all", name, name]).unwrap();
            let definition = &tools.iter().find(|(definition, _)| definition.name == name).unwrap().0;
            assert_eq!(tools.len(), builtin::SAFE.len() + 1);
            assert_eq!(definition.verdict, Verdict::Ask);
            assert_eq!(definition.annotations["readOnlyHint"], false);
        }
    }

    #[test]
    fn every_tool_is_described_and_tight() {
        let names: Vec<_> = builtin::names().collect();
        for (definition, _) in tools(&names).unwrap() {
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
            let error = tools(&[name]).map(drop).unwrap_err();
            assert_eq!((error.code, error.message.as_str()), (Code::ConfigInvalid, message));
        }
        assert!(tools(&["zzz"]).map(drop).unwrap_err().message.contains("there are `all`, `calculate`"));
        assert!(tools(&[]).unwrap().is_empty());
    }

    #[test]
    fn relative_roots_are_a_config_error() {
        let config = Builtin { tools: vec!["all".into()], roots: vec!["here".into()], allow_private: false };
        assert_eq!(builtin::standard(&config, &host()).map(drop).unwrap_err().code, Code::ConfigInvalid);
    }

    #[test]
    fn a_definition_keeps_the_rules_of_names() {
        let schema = || json!({ "type": "object" });
        for name in ["x", "current_time", "a1_b2"] {
            assert_eq!(Definition::new(name, "", schema()).unwrap().name, name);
        }
        for name in ["", "_x", "x_", "a__b", "A", "a-b", "ü", "call_tool", &"x".repeat(65)] {
            assert_eq!(Definition::new(name, "", schema()).unwrap_err().code, Code::ConfigInvalid, "{name}");
        }
        assert_eq!(Definition::new("x", "", json!([])).unwrap_err().code, Code::ConfigInvalid);
    }

    #[tokio::test]
    async fn no_tool_panics_on_nonsense() {
        let tools = tools(&builtin::names().collect::<Vec<_>>()).unwrap();
        for (definition, handler) in &tools {
            for input in [json!(null), json!([]), json!("x"), json!({ "unknown": 1 }), json!({ "path": 7 })] {
                let error = handler(input.clone()).await.unwrap_err();
                assert_eq!(error.code, Code::ToolInvalidInput, "{} {input}", definition.name);
            }
        }
    }
}

#[tokio::test]
async fn current_time_tells_the_time_it_is_given() {
    let tool = tool("current_time", None);
    for (input, time, weekday, offset) in [
        (json!({}), "2026-11-15T00:00:00+00:00", "Sunday", "+00:00"),
        (json!({ "timezone": "utc" }), "2026-11-15T00:00:00+00:00", "Sunday", "+00:00"),
        (json!({ "timezone": "Europe/Berlin" }), "2026-11-15T01:00:00+01:00", "Sunday", "+01:00"),
        (json!({ "timezone": "America/New_York" }), "2026-11-14T19:00:00-05:00", "Saturday", "-05:00"),
    ] {
        let told = tool(input).await.unwrap().structured.unwrap();
        assert_eq!([&told["time"], &told["weekday"], &told["utc_offset"]], [time, weekday, offset]);
        assert_eq!(told["unix"], 1_794_700_800);
    }
    for timezone in ["Mars/Olympus", "../../etc/passwd", "/etc/localtime", ""] {
        let error = tool(json!({ "timezone": timezone })).await.unwrap_err();
        assert!(error.message.contains("give an IANA name"), "{error}");
    }
}

#[tokio::test]
async fn calculate_follows_the_rules() {
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

mod url_fetch {
    use super::*;

    #[tokio::test]
    async fn what_is_not_public_is_refused() {
        let server = serve("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        let tool = tool("url_fetch", None);
        for url in [
            server.as_str(),
            "http://127.0.0.1",
            "http://[::1]",
            "http://[::ffff:127.0.0.1]/",
            "http://169.254.169.254/latest/meta-data/",
            "http://0x7f000001",
            "http://2130706433",
            "http://0177.0.0.1",
            "http://127.1",
            "http://0/",
            "http://localhost",
            "http://user@127.0.0.1",
            "http://example.com@127.0.0.1/",
            "http://１２７.0.0.1/",
        ] {
            let error = tool(json!({ "url": url })).await.unwrap_err();
            assert_eq!(error.code, Code::ToolInvalidInput, "{url}: {error}");
            assert!(error.message.contains("is not a public address; set `allow_private`"), "{url}: {error}");
        }
        for (url, reason) in [
            ("file:///etc/passwd", "`file` URLs are not fetched, only http and https"),
            ("ftp://example.com", "`ftp` URLs are not fetched, only http and https"),
            ("not a url", "`not a url` is not a URL: relative URL without a base"),
            ("http://", "`http://` is not a URL: empty host"),
        ] {
            assert_eq!(tool(json!({ "url": url })).await.unwrap_err().message, reason);
        }
    }

    #[tokio::test]
    async fn text_is_given_and_binary_described() {
        for (response, texts, is_error) in [
            (
                "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 9\r\n\r\n<p>hi</p>",
                ["HTTP 200 OK, text/html, 9 bytes", "<p>hi</p>"],
                false,
            ),
            (
                "HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\nno",
                ["HTTP 404 Not Found, no content type, 2 bytes", "no"],
                true,
            ),
            (
                "HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ncontent-length: 3\r\n\r\n\0PN",
                ["HTTP 200 OK, image/png, 3 bytes", "(binary content, not shown)"],
                false,
            ),
            (
                "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 4\r\n\r\na\0b\0",
                ["HTTP 200 OK, text/plain, 4 bytes", "(binary content, not shown)"],
                false,
            ),
        ] {
            let url = serve(response);
            let answer = tool_allowing_private("url_fetch")(json!({ "url": url })).await.unwrap();
            assert_eq!(answer.is_error, is_error);
            assert_eq!(answer.content[0]["text"], format!("{}, {url}", texts[0]));
            assert_eq!(answer.content[1]["text"], texts[1]);
        }
    }

    #[tokio::test]
    async fn an_endless_body_is_cut() {
        let body = "x".repeat(3 * 1024 * 1024);
        let url = serve(&format!("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n{body}"));
        let answer = tool_allowing_private("url_fetch")(json!({ "url": url, "max_bytes": 1000 })).await.unwrap();
        assert_eq!(answer.content[1]["text"].as_str().unwrap().len(), 1000);
        assert_eq!(answer.content[2]["text"], "(cut after 1000 bytes)");
    }

    #[tokio::test]
    async fn redirects_are_followed_a_few_times_and_checked() {
        let end = serve("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        let to =
            |target: &str| serve(&format!("HTTP/1.1 302 Found\r\nlocation: {target}\r\ncontent-length: 0\r\n\r\n"));
        let tool = tool_allowing_private("url_fetch");
        let answer = tool(json!({ "url": to(&end) })).await.unwrap();
        assert_eq!(answer.content[1]["text"], "ok");

        let error = tool(json!({ "url": to("file:///etc/passwd") })).await;
        assert!(error.is_err() || error.unwrap().is_error, "not followed");
        let error = tool(json!({ "url": to("/again") })).await.unwrap_err();
        assert_eq!(error.message, "more than 5 redirects");
    }

    #[tokio::test]
    async fn nobody_there_is_said_plainly() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let error =
            tool_allowing_private("url_fetch")(json!({ "url": format!("http://127.0.0.1:{port}") })).await.unwrap_err();
        assert_eq!((error.code, error.message.as_str()), (Code::ToolExecutionFailed, "cannot connect to `127.0.0.1`"));
    }

    /// Answers every connection with the same bytes.
    fn serve(response: &str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let response = response.to_owned();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let _ = stream.read(&mut [0; 4096]);
                // Whoever has read enough hangs up.
                let _ = stream.write_all(response.as_bytes());
            }
        });
        url
    }
}

mod files {
    use super::*;

    #[tokio::test]
    async fn nothing_outside_the_roots_is_touched() {
        let place = Place::new();
        symlink("/etc", place.root.join("etc")).unwrap();
        symlink("/etc/passwd", place.root.join("passwd")).unwrap();
        symlink("/nonexistent/file", place.root.join("dangling")).unwrap();
        let sibling = format!("{}-sibling", place.root.display());
        std::fs::create_dir(&sibling).unwrap();
        for path in [
            "/etc/passwd",
            "../outside.txt",
            "a/../../outside.txt",
            "etc/passwd",
            "passwd",
            "/",
            "..",
            "dangling",
            "a/../../../../../../../../etc/passwd",
            "/proc/self/environ",
            &sibling,
            "./etc/../../outside.txt",
            "etc/..",
        ] {
            for name in ["file_read", "file_list", "file_find", "file_search", "file_write", "file_edit"] {
                let input = match name {
                    "file_find" | "file_search" => json!({ "pattern": "x", "path": path }),
                    "file_write" => json!({ "path": path, "content": "x", "overwrite": true }),
                    "file_edit" => json!({ "path": path, "old": "secret", "new": "x" }),
                    _ => json!({ "path": path }),
                };
                let error = place.call(name, input).await.unwrap_err();
                let expected =
                    if path == "dangling" { "no such file" } else { "is outside the directories allowed here" };
                assert!(error.message.contains(expected), "{name} {path}: {error}");
            }
        }
        assert_eq!(std::fs::read_to_string(place.outside()).unwrap(), "secret");
        let leak = place.text("file_search", json!({ "pattern": "secret|root:" })).await;
        assert_eq!(leak, "(nothing found)");
    }

    #[tokio::test]
    async fn a_new_file_cannot_leave_through_a_linked_directory() {
        let place = Place::new();
        symlink(place.outside().parent().unwrap(), place.root.join("up")).unwrap();
        let error = place.call("file_write", json!({ "path": "up/new.txt", "content": "x" })).await.unwrap_err();
        assert!(error.message.contains("outside"), "{error}");
        assert!(!place.outside().with_file_name("new.txt").exists());
    }

    #[tokio::test]
    async fn without_roots_the_tools_say_what_to_set() {
        for name in ["file_read", "file_list", "file_find", "file_search", "file_write", "file_edit", "bash"] {
            let input = match name {
                "file_find" | "file_search" => json!({ "pattern": "x" }),
                "file_write" => json!({ "path": "x", "content": "" }),
                "file_edit" => json!({ "path": "x", "old": "a", "new": "" }),
                "bash" => json!({ "command": "true" }),
                _ => json!({ "path": "x" }),
            };
            let error = tool(name, None)(input).await.unwrap_err();
            assert_eq!(error.message, "no directory to work in; set `roots` on this source", "{name}");
        }
    }

    #[tokio::test]
    async fn a_second_root_is_reached_by_its_full_path() {
        let (place, other) = (Place::new(), Place::new());
        let roots = [place.root.clone(), other.root.clone()];
        let read = tool_in("file_read", &roots);
        let path = other.root.join("a/two.txt");
        assert_eq!(text(&read(json!({ "path": path })).await.unwrap()), "zwei\n");
    }

    #[tokio::test]
    async fn reading_gives_lines_and_says_where_to_go_on() {
        let place = Place::new();
        let lines: String = (1..=3000).map(|line| format!("line {line}\n")).collect();
        place.write("long.txt", lines.as_bytes());
        place.write("wide.txt", &vec![b'x'; 300 * 1024]);
        place.write("binary", b"a\0b");
        place.write("latin", b"gr\xfc\xdfe");
        place.write("empty", b"");
        for (input, expected) in [
            (json!({ "path": "a/two.txt" }), "zwei\n"),
            (json!({ "path": "./a/../one.txt" }), "eins\nuno\n"),
            (json!({ "path": "one.txt", "offset": 2 }), "uno\n"),
            (json!({ "path": "one.txt", "limit": 1 }), "eins\n|(lines 1 to 1; the file goes on, use offset 2)"),
            (json!({ "path": "one.txt", "offset": 9 }), "(the file has only 2 lines)"),
            (json!({ "path": "latin" }), "gr\u{fffd}\u{fffd}e"),
            (json!({ "path": "empty" }), ""),
            (json!({ "path": "long.txt", "offset": 2999, "limit": 5 }), "line 2999\nline 3000\n"),
            (json!({ "path": "long.txt", "offset": u64::MAX, "limit": 5 }), "(the file has only 3000 lines)"),
        ] {
            assert_eq!(place.text("file_read", input).await, expected);
        }
        let answer = place.text("file_read", json!({ "path": "long.txt" })).await;
        assert!(answer.ends_with("line 2000\n|(lines 1 to 2000; the file goes on, use offset 2001)"));
        let answer = place.text("file_read", json!({ "path": "wide.txt" })).await;
        assert!(answer.ends_with("…[line cut]\n") && answer.len() < 70_000);
        for (path, reason) in [
            ("binary", "`binary` is a binary file of 3 bytes; only text can be read"),
            ("a", "`a` is a directory; use `file_list`"),
            ("none.txt", "cannot open `none.txt`: there is no such file or directory"),
            ("a\0b", "a path has no NUL characters"),
        ] {
            assert_eq!(place.call("file_read", json!({ "path": path })).await.unwrap_err().message, reason);
        }
    }

    #[tokio::test]
    async fn a_huge_file_is_read_in_bounds_and_a_pipe_not_at_all() {
        let place = Place::new();
        std::fs::File::create(place.root.join("huge")).unwrap().set_len(1 << 40).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            place.root.join("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        let started = Instant::now();
        assert!(place.call("file_read", json!({ "path": "huge" })).await.unwrap_err().message.contains("binary"));
        assert_eq!(place.text("file_search", json!({ "pattern": "nowhere" })).await, "(nothing found)");
        let error = place.call("file_read", json!({ "path": "pipe" })).await.unwrap_err();
        assert_eq!(error.message, "`pipe` is not a regular file");
        assert!(started.elapsed() < Duration::from_secs(30));
    }

    #[tokio::test]
    async fn listing_is_in_order_and_as_deep_as_asked() {
        let place = Place::new();
        symlink("/etc", place.root.join("link")).unwrap();
        place.write(".git/config", b"x");
        for (input, expected) in [
            (json!({}), ".:\n.git/\na/\nlink\tlink\none.txt\t9"),
            (json!({ "path": "a" }), "a:\nb/\ntwo.txt\t5"),
            (json!({ "depth": 3 }), ".:\n.git/\na/\na/b/\na/b/three.rs\t12\na/two.txt\t5\nlink\tlink\none.txt\t9"),
        ] {
            assert_eq!(place.text("file_list", input).await, expected);
        }
        let error = place.call("file_list", json!({ "path": "one.txt" })).await.unwrap_err();
        assert_eq!(error.message, "`one.txt` is a file; use `file_read`");
        for number in 0..1100 {
            place.write(&format!("many/{number:04}"), b"");
        }
        let answer = place.text("file_list", json!({ "path": "many" })).await;
        assert!(answer.ends_with("0999\t0|(cut after 1000 entries; list a directory further down)"), "{answer}");
    }

    #[tokio::test]
    async fn finding_goes_by_names() {
        let place = Place::new();
        place.write("node_modules/x/two.txt", b"");
        for (input, expected) in [
            (json!({ "pattern": "*.txt" }), "a/two.txt\none.txt"),
            (json!({ "pattern": "*.txt", "path": "a" }), "a/two.txt"),
            (json!({ "pattern": "a/**/*.rs" }), "a/b/three.rs"),
            (json!({ "pattern": "b" }), "a/b/"),
            (json!({ "pattern": "*.none" }), "(nothing found)"),
        ] {
            assert_eq!(place.text("file_find", input).await, expected);
        }
        assert_eq!(place.call("file_find", json!({ "pattern": "[" })).await.unwrap_err().code, Code::ToolInvalidInput);
    }

    #[tokio::test]
    async fn searching_goes_by_lines() {
        let place = Place::new();
        place.write("binary", b"eins\0");
        place.write(".git/config", b"eins");
        place.write("long", "y".repeat(1000).as_bytes());
        for (input, expected) in [
            (json!({ "pattern": "eins|zwei" }), "a/two.txt:1: zwei\none.txt:1: eins"),
            (json!({ "pattern": "^UNO$" }), "(nothing found)"),
            (json!({ "pattern": "(?i)^UNO$" }), "one.txt:2: uno"),
            (json!({ "pattern": "fn", "glob": "*.rs" }), "a/b/three.rs:1: fn main() {}"),
            (json!({ "pattern": "uno", "path": "one.txt" }), "one.txt:2: uno"),
            (
                json!({ "pattern": "n", "max_results": 1 }),
                "a/b/three.rs:1: fn main() {}|(cut after 1 lines; use a narrower pattern or `glob`)",
            ),
            (json!({ "pattern": "(y+)+$" }), &format!("long:1: {}…", "y".repeat(300))),
        ] {
            assert_eq!(place.text("file_search", input).await, expected);
        }
        for pattern in ["(", "(?=x)", "a{100000}{100000}", "\\1"] {
            let error = place.call("file_search", json!({ "pattern": pattern })).await.unwrap_err();
            assert!(error.message.starts_with("`pattern` is not a regular expression: "), "{error}");
        }
    }

    #[tokio::test]
    async fn writing_makes_and_replaces() {
        let place = Place::new();
        let new = json!({ "path": "a/new.txt", "content": "x" });
        assert_eq!(place.text("file_write", new.clone()).await, "created `a/new.txt` (1 bytes)");
        assert_eq!(
            place.call("file_write", new).await.unwrap_err().message,
            "`a/new.txt` exists; set `overwrite`, or use `file_edit`"
        );
        let again = json!({ "path": "a/new.txt", "content": "yy", "overwrite": true });
        assert_eq!(place.text("file_write", again).await, "replaced `a/new.txt` (2 bytes)");
        assert_eq!(place.read("a/new.txt"), "yy");
        for (path, reason) in [
            ("none/new.txt", "cannot reach the directory of `none/new.txt`: there is no such file or directory"),
            ("a", "`a` exists and is not a regular file"),
        ] {
            let input = json!({ "path": path, "content": "", "overwrite": true });
            assert_eq!(place.call("file_write", input).await.unwrap_err().message, reason);
        }
        let large = json!({ "path": "large", "content": "x".repeat(1024 * 1024 + 1) });
        assert_eq!(place.call("file_write", large).await.unwrap_err().code, Code::ToolInvalidInput);
        assert_eq!(std::fs::read_dir(place.root.join("a")).unwrap().count(), 3, "no leftovers");
    }

    #[tokio::test]
    async fn editing_is_exact_and_keeps_permissions() {
        use std::os::unix::fs::PermissionsExt;

        let place = Place::new();
        place.write("x.sh", b"one two one");
        std::fs::set_permissions(place.root.join("x.sh"), PermissionsExt::from_mode(0o750)).unwrap();
        for (old, reason) in [
            ("three", "`old` does not stand in `x.sh`; read the file again"),
            ("", "`old` does not stand in `x.sh`; read the file again"),
            ("one", "`old` stands 2 times in `x.sh`; give more of its lines, or set `replace_all`"),
        ] {
            let input = json!({ "path": "x.sh", "old": old, "new": "y" });
            assert_eq!(place.call("file_edit", input).await.unwrap_err().message, reason);
        }
        place.text("file_edit", json!({ "path": "x.sh", "old": "two", "new": "2" })).await;
        assert_eq!(place.read("x.sh"), "one 2 one");
        place.text("file_edit", json!({ "path": "x.sh", "old": "one", "new": "1", "replace_all": true })).await;
        assert_eq!(place.read("x.sh"), "1 2 1");
        let mode = std::fs::metadata(place.root.join("x.sh")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o750);
    }
}

mod bash {
    use super::*;

    #[tokio::test]
    async fn a_command_runs_in_the_first_root() {
        let place = Place::new();
        for (command, expected, is_error) in [
            ("cat one.txt", "exit code 0\n--- stdout\neins\nuno", false),
            ("echo no >&2; exit 3", "exit code 3\n--- stderr\nno", true),
            ("true", "exit code 0", false),
            ("cat; echo done", "exit code 0\n--- stdout\ndone", false),
            ("kill -9 $$", "exit code none, ended by a signal", true),
        ] {
            let answer = place.call("bash", json!({ "command": command })).await.unwrap();
            assert_eq!((text(&answer).as_str(), answer.is_error), (expected, is_error));
        }
    }

    #[tokio::test]
    async fn output_is_bounded_and_the_command_not_held_up() {
        let place = Place::new();
        let answer = place.text("bash", json!({ "command": "yes | head -c 1000000" })).await;
        assert!(answer.ends_with("(934464 bytes left out)"), "{}", &answer[answer.len() - 60..]);
    }

    #[tokio::test]
    async fn a_command_that_takes_too_long_ends_with_its_tree() {
        let place = Place::new();
        let command = "trap '' TERM; sleep 600 & echo $! > pid; echo started; wait; sleep 600";
        let answer = place.call("bash", json!({ "command": command, "timeout_s": 2 })).await.unwrap();
        assert_eq!(text(&answer), "ended after 2 s without finishing\n--- stdout\nstarted");
        assert!(answer.is_error);
        gone(place.read("pid").trim());
    }

    #[tokio::test]
    async fn a_call_that_is_given_up_ends_its_tree() {
        let place = Place::new();
        let call = place.call("bash", json!({ "command": "echo $$ > pid; sleep 600" }));
        let pid = place.root.join("pid");
        let written = async {
            while std::fs::read_to_string(&pid).unwrap_or_default().trim().is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            _ = call => panic!("it should still run"),
            () = written => {}
        }
        gone(place.read("pid").trim());
    }

    fn gone(pid: &str) {
        let deadline = Instant::now() + Duration::from_secs(20);
        // A zombie that nobody reaps has no command line.
        while std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|command| !command.is_empty()) {
            assert!(Instant::now() < deadline, "{pid} is still there");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A root with a few files, and a secret beside it.
struct Place {
    _directory: TempDir,
    root: PathBuf,
}

impl Place {
    fn new() -> Place {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap().join("root");
        let place = Place { root, _directory: directory };
        place.write("one.txt", b"eins\nuno\n");
        place.write("a/two.txt", b"zwei\n");
        place.write("a/b/three.rs", b"fn main() {}");
        std::fs::write(place.outside(), "secret").unwrap();
        place
    }

    fn outside(&self) -> PathBuf {
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

    async fn call(&self, name: &str, input: Value) -> Result<Answer, Error> {
        tool(name, Some(&self.root))(input).await
    }

    /// The text blocks, with `|` between them.
    async fn text(&self, name: &str, input: Value) -> String {
        text(&self.call(name, input).await.unwrap())
    }
}

fn text(answer: &Answer) -> String {
    answer.content.iter().map(|block| block["text"].as_str().unwrap()).collect::<Vec<_>>().join("|")
}

fn host() -> Host {
    Host { now: Arc::new(|| Timestamp(1_794_700_800_000)), guard: GuardExe::None }
}

fn tools(names: &[&str]) -> Result<Vec<(Definition, Handler)>, Error> {
    let tools = names.iter().map(|name| (*name).to_owned()).collect();
    builtin::standard(&Builtin { tools, ..Builtin::default() }, &host())
}

fn tool(name: &str, root: Option<&Path>) -> Handler {
    tool_in(name, &root.map(Path::to_path_buf).into_iter().collect::<Vec<_>>())
}

fn tool_in(name: &str, roots: &[PathBuf]) -> Handler {
    let roots = roots.iter().map(|root| root.display().to_string()).collect();
    made(&Builtin { tools: vec![name.into()], roots, allow_private: false })
}

fn tool_allowing_private(name: &str) -> Handler {
    made(&Builtin { tools: vec![name.into()], roots: Vec::new(), allow_private: true })
}

fn made(config: &Builtin) -> Handler {
    builtin::standard(config, &host()).unwrap().remove(0).1
}
