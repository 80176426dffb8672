//! One-line summary of what a source runs or contacts: short for lists, complete for the decision to trust it. Secrets
//! are masked; the masking itself is in `toolcrib_config::show`.
//!
//! For a server that is started with a token in its environment and one in its arguments, the two forms are:
//!
//! ```text
//! MODE=*** TOKEN=*** npx *** --token ***                          a list: every literal that may be secret is masked
//! MODE=*** TOKEN=*** npx pkg-0123456789abcdef0123 --token ***     trust: arguments are visible unless marked as secret
//! ```

use toolcrib::Source;
use toolcrib::config::show::{
    mask_args, mask_args_for_trust, mask_literals, mask_text, mask_url, mask_variable_for_trust,
};
use toolcrib::core::source::{Auth, SourceKind, StdioSource};
use toolcrib::core::text::{sanitize, sanitize_truncated};

/// Returns the command or address of a source in at most 300 characters, with every possible secret masked.
pub(crate) fn summarize_source(source: &Source) -> String {
    let line = match &source.kind {
        // A list shows less than a trust decision: every literal value is masked.
        SourceKind::Stdio(stdio) => render_command_line(stdio, mask_args, |_, value| mask_literals(value)),
        SourceKind::Http(_)
        | SourceKind::Sse(_)
        | SourceKind::OpenApi(_)
        | SourceKind::Workflow(_)
        | SourceKind::Builtin(_) => describe_source(source),
    };
    sanitize_truncated(&line, 300)
}

/// Returns everything that using a source runs or contacts, masking only values that are named as secrets. A person
/// decides about trust by reading this, so a command is quoted for a shell and invisible characters are escaped.
pub(crate) fn describe_source(source: &Source) -> String {
    match &source.kind {
        SourceKind::Stdio(stdio) => render_command_line(stdio, mask_args_for_trust, display_variable),
        SourceKind::Http(remote) | SourceKind::Sse(remote) => escape_invisible(&mask_url(&remote.url)),
        // The document and all other addresses that receive requests or credentials.
        SourceKind::OpenApi(openapi) => {
            let other_urls = openapi.base_url.iter().chain(openapi.auth.iter().flat_map(token_urls));
            let other_urls: Vec<String> = other_urls.map(|url| escape_invisible(&mask_url(url))).collect();
            let document = escape_invisible(&mask_url(&openapi.document));
            if other_urls.is_empty() {
                format!("the API of {document}")
            } else {
                format!("the API of {document} ({})", other_urls.join(", "))
            }
        }
        SourceKind::Workflow(workflow) => {
            format!("the workflows of {}", escape_invisible(&mask_text(&workflow.document)))
        }
        SourceKind::Builtin(builtin) => format!("built-in tools: {}", escape_invisible(&builtin.tools.join(", "))),
    }
}

/// Returns the value of an environment variable for a trust decision. Literal values are masked, except for variables
/// that decide what a program loads, runs or contacts (`LD_PRELOAD`, `NODE_OPTIONS`, `HTTPS_PROXY`).
fn display_variable(name: &str, value: &str) -> String {
    /// Variables of loaders, interpreters, package managers and version control.
    const PREFIXES: [&str; 15] = [
        "LD_",
        "DYLD_",
        "PATH",
        "NODE_",
        "PYTHON",
        "PERL",
        "RUBY",
        "BASH_",
        "JAVA_",
        "_JAVA_",
        "GIT_",
        "NPM_CONFIG_",
        "PIP_",
        "UV_",
        "DOTNET_",
    ];
    /// Variables that name an address, a program or a path.
    const SUFFIXES: [&str; 9] =
        ["_PROXY", "_URL", "_HOST", "_ENDPOINT", "_REGISTRY", "_COMMAND", "_PATH", "_FILE", "_DIR"];
    /// Variables that shells and other programs evaluate.
    const NAMES: [&str; 4] = ["EDITOR", "SHELL", "ENV", "IFS"];
    // Compared in upper case, because Windows ignores the case of variables and curl reads `https_proxy`.
    let upper = name.to_ascii_uppercase();
    let steers_program = PREFIXES.iter().any(|prefix| upper.starts_with(prefix))
        || SUFFIXES.iter().any(|suffix| upper.ends_with(suffix))
        || NAMES.contains(&upper.as_str());
    if steers_program { mask_variable_for_trust(name, value) } else { mask_literals(value) }
}

/// Renders `NAME=value command args… (in cwd)`, each word masked and quoted for a shell.
fn render_command_line(
    stdio: &StdioSource,
    mask_args: impl Fn(&[String]) -> Vec<String>,
    mask_variable: impl Fn(&str, &str) -> String,
) -> String {
    // Order as in a shell: variables, command, arguments; then the working directory.
    let variables = stdio
        .env
        .iter()
        .map(|(name, value)| format!("{}={}", quote_for_shell(name), quote_for_shell(&mask_variable(name, value))));
    let command = mask_args(std::slice::from_ref(&stdio.command)).into_iter().chain(mask_args(&stdio.args));
    let line = variables.chain(command.map(|word| quote_for_shell(&word))).collect::<Vec<_>>().join(" ");
    // The working directory is not shell syntax; it stands behind the command in parentheses.
    match &stdio.cwd {
        Some(cwd) => {
            let cwd: Vec<String> =
                mask_args(std::slice::from_ref(cwd)).iter().map(|word| quote_for_shell(word)).collect();
            format!("{line} (in {})", cwd.join(" "))
        }
        None => line,
    }
}

/// Returns the OAuth token endpoints, which receive the client's credentials.
fn token_urls(auth: &Auth) -> Vec<&String> {
    match auth {
        // Without one, the document has it.
        Auth::Oauth2 { token_url, .. } if token_url.is_empty() => Vec::new(),
        Auth::Oauth2 { token_url, .. } => vec![token_url],
        Auth::Schemes(schemes) => schemes.values().flat_map(token_urls).collect(),
        Auth::Bearer(_) | Auth::Basic { .. } | Auth::ApiKey { .. } => Vec::new(),
    }
}

/// Quotes a word as it would have to be typed in a POSIX shell; words with invisible characters use `$'…'`.
fn quote_for_shell(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_@%+=:,./-".contains(&byte);
    // A masked word cannot be typed anyway and reads better without quotes.
    if !word.is_empty() && word.replace("***", "").bytes().all(is_plain) {
        return word.to_owned();
    }
    let escaped = escape_invisible(word);
    if escaped == word {
        return format!("'{}'", word.replace('\'', r"'\''"));
    }
    // `$'…'` is the only shell quoting that can express control characters.
    let escaped = escape_invisible(&word.replace('\\', r"\\").replace('\'', r"\'"));
    format!("$'{escaped}'")
}

/// Returns the text on one line, with line breaks, control and format characters written as escapes. Text of an
/// untrusted file can then neither hide a part of itself nor move the cursor of the terminal.
pub(crate) fn escape_invisible(text: &str) -> String {
    let mut visible = String::with_capacity(text.len());
    for character in text.chars() {
        let code = u32::from(character);
        match character {
            '\n' => visible.push_str("\\n"),
            '\t' => visible.push_str("\\t"),
            // `sanitize` drops exactly the characters that a terminal would not show.
            _ if sanitize(character.encode_utf8(&mut [0; 4])).is_empty() => {
                visible.push_str(&if code > 0xffff { format!("\\U{code:08x}") } else { format!("\\u{code:04x}") })
            }
            _ => visible.push(character),
        }
    }
    visible
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trust_decision_sees_arguments_that_a_list_masks() {
        let env =
            [("MODE", "fast-mode"), ("TOKEN", "hunter2")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        let args = ["pkg-0123456789abcdef0123", "--token", "hunter2"].map(str::to_owned).to_vec();
        let stdio = StdioSource { command: "npx".into(), args, env: env.into(), ..StdioSource::default() };
        let source = Source { kind: SourceKind::Stdio(stdio), ..Source::embedded() };
        let expected = "MODE=*** TOKEN=*** npx pkg-0123456789abcdef0123 --token ***";
        assert_eq!(describe_source(&source), expected);
        assert_eq!(summarize_source(&source), "MODE=*** TOKEN=*** npx *** --token ***");
    }

    #[test]
    fn words_are_quoted_as_in_a_shell() {
        for (word, expected) in [
            ("-y", "-y"),
            ("@scope/server@1.2", "@scope/server@1.2"),
            ("", "''"),
            ("a b", "'a b'"),
            ("$(rm -rf ~)", "'$(rm -rf ~)'"),
            ("a;b", "'a;b'"),
            ("--token=***", "--token=***"),
            ("*.txt", "'*.txt'"),
            ("it's", r"'it'\''s'"),
            ("a\nb", r"$'a\nb'"),
            ("\u{1b}[2K'", r"$'\u001b[2K\''"),
            ("\u{202e}cod", r"$'\u202ecod'"),
            ("héllo", "'héllo'"),
        ] {
            assert_eq!(quote_for_shell(word), expected);
        }
    }
}
