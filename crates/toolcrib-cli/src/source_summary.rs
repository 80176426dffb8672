//! Small pieces of what commands say.

use toolcrib::Source;
use toolcrib::core::config::show::{
    mask_args, mask_args_for_trust, mask_literals, mask_text, mask_url, mask_variable_for_trust,
};
use toolcrib::core::source::{Auth, SourceKind, StdioSource};
use toolcrib::core::text::{sanitize, sanitize_truncated};

/// `1 tool`, `3 tools`, `2 processes`.
pub(crate) fn pluralize(number: usize, what: &str) -> String {
    match (number, what.ends_with('s')) {
        (1, _) => format!("1 {what}"),
        (_, true) => format!("{number} {what}es"),
        (_, false) => format!("{number} {what}s"),
    }
}

/// The first names of a list, and how many more there are.
pub(crate) fn join_truncated(names: &[String], most: usize) -> String {
    let shown = names.iter().take(most).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(most) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// What using a source runs or contacts, in a line short enough for a list, nothing secret.
pub(crate) fn summarize_source(source: &Source) -> String {
    let line = match &source.kind {
        SourceKind::Stdio(stdio) => render_command_line(stdio, mask_args, |_, value| mask_literals(value)),
        SourceKind::Http(_)
        | SourceKind::Sse(_)
        | SourceKind::OpenApi(_)
        | SourceKind::Workflow(_)
        | SourceKind::Builtin(_) => describe_source(source),
    };
    sanitize_truncated(&line, 300)
}

/// What using a source runs or contacts, all of it, but for what is called secret. A command stands as it would be typed
/// in a shell, and characters that a terminal would not show are written out: a decision is made by reading this.
pub(crate) fn describe_source(source: &Source) -> String {
    match &source.kind {
        SourceKind::Stdio(stdio) => render_command_line(stdio, mask_args_for_trust, display_variable),
        SourceKind::Http(remote) | SourceKind::Sse(remote) => escape_invisible(&mask_url(&remote.url)),
        SourceKind::OpenApi(openapi) => {
            let others = openapi.base_url.iter().chain(openapi.auth.iter().flat_map(token_urls));
            let others: Vec<String> = others.map(|url| escape_invisible(&mask_url(url))).collect();
            let document = escape_invisible(&mask_url(&openapi.document));
            if others.is_empty() {
                format!("the API of {document}")
            } else {
                format!("the API of {document} ({})", others.join(", "))
            }
        }
        SourceKind::Workflow(workflow) => {
            format!("the workflows of {}", escape_invisible(&mask_text(&workflow.document)))
        }
        SourceKind::Builtin(builtin) => format!("built-in tools: {}", escape_invisible(&builtin.tools.join(", "))),
    }
}

/// A value of the environment. Literal values are masked, except of variables that decide what a program runs or contacts.
fn display_variable(name: &str, value: &str) -> String {
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
    const SUFFIXES: [&str; 9] =
        ["_PROXY", "_URL", "_HOST", "_ENDPOINT", "_REGISTRY", "_COMMAND", "_PATH", "_FILE", "_DIR"];
    const NAMES: [&str; 4] = ["EDITOR", "SHELL", "ENV", "IFS"];
    let upper = name.to_ascii_uppercase();
    let decides = PREFIXES.iter().any(|prefix| upper.starts_with(prefix))
        || SUFFIXES.iter().any(|suffix| upper.ends_with(suffix))
        || NAMES.contains(&upper.as_str());
    if decides { mask_variable_for_trust(name, value) } else { mask_literals(value) }
}

fn render_command_line(
    stdio: &StdioSource,
    mask_args: impl Fn(&[String]) -> Vec<String>,
    mask_variable: impl Fn(&str, &str) -> String,
) -> String {
    let variables = stdio
        .env
        .iter()
        .map(|(name, value)| format!("{}={}", quote_for_shell(name), quote_for_shell(&mask_variable(name, value))));
    let command = mask_args(std::slice::from_ref(&stdio.command)).into_iter().chain(mask_args(&stdio.args));
    let line = variables.chain(command.map(|word| quote_for_shell(&word))).collect::<Vec<_>>().join(" ");
    match &stdio.cwd {
        Some(cwd) => {
            let cwd: Vec<String> =
                mask_args(std::slice::from_ref(cwd)).iter().map(|word| quote_for_shell(word)).collect();
            format!("{line} (in {})", cwd.join(" "))
        }
        None => line,
    }
}

/// Where credentials are shown for a token.
fn token_urls(auth: &Auth) -> Vec<&String> {
    match auth {
        Auth::Oauth2 { token_url, .. } => vec![token_url],
        Auth::Schemes(schemes) => schemes.values().flat_map(token_urls).collect(),
        Auth::Bearer(_) | Auth::Basic { .. } | Auth::ApiKey { .. } => Vec::new(),
    }
}

/// A word as a shell would need it to be typed.
fn quote_for_shell(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_@%+=:,./-".contains(&byte);
    // What is masked is not typed in any case, and reads better without quotes.
    if !word.is_empty() && word.replace("***", "").bytes().all(is_plain) {
        return word.to_owned();
    }
    let escaped = escape_invisible(word);
    if escaped == word {
        return format!("'{}'", word.replace('\'', r"'\''"));
    }
    let escaped = escape_invisible(&word.replace('\\', r"\\").replace('\'', r"\'"));
    format!("$'{escaped}'")
}

/// Text on one line in which every character can be seen.
pub(crate) fn escape_invisible(text: &str) -> String {
    let mut visible = String::with_capacity(text.len());
    for character in text.chars() {
        let code = u32::from(character);
        match character {
            '\n' => visible.push_str("\\n"),
            '\t' => visible.push_str("\\t"),
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
    fn a_long_list_is_shortened() {
        let names = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(join_truncated(&names, 3), "a, b, c");
        assert_eq!(join_truncated(&names, 1), "a and 2 more");
    }

    #[test]
    fn a_decision_sees_what_a_list_masks() {
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
