//! `toolcrib group`, `access`, `policy` and `explain`, and reading as another caller.

use std::fs::File;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::test_project::{TestProject, field_values};
use crate::support::test_server::{TestWorkspace, wait_until};

/// Rules in the configuration file, from its fourth line on.
const CONFIGURED_RULES: &str = "\
groups:
  time: { title: Time, tools: [current_time, gone__tool] }
access:
  - { name: clock, when: [{ claim: team, equals: clock }], groups: [time] }
policies:
  - { name: ask-files, match: { name: \"file_*\", when: [{ claim: caller.kind, equals: token }] }, verdict: ask }
";

/// A project with all built-in tools and these rules.
fn project_with(rules: &str) -> TestProject {
    let project = TestProject::new("");
    project.write("toolcrib.yaml", &format!("# rules\nsources:\n  core: {{ builtin: all, roots: [.] }}\n{rules}"));
    project
}

impl TestProject {
    /// Defines a rule from a file, with exit code 0.
    #[track_caller]
    fn set_rule(&self, kind: &str, name: &str, definition: &Value) -> crate::support::CliOutput {
        self.write("rule.json", &definition.to_string());
        let output = self.run(&[kind, "set", name, "--file", "rule.json"]);
        output.assert_code(0);
        output
    }

    #[track_caller]
    fn create_token(&self, arguments: &[&str]) {
        self.run(&[&["token", "create"], arguments].concat()).assert_code(0);
    }

    /// Names of the tools that a command lists.
    #[track_caller]
    fn tool_names(&self, arguments: &[&str]) -> Vec<String> {
        let listed = self.json(0, &[&["tools"], arguments].concat());
        field_values(&listed["tools"], "name").into_iter().map(str::to_owned).collect()
    }
}

#[test]
fn rules_are_defined_listed_shown_replaced_and_removed() {
    let project = project_with("");
    for (kind, list) in [("group", "groups"), ("access", "access"), ("policy", "policies")] {
        project.run(&[kind, "list"]).assert_code(0).assert_stdout(&format!("toolcrib {kind} set NAME --file FILE"));
        assert_eq!(project.json(0, &[kind, "list"]), json!({ list: [] }));
    }

    project.write("time.yaml", "title: Clock\ntools: [current_time, gone__tool]\n");
    let defined = project.run(&["group", "set", "time", "--file", "time.yaml"]);
    defined.assert_code(0).assert_stdout("defined the group `time`; affects none of 1 known caller");
    let again = project.run(&["group", "set", "time", "--file", "time.yaml"]);
    again.assert_code(0).assert_stdout("the group `time` is already defined so");
    project.run(&["group", "list"]).assert_stdout("time  Clock  1      1        runtime");
    let expected = json!({
        "name": "time", "title": "Clock", "select": [], "tools": ["current_time", "gone__tool"], "exclude": [],
        "instructions": null, "essential": [], "mode": null, "members": ["current_time"], "missing": ["gone__tool"],
        "origin": "runtime",
    });
    assert_eq!(project.json(0, &["group", "show", "time"]), expected);
    assert_eq!(project.json(0, &["group", "set", "time", "--file", "time.yaml"]), expected);
    assert_eq!(project.json(0, &["group", "list"]), json!({ "groups": [expected] }));
    project
        .run(&["group", "show", "time"])
        .assert_stdout("group time (runtime)")
        .assert_stdout("1 tool\n  current_time\n1 missing: no source offers\n  gone__tool");
    // What `show` prints can be set again.
    project.write("shown.json", &expected.to_string());
    project.run(&["group", "set", "time", "--file", "shown.json"]).assert_code(0).assert_stdout("already defined so");

    let rule = json!({"when": [{"claim": "caller.kind", "in": ["local", "token"]}], "groups": ["time"]});
    project.set_rule("access", "clock", &rule).assert_stdout("affects 1 of 1 known caller");
    project.run(&["access", "list"]).assert_stdout(r#"clock  caller.kind is one of ["local","token"]  time    yes"#);
    let policy = json!({"match": {"group": "time"}, "verdict": "ask"});
    project.set_rule("policy", "ask", &policy).assert_stdout("defined the policy `ask`");
    project.set_rule("policy", "ask", &json!({"verdict": "deny"})).assert_stdout("replaced the policy `ask`");
    project.run(&["policy", "list"]).assert_stdout("ask   every tool  deny     runtime");
    let history = project.json(0, &["history"])["records"].clone();
    let types = field_values(&history, "type");
    assert!(types.ends_with(&["AccessRuleDefined", "PolicyDefined", "PolicyDefined"]), "{types:?}");

    project.run(&["group", "remove", "time"]).assert_code(1).assert_stderr("is used by");
    project.run(&["access", "remove", "clock"]).assert_code(0).assert_stdout("removed the access rule `clock`");
    project.run(&["group", "remove", "time"]).assert_code(0);
    assert_eq!(project.json(0, &["policy", "remove", "ask"]), json!({"name": "ask", "removed": true}));
    assert_eq!(project.json(0, &["policy", "list"]), json!({"policies": []}));
    project.run(&["verify"]).assert_code(0);
}

#[test]
fn a_definition_is_read_from_stdin() {
    let project = project_with("");
    let set = |name: &str, text: &str| {
        project.write("stdin", text);
        let mut command = Command::new(env!("CARGO_BIN_EXE_toolcrib"));
        command.args(["group", "set", name, "--file", "-", "--config", "toolcrib.yaml"]);
        command.current_dir(project.path("project")).env("HOME", project.path("home"));
        command.env("XDG_DATA_HOME", project.path("home/data")).env("XDG_CONFIG_HOME", project.path("home/.config"));
        command.stdin(File::open(project.path("project/stdin")).unwrap()).stdout(Stdio::null());
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(set("yaml", "tools: [calculate]\n"), (Some(0), String::new()));
    assert_eq!(set("json", r#"{"tools": ["calculate"]}"#), (Some(0), String::new()));
    let (code, error) = set("wrong", "title: A\ntols: [calculate]\n");
    assert_eq!((code, error.trim()), (Some(2), "error: stdin:2: unknown key `tols`; did you mean `tools`?"));
    let groups = project.json(0, &["group", "list"])["groups"].clone();
    assert_eq!(field_values(&groups, "name"), ["json", "yaml"]);
}

#[test]
fn wrong_definitions_are_refused_with_file_line_and_reason() {
    let project = project_with("");
    for (kind, name, file, text, reason) in [
        ("group", "a", "a.yaml", "title: A\ntols: [x]\n", "a.yaml:2: unknown key `tols`; did you mean `tools`?"),
        ("group", "a", "a.json", "{\n\"tools\": 5}", "a.json:2: tools: expected a list"),
        ("group", "a", "a.yaml", "tools: [a__b]\nexclude: [a__b]\n", "a.yaml"),
        ("group", "a", "a.yaml", "select: { method: GET, risk: destructive }", "is `read_only`, not `destructive`"),
        ("group", "a", "a.yaml", "select: { name: \"regex:(\" }", "a.yaml:1: select.name: "),
        ("group", "a", "a.yaml", "name: b\ntools: [x__y]\n", "a.yaml:1: name: `b` is not the name of this definition"),
        ("group", "A b", "a.yaml", "tools: [x__y]\n", "is not a valid group name"),
        ("group", "a", "a.yaml", "- x\n", "a.yaml"),
        ("group", "a", "a.yaml", "tools: [\n", "a.yaml:"),
        ("access", "a", "a.yaml", "when:\n  - { claim: team, like: x }\ngroups: [b]\n", "a.yaml:2: when[0]"),
        ("access", "a", "a.yaml", "when: []\n", "group"),
        ("access", "a", "a.yaml", "groups:\n  - nowhere\n", "a.yaml:2: groups[0]: unknown group `nowhere`"),
        ("policy", "a", "a.yaml", "match: { source: x }\n", "needs `verdict`"),
        ("policy", "a", "a.yaml", "match: { source: x }\nverdict: maybe\n", "a.yaml:2: verdict"),
        (
            "policy",
            "a",
            "a.yaml",
            "match: { group: nowhere }\nverdict: deny\n",
            "a.yaml:1: match.group: unknown group `nowhere`",
        ),
        ("policy", "a", "a.yaml", "match: { name: \"${env:HOME}\" }\nverdict: deny\n", "a.yaml:1: match.name"),
    ] {
        project.write(file, text);
        project.run(&[kind, "set", name, "--file", file]).assert_code(2).assert_stderr(reason);
        project.run(&[kind, "set", name, "--file", file, "--dry-run"]).assert_code(2).assert_stderr(reason);
        let error = project.json(2, &[kind, "set", name, "--file", file])["error"].clone();
        assert_eq!(error["code"], "CONFIG_INVALID", "{error}");
    }
    project.run(&["group", "set", "a", "--file", "none.yaml"]).assert_code(2).assert_stderr("cannot read `none.yaml`");
    project.run(&["group", "set", "a"]).assert_code(2).assert_stderr("--file");
    for arguments in [["group", "show", "tme"], ["access", "remove", "clok"], ["policy", "show", "x"]] {
        let output = project.run(&arguments);
        output.assert_code(2).assert_stderr(&format!("named `{}`", arguments[2]));
    }
    for kind in ["group", "access", "policy"] {
        assert_eq!(
            project.json(0, &[kind, "list"]).as_object().unwrap().values().next().unwrap(),
            &json!([]),
            "{kind}"
        );
    }
}

#[test]
fn rules_of_the_configuration_are_changed_in_their_file() {
    let project = project_with(CONFIGURED_RULES);
    project.write("rule.yaml", "verdict: deny\n");
    project.write("group.yaml", "tools: [calculate]\n");
    project.write("access.yaml", "groups: [time]\n");
    for (kind, name, file, place) in [
        ("group", "time", "group.yaml", "toolcrib.yaml:5`"),
        ("access", "clock", "access.yaml", "toolcrib.yaml:7`"),
        ("policy", "ask-files", "rule.yaml", "toolcrib.yaml:9`"),
    ] {
        for arguments in [
            &[kind, "set", name, "--file", file][..],
            &[kind, "set", name, "--file", file, "--dry-run"],
            &[kind, "remove", name],
            &[kind, "remove", name, "--dry-run"],
        ] {
            project.run(arguments).assert_code(1).assert_stderr(place).assert_stderr("change it there");
            assert_eq!(project.json(1, arguments)["error"]["code"], "CONFLICT");
        }
        project.run(&[kind, "list"]).assert_stdout(place.trim_end_matches('`'));
        assert_eq!(project.json(0, &[kind, "show", name])["origin"], "config");
    }
    project.run(&["group", "show", "tme"]).assert_code(2).assert_stderr("did you mean `time`?");
    project.write("access.yaml", "groups: [tme]\n");
    let unknown = project.run(&["access", "set", "new", "--file", "access.yaml"]);
    unknown.assert_code(2).assert_stderr("access.yaml:1: groups[0]: unknown group `tme`; did you mean `time`?");
    project.run(&["policy", "list"]).assert_stdout(r#"name file_*, when caller.kind is "token""#);
    // Rules of the file are narrowed at run time by another policy.
    project.set_rule("policy", "no-files", &json!({"match": {"source": "core", "name": "file_*"}, "verdict": "hide"}));
    assert_eq!(project.tool_names(&["--claims", "{\"team\":\"clock\"}"]), ["current_time"]);
}

#[test]
fn a_dry_run_shows_who_gains_and_loses_and_writes_nothing() {
    let project = project_with("");
    project.set_rule("group", "time", &json!({"tools": ["current_time"]}));
    project.set_rule("group", "files", &json!({"select": [{"name": "file_*"}]}));
    project.create_token(&["ada", "--role", "agent", "--claim", "team=clock"]);
    project.create_token(&["bob", "--role", "agent", "--group", "files"]);
    let records = || project.json(0, &["history"])["records"].as_array().unwrap().len();
    let before = records();

    project.write("rule.json", r#"{"when": [{"claim": "team", "equals": "clock"}], "groups": ["time"]}"#);
    let dry = ["access", "set", "clock", "--file", "rule.json", "--dry-run"];
    project
        .run(&dry)
        .assert_code(0)
        .assert_stdout("dry run: the access rule `clock` would be defined; affects 2 of 3 known callers")
        .assert_stdout("local\n  loses 7 tools: calculate, current_time, file_find, file_list, file_read and 2 more")
        .assert_stdout("ada (token)\n  loses 6 tools: calculate, ")
        .assert_stderr("toolcrib access set local --file -");
    let preview = project.json(0, &dry);
    assert_eq!(preview["unchanged"], 1);
    assert_eq!(field_values(&preview["callers"], "caller"), ["local", "ada"]);
    assert_eq!(preview["callers"][0]["loses"].as_array().unwrap().len(), 7);

    project.write("rule.json", r#"{"match": {"name": "file_r*"}, "verdict": "ask"}"#);
    let dry = ["policy", "set", "ask", "--file", "rule.json", "--dry-run"];
    project.run(&dry).assert_stdout("bob (token)\n  changed 1 verdict: file_read (allow -> ask)");
    let expected = json!([{"tool": "file_read", "before": "allow", "after": "ask"}]);
    assert_eq!(project.json(0, &dry)["callers"][2]["verdicts"], expected);
    let dry = ["group", "remove", "files", "--dry-run"];
    project.run(&dry).assert_stdout("would be removed; affects 1 of 3 known callers").assert_stdout("loses 4 tools");
    assert_eq!(records(), before);

    // The same change, made.
    project.write("rule.json", r#"{"when": [{"claim": "team", "equals": "clock"}], "groups": ["time"]}"#);
    let made = project.run(&["access", "set", "clock", "--file", "rule.json"]);
    made.assert_code(0).assert_stdout("affects 2 of 3 known callers").assert_stderr("see no tool with this change");
    // Later changes do not leave them without tools: they have none any more.
    let second = json!({"when": [{"claim": "team", "equals": "other"}], "groups": ["files"]});
    assert_eq!(project.set_rule("access", "files", &second).stderr, "");
    let local = json!({"when": [{"claim": "caller.kind", "equals": "local"}], "groups": ["time"]});
    assert_eq!(project.set_rule("access", "local", &local).stderr, "");
    project.run(&["access", "remove", "local", "--dry-run"]).assert_stderr("see no tool with this change");
    project.run(&["--quiet", "access", "remove", "local"]).assert_code(0);
}

#[test]
fn a_dry_run_creates_no_store() {
    let project = project_with("");
    project.write("rule.json", r#"{"tools": ["calculate"]}"#);
    let dry = project.run(&["group", "set", "a", "--file", "rule.json", "--dry-run", "--data", "new"]);
    dry.assert_code(0).assert_stdout("dry run: the group `a` would be defined");
    project.run(&["group", "remove", "a", "--dry-run", "--data", "new"]).assert_code(2);
    assert!(!project.path("project/new").exists());
}

/// A server and a command share a data directory, and only the server has the file.
#[test]
fn a_command_without_the_file_leaves_its_rules_and_sources() {
    let project = project_with(CONFIGURED_RULES);
    let data = project.path("data");
    let data = ["--data", data.to_str().unwrap()];
    let seen = || project.tool_names(&[&["--claims", "{\"team\":\"sales\"}"], &data[..]].concat());
    assert_eq!(seen(), [""; 0]);
    let elsewhere = |arguments: &[&str]| {
        crate::support::run(&project.path("tmp"), &project.path("home"), &[arguments, &data].concat(), &[])
    };
    let origins = || {
        let listed = elsewhere(&["access", "list", "--json"]).stdout;
        let listed: Value = serde_json::from_str(&listed).unwrap();
        field_values(&listed["access"], "origin").join(",")
    };
    let sources = || elsewhere(&["sources", "--json"]).stdout;
    let known = sources();
    assert!(known.contains("\"core\""), "{known}");
    elsewhere(&["token", "create", "ci", "--role", "agent"]).assert_code(0);
    assert_eq!((origins().as_str(), sources()), ("config", known));
    // The user's own file is read for every store.
    std::fs::create_dir_all(project.path("home/.config/toolcrib")).unwrap();
    std::fs::write(project.path("home/.config/toolcrib/toolcrib.yaml"), "warm: start\n").unwrap();
    elsewhere(&["token", "revoke", "ci"]).assert_code(0);
    assert_eq!(origins(), "config");
    let report = elsewhere(&["doctor", "--json"]).stdout;
    assert!(report.contains("not in the configuration that was read: group `time`, access rule `clock`"), "{report}");
    // A file without rules removes them.
    project.write("empty.yaml", "");
    let empty = project.path("project/empty.yaml");
    elsewhere(&["--config", empty.to_str().unwrap(), "access", "list"]).assert_code(0);
    assert_eq!(origins(), "");
}

#[test]
fn rules_that_leave_local_without_tools_are_warned_about_before_any_discovery() {
    let project = TestProject::new("one: { command: SERVER }");
    project.set_rule("group", "all", &json!({"select": [{}]}));
    let rule = json!({"when": [{"claim": "team", "equals": "a"}], "groups": ["all"]});
    let output = project.set_rule("access", "team", &rule);
    assert!(output.stderr.contains("see no tool with this change; this rule gives them"), "{}", output.stderr);

    let workspace = TestWorkspace::new(&json!({}), &json!({}));
    let local = json!({"name": "local", "when": [{"claim": "caller.kind", "equals": "local"}], "groups": ["all"]});
    let team = json!({"name": "team", "when": [{"claim": "team", "equals": "a"}], "groups": ["all"]});
    let configure = |access: Value| {
        let core = json!({"core": {"builtin": ["calculate"]}});
        let config = json!({"sources": core, "groups": {"all": {"select": [{}]}}, "access": access});
        std::fs::write(workspace.path("toolcrib.json"), config.to_string()).unwrap();
    };
    let warnings = || {
        let log = std::fs::read_to_string(workspace.path("serve.log")).unwrap();
        (log.matches("configuration reloaded").count(), log.matches("without a token see no tools now").count())
    };
    configure(json!([team]));
    let server = workspace.serve();
    wait_until("the warning", || warnings() == (0, 1));
    configure(json!([team, local]));
    wait_until("the reload", || warnings() == (1, 1));
    configure(json!([team]));
    wait_until("the second reload", || warnings() == (2, 2));
    // A group that a rule defined at run time refers to cannot be dropped.
    let policy = json!({"match": {"group": "all"}, "verdict": "ask"}).to_string();
    std::fs::write(workspace.path("policy.json"), policy).unwrap();
    let mut set = workspace.toolcrib(&["policy", "set", "mine", "--file", "policy.json"]);
    assert!(set.stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::null()).status().unwrap().success());
    workspace.configure(&json!({"core": {"builtin": ["calculate"]}}), &json!({}));
    let refused = "error: group `all` is used by policy `mine`, defined at run time; keep the group in the configuration, \
                   or change or remove them first; the configuration stays as it was";
    let log = || std::fs::read_to_string(workspace.path("serve.log")).unwrap();
    wait_until("the refusal", || log().contains(refused));
    assert_eq!(warnings(), (2, 2));
    drop(server);
}

#[test]
fn explain_names_the_verdict_and_each_rule() {
    let project = project_with(CONFIGURED_RULES);
    project.create_token(&["ada", "--role", "agent", "--claim", "team=clock"]);
    project.create_token(&["boss", "--role", "admin"]);
    project.set_rule("policy", "no-files", &json!({"match": {"name": "file_read"}, "verdict": "deny"}));
    project
        .run(&["explain", "current_time"])
        .assert_code(0)
        .assert_stdout("current_time for local processes without a token (agent): hide, not visible")
        .assert_stdout("no access rule applies to this caller");
    let expected = json!({
        "verdict": "allow", "visible": true, "rules": [
            {"kind": "access", "name": "clock", "effect": "gives `time`"},
            {"kind": "group", "name": "time", "effect": "has the tool"},
        ],
    });
    assert_eq!(project.json(0, &["explain", "current_time", "--token", "ada"]), expected);
    project.write("claims.json", r#"{"team": "clock"}"#);
    assert_eq!(project.json(0, &["explain", "current_time", "--claims", "@claims.json"]), expected);
    let boss = project.json(0, &["explain", "file_read", "--token", "boss"]);
    assert_eq!((&boss["verdict"], &boss["visible"]), (&json!("deny"), &json!(true)));
    assert_eq!(field_values(&boss["rules"], "name"), ["admin", "ask-files", "no-files"]);
    project
        .run(&["explain", "file_read", "--token", "ada"])
        .assert_stdout("file_read for the token `ada` (agent): hide, not visible")
        .assert_stdout("group   time       does not have the tool")
        .assert_stdout("policy  no-files   deny");
    let callers = project.json(0, &["explain", "file_read", "--callers"])["callers"].clone();
    assert_eq!(field_values(&callers, "caller"), ["local", "ada", "boss"]);
    assert_eq!(field_values(&callers, "verdict"), ["hide", "hide", "deny"]);
    project.run(&["explain", "file_read", "--callers"]).assert_stdout("boss    token  admin  deny     yes");

    project.run(&["explain", "curent_time"]).assert_code(1).assert_stderr("did you mean `current_time`?");
    project.run(&["explain", "current_time", "--token", "eve"]).assert_code(2).assert_stderr("eve");
    for claims in ["[\"s3cret\"]", "\"s3cret\"", "{\"a\":", "@none.json"] {
        let output = project.run(&["explain", "current_time", "--claims", claims]);
        output.assert_code(2);
        assert!(!output.stderr.contains("s3cret"), "{}", output.stderr);
    }
    project.run(&["explain", "x", "--token", "ada", "--claims", "{}"]).assert_code(2);
    project.run(&["explain", "x", "--token", "ada", "--callers"]).assert_code(2);
}

#[test]
fn reading_commands_preview_what_a_caller_gets_as_an_agent() {
    let project = project_with(CONFIGURED_RULES);
    project.create_token(&["ada", "--role", "agent", "--claim", "team=clock"]);
    project.create_token(&["boss", "--role", "admin"]);
    project.set_rule("policy", "no-fetch", &json!({"match": {"name": "url_fetch"}, "verdict": "deny"}));
    assert_eq!(project.tool_names(&[]).len(), 7);
    assert_eq!(project.tool_names(&["--token", "ada"]), ["current_time"]);
    assert_eq!(project.tool_names(&["--claims", r#"{"team":["x","clock"]}"#]), ["current_time"]);
    assert_eq!(project.tool_names(&["--claims", "{}"]), [""; 0]);
    project.run(&["tools", "--claims", "{}"]).assert_code(0).assert_stdout("this caller sees no tools");
    let boss = project.tool_names(&["--token", "boss"]);
    assert!(boss.len() == 6 && !boss.contains(&"url_fetch".to_owned()), "{boss:?}");
    let verdicts = project.json(0, &["tools", "--token", "boss", "--only", "file_read"]);
    assert_eq!(verdicts["tools"][0]["policy"], "ask");
    assert_ne!(verdicts["inventory_hash"], project.json(0, &["tools"])["inventory_hash"]);
    let anthropic = project.json(0, &["tools", "--token", "ada", "--format", "anthropic"]);
    assert_eq!(field_values(&anthropic, "name"), ["current_time"]);

    assert_eq!(project.tool_names(&["--group", "time"]), ["current_time"]);
    assert_eq!(project.tool_names(&["--group", "time", "--only", "calc*"]), [""; 0]);
    project
        .run(&["tools", "--group", "tme"])
        .assert_code(2)
        .assert_stderr("no group named `tme`; did you mean `time`?");
    project.run(&["search", "x", "--group", "tme"]).assert_code(2).assert_stderr("did you mean `time`?");
    project.run(&["tools", "--group", "time", "--claims", "{}"]).assert_code(2).assert_stderr("this caller sees");
    project.run(&["tools", "--token", "eve"]).assert_code(2);

    let hits = |arguments: &[&str]| project.json(0, &[&["search", "calculate"], arguments].concat())["hits"].clone();
    assert_eq!(field_values(&hits(&[]), "name")[0], "calculate");
    assert_eq!(hits(&["--token", "ada"]), json!([]));
    assert_eq!(hits(&["--group", "time"]), json!([]));
    project.run(&["describe", "current_time", "--token", "ada"]).assert_code(0);
    project.run(&["describe", "calculate", "--token", "ada"]).assert_code(1).assert_stderr("no tool named `calculate`");
    project.run(&["describe", "url_fetch", "--token", "boss"]).assert_code(1).assert_stderr("denied");
    project.run(&["describe", "url_fetch"]).assert_code(0);
    project.run(&["describe", "calculate", "--format", "mcp"]).assert_code(0).assert_stdout("calculate");
    assert_eq!(project.json(0, &["describe", "core", "--token", "ada"])["tool_count"], 1);
    project.run(&["context", "--token", "ada"]).assert_code(0).assert_stdout("1 tool");
    assert_eq!(project.json(0, &["context", "--claims", "{}"])["tools"], 0);
}

#[test]
fn a_preview_discovers_missing_sources_first() {
    let project = TestProject::new("one: { command: SERVER }");
    project.set_rule("group", "all", &json!({"select": [{}]}));
    let rule = json!({"when": [{"claim": "team", "exists": true}], "groups": ["all"]});
    project.set_rule("access", "teams", &rule);
    assert_eq!(project.tool_names(&["--claims", "{}"]), [""; 0]);
    let seen = project.tool_names(&["--cached", "--claims", r#"{"team":1}"#]);
    assert!(seen.contains(&"one__echo".to_owned()), "{seen:?}");
}

#[test]
fn calls_of_commands_are_limited_by_verdicts_alone() {
    let project = project_with(CONFIGURED_RULES);
    // No access rule gives `calculate` to local processes, but commands act as administrators.
    project.run(&["call", "calculate", "expression=6*7"]).assert_code(0).assert_stdout("42");
    project.set_rule("policy", "ask", &json!({"match": {"name": "calc*"}, "verdict": "ask"}));
    let asked = project.json(1, &["call", "calculate", "expression=6*7"]);
    assert_eq!(asked["error"]["code"], "FORBIDDEN", "{asked}");
    project.run(&["call", "calculate", "expression=6*7", "--yes"]).assert_code(0).assert_stdout("42");
    project.set_rule("policy", "deny", &json!({"match": {"name": "calc*"}, "verdict": "deny"}));
    let denied = project.json(1, &["call", "calculate", "expression=6*7", "--yes"]);
    assert_eq!(denied["error"]["code"], "FORBIDDEN", "{denied}");
    assert!(denied["error"]["message"].as_str().unwrap().contains("policy `deny`"), "{denied}");
    project.set_rule("policy", "hide", &json!({"match": {"name": "calc*"}, "verdict": "hide"}));
    let hidden = project.json(1, &["call", "calculate", "expression=6*7", "--yes"]);
    assert_eq!(hidden["error"]["code"], "TOOL_NOT_IMPLEMENTED", "{hidden}");
}

#[test]
fn doctor_reports_rules_without_effect() {
    let project = project_with(CONFIGURED_RULES);
    project.run(&["tools"]).assert_code(0);
    project.set_rule("group", "nothing", &json!({"select": [{"source": "nowhere"}]}));
    project.set_rule("group", "lost", &json!({}));
    project.create_token(&["old", "--role", "agent", "--group", "lost"]);
    project.run(&["group", "remove", "lost"]).assert_code(0);
    let status = |name: &str, message: &str| {
        let checks = project.json(0, &["doctor"])["checks"].clone();
        let checks = checks.as_array().unwrap().iter().filter(|check| check["name"] == name);
        let found = checks.into_iter().find(|check| check["message"].as_str().unwrap().contains(message)).cloned();
        found.map(|check| check["status"].as_str().unwrap().to_owned())
    };
    let warn = Some("warn".to_owned());
    assert_eq!(status("access", "2 groups, 1 access rule, 1 policy"), Some("ok".to_owned()));
    assert_eq!(status("group time", "no source offers `gone__tool`"), warn);
    assert_eq!(status("group nothing", "no known tool belongs to it"), warn);
    assert_eq!(status("access clock", "applies neither to local processes nor to 1 token"), warn);
    assert_eq!(status("token old", "groups that do not exist: `lost`"), warn);
    assert_eq!(status("access", "see no tool"), Some("ok".to_owned()));
    project.create_token(&["ada", "--role", "agent", "--claim", "team=clock"]);
    assert_eq!(status("access clock", ""), None);
}
