use toolcrib_core::access_rules::AccessRules;

use super::*;
use crate::{Secrets, export};

/// Exports the imported sources without the header line, followed by all messages.
fn read_summary(client: McpClientKind, file: &str, text: &str) -> String {
    let base = Path::new("/home/me/p").join(file);
    let base = base.parent().unwrap_or(Path::new("/home/me/p"));
    let config = client.read(text, file, base, Path::new("/home/me/p")).unwrap();
    let ImportedConfig { config, errors: unusable } = config;
    let mut lines: Vec<String> =
        export(&config.valid_sources().collect::<Vec<_>>(), &AccessRules::default(), Secrets::Plain)
            .lines()
            .skip(2)
            .map(str::to_owned)
            .collect();
    let errors = config.sources.into_iter().filter_map(|configured| configured.source.err()).flatten();
    lines.extend(unusable.into_iter().chain(errors).chain(config.warnings).map(|diagnostic| diagnostic.to_string()));
    lines.join("\n")
}

#[test]
fn client_names_parse_back() {
    for client in McpClientKind::ALL {
        assert_eq!(McpClientKind::parse(client.as_str()), Some(client));
    }
    assert_eq!(McpClientKind::parse("emacs"), None);
}

#[test]
fn config_paths_follow_the_conventions_of_each_system() {
    let config_paths = |client: McpClientKind, os| client.config_paths(Path::new("/h"), Path::new("/p"), os);
    let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
    for (client, os, expected) in [
        (McpClientKind::ClaudeDesktop, Os::Linux, &["/h/.config/Claude/claude_desktop_config.json"][..]),
        (
            McpClientKind::ClaudeDesktop,
            Os::MacOs,
            &["/h/Library/Application Support/Claude/claude_desktop_config.json"],
        ),
        (McpClientKind::ClaudeDesktop, Os::Windows, &["/h/AppData/Roaming/Claude/claude_desktop_config.json"]),
        (McpClientKind::ClaudeCode, Os::Linux, &["/p/.mcp.json", "/h/.claude.json"]),
        (McpClientKind::Cursor, Os::Linux, &["/p/.cursor/mcp.json", "/h/.cursor/mcp.json"]),
        (
            McpClientKind::Vscode,
            Os::Linux,
            &["/p/.vscode/mcp.json", "/h/.config/Code/User/mcp.json", "/h/.config/Code/User/settings.json"],
        ),
        (McpClientKind::Codex, Os::MacOs, &["/p/.codex/config.toml", "/h/.codex/config.toml"]),
        (McpClientKind::Gemini, Os::Linux, &["/p/.gemini/settings.json", "/h/.gemini/settings.json"]),
        (McpClientKind::Windsurf, Os::Linux, &["/h/.codeium/windsurf/mcp_config.json"]),
        (McpClientKind::Zed, Os::MacOs, &["/p/.zed/settings.json", "/h/.config/zed/settings.json"]),
        (McpClientKind::Zed, Os::Windows, &["/p/.zed/settings.json", "/h/AppData/Roaming/Zed/settings.json"]),
    ] {
        assert_eq!(config_paths(client, os), paths(expected));
    }
}

#[test]
fn claude_desktop() {
    let text = r#"{ "theme": "dark", "mcpServers": { "Files": { "command": "npx", "args": ["-y", "x"], "env": { "A": "b" } } } }"#;
    assert_eq!(
        read_summary(McpClientKind::ClaudeDesktop, "claude_desktop_config.json", text),
        r#"  files: { command: "npx", args: ["-y", "x"], env: { A: "b" } }"#
    );
    assert_eq!(
        read_summary(McpClientKind::ClaudeDesktop, "x.json", "{}"),
        "x.json:1: no servers found; claude-desktop keeps them under `mcpServers`"
    );
}

#[test]
fn claude_code_servers_of_the_project_win_over_those_of_the_user() {
    let text = r#"{
  "numStartups": 5,
  "mcpServers": { "a": { "type": "http", "url": "http://user" }, "b": { "type": "stdio", "command": "b" } },
  "projects": {
    "/home/me/p": { "mcpServers": { "a": { "type": "http", "url": "http://project" } } },
    "/other": { "mcpServers": { "c": { "command": "c" } } }
  }
}"#;
    assert_eq!(
        read_summary(McpClientKind::ClaudeCode, ".claude.json", text),
        "  a: { url: \"http://project\" }\n  b: { command: \"b\" }"
    );
}

#[test]
fn cursor_and_vscode_paths_are_relative_to_the_workspace() {
    let text = r#"{ "mcpServers": { "a": { "command": "./run", "cwd": "${workspaceFolder}/x", "env": { "H": "${userHome}" } } } }"#;
    assert_eq!(
        read_summary(McpClientKind::Cursor, ".cursor/mcp.json", text),
        r#"  a: { command: "/home/me/p/run", env: { H: "${env:HOME}" }, cwd: "/home/me/p/x" }"#
    );
    let text = r#"{
  // my servers
  "inputs": [{ "id": "k", "type": "promptString" }],
  "servers": {
    "a": { "type": "stdio", "command": "x", "env": { "K": "${input:k}" }, "envFile": ".env" },
    "b": { "type": "http", "url": "http://x", "gallery": true },
  },
}"#;
    assert_eq!(
        read_summary(McpClientKind::Vscode, ".vscode/mcp.json", text),
        "  a: { command: \"x\", env: { K: \"${input:k}\" } }\n  b: { url: \"http://x\" }\n\
         .vscode/mcp.json:3: inputs: prompting is not supported; use `${env:NAME}` instead of an input\n\
         .vscode/mcp.json:5: servers.a.env.K: `${input:…}` is not supported; use `${env:NAME}`\n\
         .vscode/mcp.json:5: servers.a: unknown key `envFile`; ignored"
    );
    for settings in [
        r#"{ "mcp": { "servers": { "a": { "command": "x" } } } }"#,
        r#"{ "mcp.servers": { "a": { "command": "x" } } }"#,
    ] {
        assert_eq!(read_summary(McpClientKind::Vscode, "settings.json", settings), "  a: { command: \"x\" }");
    }
}

#[test]
fn codex() {
    let text = r#"
model = "x"
[mcp_servers.a]
command = "npx"
env_vars = ["HOME_DIR"]
startup_timeout_sec = 20
tool_timeout_sec = 1.5
enabled = false
enabled_tools = ["one", "two"]
disabled_tools = ["two"]
[mcp_servers.a.env]
K = "v"
[mcp_servers.b]
url = "http://x"
bearer_token_env_var = "TOKEN"
http_headers = { A = "b" }
env_http_headers = { C = "D" }
scopes = ["s"]
"#;
    assert_eq!(
        read_summary(McpClientKind::Codex, ".codex/config.toml", text),
        concat!(
            r#"  a: { command: "npx", env: { K: "v" }, inherit_env: ["HOME_DIR"], connect_timeout: "20s", "#,
            r#"discovery_timeout: "20s", call_timeout: "1500ms", enabled: false, tools: { one: "allow", two: "hide", "*": "hide" } }"#,
            "\n",
            r#"  b: { url: "http://x", headers: { A: "b", Authorization: "Bearer ${env:TOKEN}", C: "${env:D}" } }"#,
            "\n",
            ".codex/config.toml:18: mcp_servers.b: unknown key `scopes`; ignored"
        )
    );
}

#[test]
fn gemini() {
    let text = r#"{ "mcpServers": {
  "a": { "httpUrl": "http://new", "timeout": 30000, "trust": true, "headers": { "K": "$KEY" } },
  "b": { "url": "http://old", "includeTools": ["x(1)"], "excludeTools": ["y"] },
  "c": { "command": "c", "env": { "T": "${T}" } } } }"#;
    assert_eq!(
        read_summary(McpClientKind::Gemini, ".gemini/settings.json", text),
        concat!(
            r#"  a: { url: "http://new", headers: { K: "${env:KEY}" }, call_timeout: "30s" }"#,
            "\n",
            r#"  b: { url: "http://old", transport: "sse", tools: { x: "allow", "y": "hide", "*": "hide" } }"#,
            "\n",
            r#"  c: { command: "c", env: { T: "${T}" } }"#
        )
    );
}

#[test]
fn windsurf_and_zed() {
    let text = r#"{ "mcpServers": { "a": { "serverUrl": "http://x", "disabled": true, "disabledTools": ["t"] } } }"#;
    assert_eq!(
        read_summary(McpClientKind::Windsurf, "mcp_config.json", text),
        r#"  a: { url: "http://x", enabled: false, tools: { t: "hide" } }"#
    );
    let text = r#"{ "vim_mode": true, "context_servers": {
  "a": { "source": "custom", "command": "x", "args": ["y"], "env": {} },
  "b": { "command": { "path": "x", "args": ["y"], "env": { "K": "v" } }, "settings": {} },
  "c": { "source": "extension", "settings": {} },
  "d": { "url": "http://x", "headers": { "K": "v" } } } }"#;
    assert_eq!(
        read_summary(McpClientKind::Zed, "settings.json", text),
        "  a: { command: \"x\", args: [\"y\"] }\n  b: { command: \"x\", args: [\"y\"], env: { K: \"v\" } }\n  \
         d: { url: \"http://x\", headers: { K: \"v\" } }\n\
         settings.json:4: context_servers.c: needs one of `command`, `url`, `openapi`, `workflow` or `builtin`\n\
         settings.json:3: context_servers.b: unknown key `settings`; ignored\n\
         settings.json:4: context_servers.c: unknown key `settings`; ignored"
    );
}

#[test]
fn the_client_of_a_file_is_detected() {
    for (file, text, expected) in [
        ("x.toml", "[mcp_servers.a]\ncommand = 'x'", McpClientKind::Codex),
        ("x.json", r#"{ "context_servers": { "a": { "command": "x" } } }"#, McpClientKind::Zed),
        ("x.json", r#"{ "servers": { "a": { "command": "x" } } }"#, McpClientKind::Vscode),
        ("x.json", r#"{ "mcpServers": { "a": { "httpUrl": "http://x" } } }"#, McpClientKind::Gemini),
        ("x.json", r#"{ "mcpServers": { "a": { "serverUrl": "http://x" } } }"#, McpClientKind::Windsurf),
        ("a\\.cursor\\mcp.json", r#"{ "mcpServers": { "a": { "command": "x" } } }"#, McpClientKind::Cursor),
        ("p/.mcp.json", r#"{ "mcpServers": { "a": { "command": "x" } } }"#, McpClientKind::ClaudeCode),
        ("x.json", r#"{ "mcpServers": { "a": { "command": "x" } } }"#, McpClientKind::ClaudeDesktop),
    ] {
        assert_eq!(McpClientKind::detect(text, file), expected, "{text}");
        let config = McpClientKind::read_any(text, file, Path::new("/p"), Path::new("/p")).unwrap().config;
        assert_eq!(config.valid_sources().count(), 1, "{text}");
    }
    let config = McpClientKind::read_any("sources: { a: { comand: x } }", "t.yaml", Path::new("/p"), Path::new("/p"))
        .unwrap()
        .config;
    assert!(config.sources[0].source.is_err());
}

#[test]
fn a_server_with_an_unusable_name_does_not_affect_the_others() {
    let text = r#"{ "mcpServers": { "日": { "command": "a" }, "b": { "command": "b" } } }"#;
    assert_eq!(
        read_summary(McpClientKind::Cursor, ".cursor/mcp.json", text),
        "  b: { command: \"b\" }\n\
         .cursor/mcp.json:1: mcpServers: `\u{65e5}` cannot name a source: it has no letter or digit of a-z, 0-9"
    );
}
