use super::*;

#[tokio::test]
async fn nothing_outside_the_roots_is_touched() {
    let test_root = TestRoot::new();
    symlink("/etc", test_root.root.join("etc")).unwrap();
    symlink("/etc/passwd", test_root.root.join("passwd")).unwrap();
    symlink("/nonexistent/file", test_root.root.join("dangling")).unwrap();
    let sibling = format!("{}-sibling", test_root.root.display());
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
            let error = test_root.call(name, input).await.unwrap_err();
            let expected = if path == "dangling" { "no such file" } else { "is outside the directories allowed here" };
            assert!(error.message.contains(expected), "{name} {path}: {error}");
        }
    }
    assert_eq!(std::fs::read_to_string(test_root.outside_path()).unwrap(), "secret");
    let leak = test_root.call_text("file_search", json!({ "pattern": "secret|root:" })).await;
    assert_eq!(leak, "(nothing found)");
}

#[tokio::test]
async fn a_new_file_cannot_leave_through_a_linked_directory() {
    let test_root = TestRoot::new();
    symlink(test_root.outside_path().parent().unwrap(), test_root.root.join("up")).unwrap();
    let error = test_root.call("file_write", json!({ "path": "up/new.txt", "content": "x" })).await.unwrap_err();
    assert!(error.message.contains("outside"), "{error}");
    assert!(!test_root.outside_path().with_file_name("new.txt").exists());
}

#[tokio::test]
async fn links_that_stay_within_the_roots_are_followed() {
    let test_root = TestRoot::new();
    let other_root = TestRoot::new();
    symlink("one.txt", test_root.root.join("file")).unwrap();
    symlink("../one.txt", test_root.root.join("a/up")).unwrap();
    symlink("a", test_root.root.join("relative")).unwrap();
    symlink(test_root.root.join("a"), test_root.root.join("absolute")).unwrap();
    symlink(other_root.root.join("a"), test_root.root.join("other")).unwrap();
    let roots = [test_root.root.clone(), other_root.root.clone()];
    for (path, expected) in [
        ("file", "eins\nuno\n"),
        ("a/up", "eins\nuno\n"),
        ("relative/two.txt", "zwei\n"),
        ("relative/up", "eins\nuno\n"),
        ("absolute/two.txt", "zwei\n"),
        ("absolute/../one.txt", "eins\nuno\n"),
        ("other/two.txt", "zwei\n"),
    ] {
        let output = tool_with_roots("file_read", &roots)(json!({ "path": path })).await.unwrap();
        assert_eq!(joined_text(&output), expected, "{path}");
    }
    let listed = tool_with_roots("file_list", &roots)(json!({ "path": "absolute" })).await.unwrap();
    assert_eq!(joined_text(&listed), "a:\nb/\ntwo.txt\t5\nup\tlink");
    for (path, expected) in
        [("absolute/new.txt", "created `a/new.txt` (1 byte)"), ("file", "replaced `one.txt` (1 byte)")]
    {
        let input = json!({ "path": path, "content": "x", "overwrite": true });
        assert_eq!(joined_text(&tool_with_roots("file_write", &roots)(input).await.unwrap()), expected);
    }
    assert!(test_root.root.join("file").is_symlink(), "the link stays");
    let input = json!({ "path": "other/two.txt", "old": "zwei", "new": "dos" });
    tool_with_roots("file_edit", &roots)(input).await.unwrap();
    assert_eq!(other_root.read("a/two.txt"), "dos\n");
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
    let test_root = TestRoot::new();
    let other_root = TestRoot::new();
    let roots = [test_root.root.clone(), other_root.root.clone()];
    let read = tool_with_roots("file_read", &roots);
    let path = other_root.root.join("a/two.txt");
    assert_eq!(joined_text(&read(json!({ "path": path })).await.unwrap()), "zwei\n");
}

#[tokio::test]
async fn reading_returns_lines_and_the_offset_to_continue_at() {
    let test_root = TestRoot::new();
    let lines: String = (1..=3000).map(|line| format!("line {line}\n")).collect();
    test_root.write("long.txt", lines.as_bytes());
    test_root.write("wide.txt", &vec![b'x'; 300 * 1024]);
    test_root.write("binary", b"a\0b");
    test_root.write("latin", b"gr\xfc\xdfe");
    test_root.write("empty", b"");
    for (input, expected) in [
        (json!({ "path": "a/two.txt" }), "zwei\n"),
        (json!({ "path": "./a/../one.txt" }), "eins\nuno\n"),
        (json!({ "path": "one.txt", "offset": 2 }), "uno\n"),
        (json!({ "path": "one.txt", "limit": 1 }), "eins\n|(lines 1 to 1; the file continues, use offset 2)"),
        (json!({ "path": "one.txt", "offset": 9 }), "(the file has only 2 lines)"),
        (json!({ "path": "latin" }), "gr\u{fffd}\u{fffd}e"),
        (json!({ "path": "empty" }), ""),
        (json!({ "path": "long.txt", "offset": 2999, "limit": 5 }), "line 2999\nline 3000\n"),
        (json!({ "path": "long.txt", "offset": u64::MAX, "limit": 5 }), "(the file has only 3000 lines)"),
    ] {
        assert_eq!(test_root.call_text("file_read", input).await, expected);
    }
    let output = test_root.call_text("file_read", json!({ "path": "long.txt" })).await;
    assert!(output.ends_with("line 2000\n|(lines 1 to 2000; the file continues, use offset 2001)"));
    let output = test_root.call_text("file_read", json!({ "path": "wide.txt" })).await;
    assert!(output.ends_with("…[line cut]\n") && output.len() < 70_000);
    for (path, reason) in [
        ("binary", "`binary` is a binary file of 3 bytes; only text can be read"),
        ("a", "`a` is a directory; use `file_list`"),
        ("none.txt", "cannot open `none.txt`: there is no such file or directory"),
        ("a\0b", "a path must not contain NUL characters"),
    ] {
        assert_eq!(test_root.call("file_read", json!({ "path": path })).await.unwrap_err().message, reason);
    }
}

#[tokio::test]
async fn a_huge_file_is_read_in_bounds_and_a_pipe_not_at_all() {
    let test_root = TestRoot::new();
    std::fs::File::create(test_root.root.join("huge")).unwrap().set_len(1 << 40).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        test_root.root.join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    assert!(test_root.call("file_read", json!({ "path": "huge" })).await.unwrap_err().message.contains("binary"));
    assert_eq!(test_root.call_text("file_search", json!({ "pattern": "nowhere" })).await, "(nothing found)");
    let error = test_root.call("file_read", json!({ "path": "pipe" })).await.unwrap_err();
    assert_eq!(error.message, "`pipe` is not a regular file");
}

#[tokio::test]
async fn listing_is_sorted_and_limited_to_the_requested_depth() {
    let test_root = TestRoot::new();
    symlink("/etc", test_root.root.join("link")).unwrap();
    test_root.write(".git/config", b"x");
    for (input, expected) in [
        (json!({}), ".:\n.git/\na/\nlink\tlink\none.txt\t9"),
        (json!({ "path": "a" }), "a:\nb/\ntwo.txt\t5"),
        (json!({ "depth": 3 }), ".:\n.git/\na/\na/b/\na/b/three.rs\t12\na/two.txt\t5\nlink\tlink\none.txt\t9"),
    ] {
        assert_eq!(test_root.call_text("file_list", input).await, expected);
    }
    let error = test_root.call("file_list", json!({ "path": "one.txt" })).await.unwrap_err();
    assert_eq!(error.message, "`one.txt` is a file; use `file_read`");
    for number in 0..1100 {
        test_root.write(&format!("many/{number:04}"), b"");
    }
    let output = test_root.call_text("file_list", json!({ "path": "many" })).await;
    assert!(output.ends_with("0999\t0|(cut after 1000 entries; list a directory further down)"), "{output}");
}

#[tokio::test]
async fn files_are_found_by_name() {
    let test_root = TestRoot::new();
    test_root.write("node_modules/x/two.txt", b"");
    for (input, expected) in [
        (json!({ "pattern": "*.txt" }), "a/two.txt\none.txt"),
        (json!({ "pattern": "*.txt", "path": "a" }), "a/two.txt"),
        (json!({ "pattern": "a/**/*.rs" }), "a/b/three.rs"),
        (json!({ "pattern": "b" }), "a/b/"),
        (json!({ "pattern": "*.none" }), "(nothing found)"),
    ] {
        assert_eq!(test_root.call_text("file_find", input).await, expected);
    }
    assert_eq!(test_root.call("file_find", json!({ "pattern": "[" })).await.unwrap_err().code, Code::ToolInvalidInput);
}

#[tokio::test]
async fn files_are_searched_line_by_line() {
    let test_root = TestRoot::new();
    test_root.write("binary", b"eins\0");
    test_root.write(".git/config", b"eins");
    test_root.write("long", "y".repeat(1000).as_bytes());
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
        assert_eq!(test_root.call_text("file_search", input).await, expected);
    }
    for pattern in ["(", "(?=x)", "a{100000}{100000}", "\\1"] {
        let error = test_root.call("file_search", json!({ "pattern": pattern })).await.unwrap_err();
        assert!(error.message.starts_with("`pattern` is not a regular expression: "), "{error}");
    }
}

#[tokio::test]
async fn writing_creates_and_replaces_files() {
    let test_root = TestRoot::new();
    let new = json!({ "path": "a/new.txt", "content": "x" });
    assert_eq!(test_root.call_text("file_write", new.clone()).await, "created `a/new.txt` (1 byte)");
    assert_eq!(
        test_root.call("file_write", new).await.unwrap_err().message,
        "`a/new.txt` exists; set `overwrite`, or use `file_edit`"
    );
    let overwrite = json!({ "path": "a/new.txt", "content": "yy", "overwrite": true });
    assert_eq!(test_root.call_text("file_write", overwrite).await, "replaced `a/new.txt` (2 bytes)");
    assert_eq!(test_root.read("a/new.txt"), "yy");
    for (path, reason) in [
        ("none/new.txt", "cannot reach the directory of `none/new.txt`: there is no such file or directory"),
        ("a", "`a` exists and is not a regular file"),
    ] {
        let input = json!({ "path": path, "content": "", "overwrite": true });
        assert_eq!(test_root.call("file_write", input).await.unwrap_err().message, reason);
    }
    let large = json!({ "path": "large", "content": "x".repeat(1024 * 1024 + 1) });
    assert_eq!(test_root.call("file_write", large).await.unwrap_err().code, Code::ToolInvalidInput);
    assert_eq!(std::fs::read_dir(test_root.root.join("a")).unwrap().count(), 3, "no leftovers");
}

#[tokio::test]
async fn editing_is_exact_and_keeps_permissions() {
    use std::os::unix::fs::PermissionsExt;

    let test_root = TestRoot::new();
    test_root.write("x.sh", b"one two one");
    std::fs::set_permissions(test_root.root.join("x.sh"), PermissionsExt::from_mode(0o750)).unwrap();
    for (old, reason) in [
        ("three", "`old` does not occur in `x.sh`; read the file again"),
        ("", "`old` does not occur in `x.sh`; read the file again"),
        ("one", "`old` occurs 2 times in `x.sh`; give more of the surrounding lines, or set `replace_all`"),
    ] {
        let input = json!({ "path": "x.sh", "old": old, "new": "y" });
        assert_eq!(test_root.call("file_edit", input).await.unwrap_err().message, reason);
    }
    test_root.call_text("file_edit", json!({ "path": "x.sh", "old": "two", "new": "2" })).await;
    assert_eq!(test_root.read("x.sh"), "one 2 one");
    test_root.call_text("file_edit", json!({ "path": "x.sh", "old": "one", "new": "1", "replace_all": true })).await;
    assert_eq!(test_root.read("x.sh"), "1 2 1");
    let mode = std::fs::metadata(test_root.root.join("x.sh")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o750);
}
