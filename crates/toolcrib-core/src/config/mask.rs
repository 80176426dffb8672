//! Addresses and arguments fit to be shown: people put secrets into both.

use crate::reference::masked;

/// An address without the user's name and password and without the literal values of its query.
pub fn shown_url(url: &str) -> String {
    let (address, query) = match url.split_once('?') {
        Some((address, query)) => (address, Some(query)),
        None => (url, None),
    };
    let mut shown = match address.split_once("://") {
        Some((scheme, rest)) => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            match authority.rsplit_once('@') {
                Some((_, host)) => format!("{scheme}://***@{host}{path}"),
                None => address.to_owned(),
            }
        }
        None => address.to_owned(),
    };
    for (index, pair) in query.iter().flat_map(|query| query.split('&')).enumerate() {
        shown.push(if index == 0 { '?' } else { '&' });
        match pair.split_once('=') {
            Some((name, value)) => shown.push_str(&format!("{name}={}", masked(value))),
            None => shown.push_str(pair),
        }
    }
    shown
}

/// Arguments without what follows a telling name, as in `--token x`, `--api-key=x`, `Authorization: x`, and without
/// what addresses hide. It is a courtesy: a secret under a plain name is not recognised.
pub fn shown_args(args: &[String]) -> Vec<String> {
    let mut shown = Vec::with_capacity(args.len());
    let mut secret_follows = false;
    for arg in args {
        let is_value = secret_follows && !arg.starts_with('-');
        secret_follows = arg.starts_with('-') && !arg.contains('=') && sounds_secret(arg);
        shown.push(if is_value { masked(arg) } else { shown_arg(arg) });
    }
    shown
}

fn shown_arg(arg: &str) -> String {
    for separator in ['=', ':'] {
        let named = arg.split_once(separator).filter(|(name, _)| !name.contains("://") && sounds_secret(name));
        if let Some((name, value)) = named {
            return format!("{name}{separator}{}", masked(value));
        }
    }
    if arg.contains("://") {
        return shown_url(arg);
    }
    if let Some((scheme, _)) = arg.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")) {
        return format!("{scheme} ***");
    }
    if looks_secret(arg) { masked(arg) } else { arg.to_owned() }
}

fn sounds_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace(['-', '_'], "");
    let telling = ["token", "secret", "password", "passwd", "apikey", "accesskey", "privatekey", "authorization"];
    let whole = ["auth", "bearer", "cookie", "credentials", "key", "pass", "pat", "pw"];
    telling.iter().any(|word| name.contains(word)) || whole.contains(&name.as_str())
}

/// By how well-known services begin theirs.
fn looks_secret(value: &str) -> bool {
    let beginnings = ["sk-", "ghp_", "gho_", "ghs_", "github_pat_", "glpat-", "xoxb-", "xoxp-", "AKIA", "eyJ", "tcb_"];
    value.len() >= 12 && beginnings.iter().any(|beginning| value.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_hides_its_secrets() {
        for (url, expected) in [
            ("https://a.example/mcp", "https://a.example/mcp"),
            ("https://me:pw@a.example:8/mcp?x", "https://***@a.example:8/mcp?x"),
            ("https://a/mcp?key=abc&t=${env:T}", "https://a/mcp?key=***&t=${env:T}"),
            ("${env:URL}", "${env:URL}"),
        ] {
            assert_eq!(shown_url(url), expected);
        }
    }

    #[test]
    fn arguments_hide_their_secrets() {
        for (args, expected) in [
            ("-y server /data", "-y server /data"),
            ("--api-key=abc --API_KEY abc next", "--api-key=*** --API_KEY *** next"),
            ("--token ${env:T} --token --verbose", "--token ${env:T} --token --verbose"),
            ("--header Authorization:abc", "--header Authorization:***"),
            ("--key abc --auth=abc --author me", "--key *** --auth=*** --author me"),
            ("ghp_0123456789abcdef sk-short", "*** sk-short"),
            ("https://u:pw@h/x?token=zz", "https://***@h/x?token=***"),
            ("postgres://me:pw@db/x --url=http://a?k=v", "postgres://***@db/x --url=http://a?k=***"),
        ] {
            let args: Vec<String> = args.split(' ').map(str::to_owned).collect();
            assert_eq!(shown_args(&args).join(" "), expected);
        }
    }
}
