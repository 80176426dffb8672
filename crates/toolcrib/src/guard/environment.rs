//! The part of our environment that a child process gets: enough to run, and no credentials.

use std::ffi::{OsStr, OsString};

/// The directories of the XDG base directory specification, by name: other variables that begin with `XDG_` belong to
/// the desktop session, and some are secret (`XDG_ACTIVATION_TOKEN`).
pub(crate) const XDG_DIRECTORIES: [&str; 7] = [
    "XDG_CONFIG_HOME",
    "XDG_CACHE_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "XDG_RUNTIME_DIR",
    "XDG_CONFIG_DIRS",
    "XDG_DATA_DIRS",
];

const INHERITED_NAMES: [&str; 14] = [
    "PATH",
    "HOME",
    "USER",
    "LANG",
    "TMPDIR",
    // Where certificates are found behind a company's proxy.
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "PIP_CERT",
    "GIT_SSL_CAINFO",
    "AWS_CA_BUNDLE",
    "CARGO_HTTP_CAINFO",
];

/// Read in both cases, for programs disagree. Passed on without credentials.
const PROXY_NAMES: [&str; 3] = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"];
const NO_PROXY_NAME: &str = "NO_PROXY";

/// Without these hardly a program starts on Windows.
const WINDOWS_NAMES: [&str; 14] = [
    "SYSTEMROOT",
    "SYSTEMDRIVE",
    "WINDIR",
    "APPDATA",
    "LOCALAPPDATA",
    "PROGRAMDATA",
    "PROGRAMFILES",
    "USERPROFILE",
    "USERNAME",
    "HOMEDRIVE",
    "HOMEPATH",
    "PATHEXT",
    "COMSPEC",
    "TEMP",
];

/// The part of `own` that a server gets: the usual names, and those in `inherit` as they are. Nothing else.
pub fn clean_env(own: impl Iterator<Item = (OsString, OsString)>, inherit: &[String]) -> Vec<(OsString, OsString)> {
    own.filter_map(|(name, value)| {
        if inherit.iter().any(|wanted| is_same_name(&name, wanted)) || is_inherited(&name) {
            return Some((name, value));
        }
        if !is_one_of(&name, &PROXY_NAMES) {
            return None;
        }
        // A value that is not Unicode cannot be examined for credentials.
        let without = strip_credentials(value.to_str()?);
        Some((name, without.into()))
    })
    .collect()
}

/// The address of a proxy without `user:password@`.
fn strip_credentials(proxy: &str) -> String {
    let (scheme, rest) = match proxy.find("://") {
        Some(at) => proxy.split_at(at + 3),
        None => ("", proxy),
    };
    // A password may hold any of these when it is written carelessly; what is behind the last `@` is the host.
    match rest.rfind('@') {
        Some(at) => format!("{scheme}{}", &rest[at + 1..]),
        None => proxy.to_owned(),
    }
}

fn is_one_of(name: &OsStr, names: &[&str]) -> bool {
    names.iter().any(|wanted| name == *wanted || name == wanted.to_ascii_lowercase().as_str())
}

fn is_inherited(name: &OsStr) -> bool {
    // A name that is not Unicode is none of ours.
    let Some(name) = name.to_str() else { return false };
    let upper = name.to_ascii_uppercase();
    if cfg!(windows)
        && (WINDOWS_NAMES.contains(&upper.as_str()) || upper == "TMP" || INHERITED_NAMES.contains(&upper.as_str()))
    {
        return true;
    }
    INHERITED_NAMES.contains(&name) || XDG_DIRECTORIES.contains(&name) || is_one_of(OsStr::new(name), &[NO_PROXY_NAME])
}

fn is_same_name(name: &OsStr, wanted: &str) -> bool {
    if cfg!(windows) { name.eq_ignore_ascii_case(wanted) } else { name == wanted }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_gets_the_named_variables_and_proxies_without_credentials() {
        let own = [
            ("PATH", "/bin"),
            ("LC_ALL", "C"),
            ("XDG_CACHE_HOME", "/c"),
            ("XDG_SESSION_ID", "7"),
            ("XDG_ACTIVATION_TOKEN", "secret"),
            ("GITHUB_TOKEN", "secret"),
            ("WANTED", "value"),
            ("http_proxy", "http://me:pw@proxy:3128/"),
            ("HTTPS_PROXY", "me:p@ss/w@proxy:3128"),
            ("all_proxy", "socks5h://me@[::1]:9050"),
            ("no_proxy", "localhost,a@b"),
        ];
        let own = own.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let expected = [
            ("PATH", "/bin"),
            ("XDG_CACHE_HOME", "/c"),
            ("WANTED", "value"),
            ("http_proxy", "http://proxy:3128/"),
            ("HTTPS_PROXY", "proxy:3128"),
            ("all_proxy", "socks5h://[::1]:9050"),
            ("no_proxy", "localhost,a@b"),
        ];
        let expected = expected.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        assert_eq!(clean_env(own.into_iter(), &["WANTED".to_owned()]), expected);
    }
}
