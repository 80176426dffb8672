//! Advice on failures of sources, chosen by the text of the error message.
//!
//! Errors of sources are texts for people, so advice looks for known parts of them. A failure that matches nothing
//! gets the general advice to read the log of the server.

use std::path::Path;

use toolcrib::Code;
use toolcrib::config::show::mask_text;
use toolcrib::core::source::{SourceKind, StdioSource};
use toolcrib::core::text::sanitize_truncated;
use toolcrib::registry::SourceView;

/// Part of an error message, and the advice for it; the first match counts. In the advice, `ID` stands for the source id
/// and `NAME` for the id in upper case, as in environment variables, `{url}` for its address. The texts are those of the connectors' errors.
const FAILURE_ADVICE: [(&str, &str); 11] = [
    ("run `toolcrib trust`", "review the file, then run `toolcrib trust`"),
    (
        "wants an OAuth login",
        "declare the source with `command: npx` and `args: [-y, mcp-remote, {url}]`, which logs in with a browser; or set \
         a token in TOOLCRIB_SOURCE_NAME_TOKEN",
    ),
    (
        "needs a token",
        "set a token: `auth: { bearer: \"${env:YOUR_TOKEN}\" }` on the source, or TOOLCRIB_SOURCE_NAME_TOKEN",
    ),
    ("cannot be resolved", "set it, then `toolcrib refresh ID`"),
    ("permission denied", "make the file executable: `chmod +x`"),
    (
        "`connect_timeout`",
        "check the address, and that the server runs; if it is only slow, raise `connect_timeout` on the source",
    ),
    (
        "no answer within",
        "`toolcrib logs ID` shows its stderr; if it is only slow, raise `first_start_timeout` (first start) or \
         `discovery_timeout` on the source",
    ),
    ("does not look like an MCP server", "check that the command or the address is that of an MCP server"),
    ("exited while", "`toolcrib logs ID` shows its stderr; try its command in a shell"),
    ("no connection", "check the address, and that the server runs; then `toolcrib refresh ID`"),
    ("answered HTTP 404", "check the path of its `url`; MCP servers often end in `/mcp` or `/sse`"),
];

/// Returns advice on the last failure of a source.
pub(super) fn for_failure(source: &SourceView) -> String {
    let id = source.id.as_str();
    let Some(failure) = &source.last_error else { return format!("`toolcrib refresh {id}` tries again") };
    // A missing program needs its installer, not a retry.
    if failure.message.contains("not found on PATH") {
        return for_command(source.command.as_deref().unwrap_or_default());
    }
    match (find_advice(&failure.message), failure.code) {
        (Some(advice), _) => {
            let advice = advice.replace("ID", id).replace("NAME", &id.to_uppercase());
            advice.replace("{url}", source.url.as_deref().unwrap_or("URL"))
        }
        (None, Code::ConfigInvalid) => "correct the declaration in the configuration file".to_owned(),
        (None, _) => format!("`toolcrib logs {id}` shows its stderr; `toolcrib refresh {id}` tries again"),
    }
}

/// Returns who can correct a tool that is skipped. The reason names the place in a document.
pub(super) fn for_skipped_tool(kind: Option<&SourceKind>) -> String {
    let document = match kind {
        Some(SourceKind::Workflow(workflow)) => &workflow.document,
        Some(SourceKind::OpenApi(openapi)) => &openapi.document,
        Some(SourceKind::Stdio(_) | SourceKind::Http(_) | SourceKind::Sse(_) | SourceKind::Builtin(_)) | None => {
            return "only the author of the server can fix it".to_owned();
        }
    };
    if document.contains("://") && !document.starts_with("file:") {
        return "only the author of the document can fix it".to_owned();
    }
    format!("correct it in `{}`", sanitize_truncated(&mask_text(document), 200))
}

/// Returns the advice for an error message. Lines of the server's stderr in it are ignored: they may contain any of the
/// markers.
fn find_advice(message: &str) -> Option<&'static str> {
    let message = message.split("; stderr: ").next().unwrap_or_default();
    FAILURE_ADVICE.iter().find(|(marker, _)| message.contains(marker)).map(|(_, advice)| *advice)
}

/// Returns advice on an unresolved reference, naming its variable or file.
pub(super) fn for_reference(message: &str) -> String {
    let inside = |prefix: &str| message.split_once(prefix).and_then(|(_, rest)| rest.split('}').next());
    match (inside("${env:"), inside("${file:")) {
        (Some(name), _) => format!("export {name}=… in the environment that Toolcrib runs in"),
        (None, Some(path)) => format!("put the value into `{path}`, readable by you alone"),
        (None, None) => "set what the reference names".to_owned(),
    }
}

/// Returns how to install a missing program.
pub(super) fn for_command(command: &str) -> String {
    let program = Path::new(command).file_stem().and_then(|name| name.to_str()).unwrap_or(command);
    let install = match program {
        "npx" | "npm" | "node" => "install Node.js: https://nodejs.org",
        "uvx" | "uv" => "install uv: https://docs.astral.sh/uv",
        "python" | "python3" | "pip" | "pipx" => "install Python: https://www.python.org",
        "docker" => "install Docker: https://docs.docker.com/get-docker",
        "bun" | "bunx" => "install Bun: https://bun.sh",
        "deno" => "install Deno: https://deno.com",
        "cargo" => "install Rust: https://rustup.rs",
        "go" => "install Go: https://go.dev",
        _ => "install it, or give its full path as `command`",
    };
    install.to_owned()
}

/// Returns whether the program of a stdio server exists, looked up in the server's own `PATH` if its `env` sets one.
pub(super) fn program_exists(stdio: &StdioSource) -> bool {
    let command = Path::new(&stdio.command);
    // A path of several components is relative to the working directory, not searched in `PATH`.
    if command.components().count() > 1 || command.is_absolute() {
        let in_cwd = stdio.cwd.as_ref().map_or_else(|| command.to_owned(), |cwd| Path::new(cwd).join(command));
        return in_cwd.is_file() || command.is_file();
    }
    let own_path = stdio.env.get("PATH").map(std::ffi::OsString::from);
    // Without any `PATH` nothing can be checked; assume that the program exists.
    let Some(path) = own_path.or_else(|| std::env::var_os("PATH")) else { return true };
    // Windows starts scripts and programs by their extension.
    let endings: &[&str] = if cfg!(windows) { &["", ".exe", ".cmd", ".bat"] } else { &[""] };
    std::env::split_paths(&path)
        .any(|directory| endings.iter().any(|ending| directory.join(format!("{}{ending}", stdio.command)).is_file()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_on_a_reference_names_the_variable_or_file() {
        let message = "`${env:GITHUB_TOKEN}` cannot be resolved: the variable is not set";
        assert_eq!(for_reference(message), "export GITHUB_TOKEN=… in the environment that Toolcrib runs in");
        let message = "`${file:/run/token}` cannot be resolved: No such file";
        assert_eq!(for_reference(message), "put the value into `/run/token`, readable by you alone");
    }

    #[test]
    fn advice_ignores_the_stderr_of_a_server() {
        let exited = "the server exited while connecting (exit status 1); stderr: EACCES: permission denied, mkdir";
        assert_eq!(find_advice(exited), find_advice("the server exited while connecting (exit status 1)"));
        assert_eq!(
            find_advice("cannot start `./server`: permission denied"),
            Some("make the file executable: `chmod +x`")
        );
    }

    #[test]
    fn advice_on_a_missing_program_names_its_installer() {
        assert_eq!(for_command("npx"), "install Node.js: https://nodejs.org");
        assert_eq!(for_command("/opt/bin/uvx"), "install uv: https://docs.astral.sh/uv");
        assert_eq!(for_command("my-server"), "install it, or give its full path as `command`");
    }
}
