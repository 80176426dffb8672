//! Small pieces of what commands say.

use toolcrib::Source;
use toolcrib::core::config::show::{shown_args, shown_url};
use toolcrib::core::source::{Auth, Kind};
use toolcrib::core::text::shown_short;

/// `1 tool`, `3 tools`, `2 processes`.
pub(crate) fn counted(number: usize, what: &str) -> String {
    match (number, what.ends_with('s')) {
        (1, _) => format!("1 {what}"),
        (_, true) => format!("{number} {what}es"),
        (_, false) => format!("{number} {what}s"),
    }
}

/// The first names of a list, and how many more there are.
pub(crate) fn shortened(names: &[String], most: usize) -> String {
    let shown = names.iter().take(most).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(most) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// What using a source runs or contacts, in one line, nothing secret.
pub(crate) fn reached_by(source: &Source) -> String {
    let text = match &source.kind {
        Kind::Stdio(stdio) => {
            let variables = stdio.env.keys().map(|name| format!("{name}=***"));
            let words = variables.chain([stdio.command.clone()]).chain(shown_args(&stdio.args));
            let line = words.map(|word| quoted(&word)).collect::<Vec<_>>().join(" ");
            match &stdio.cwd {
                Some(cwd) => format!("{line} (in {cwd})"),
                None => line,
            }
        }
        Kind::Http(remote) | Kind::Sse(remote) => shown_url(&remote.url),
        Kind::OpenApi(openapi) => {
            let others = openapi.base_url.iter().chain(openapi.auth.iter().flat_map(token_urls));
            let others: Vec<String> = others.map(|url| shown_url(url)).collect();
            match others.is_empty() {
                true => format!("the API of {}", shown_url(&openapi.document)),
                false => format!("the API of {} ({})", shown_url(&openapi.document), others.join(", ")),
            }
        }
        Kind::Workflow(workflow) => format!("the workflows of {}", workflow.document),
        Kind::Builtin(builtin) => format!("built-in tools: {}", builtin.tools.join(", ")),
    };
    shown_short(&text, 300)
}

/// Where credentials are shown for a token.
fn token_urls(auth: &Auth) -> Vec<&String> {
    match auth {
        Auth::Oauth2 { token_url, .. } => vec![token_url],
        Auth::Schemes(schemes) => schemes.values().flat_map(token_urls).collect(),
        Auth::Bearer(_) | Auth::Basic { .. } | Auth::ApiKey { .. } => Vec::new(),
    }
}

fn quoted(word: &str) -> String {
    if word.is_empty() || word.contains(char::is_whitespace) { format!("'{word}'") } else { word.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_is_shortened() {
        let names = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(shortened(&names, 3), "a, b, c");
        assert_eq!(shortened(&names, 1), "a and 2 more");
    }
}
