//! Environment variables that child processes inherit: enough to run, and no credentials.
//!
//! Used for stdio servers and for the built-in tool `bash`. A variable that a server needs beyond these is named in
//! `inherit_env` of its source, or given a value in `env`.

use std::ffi::{OsStr, OsString};

/// Directories of the XDG base directory specification. Listed by name: other variables with the prefix `XDG_` belong
/// to the desktop session, and some are secret (`XDG_ACTIVATION_TOKEN`).
pub const XDG_DIRECTORIES: [&str; 7] = [
    "XDG_CONFIG_HOME",
    "XDG_CACHE_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "XDG_RUNTIME_DIR",
    "XDG_CONFIG_DIRS",
    "XDG_DATA_DIRS",
];

/// Inherited unchanged. Names only, no patterns: a pattern such as `*_PATH` would match variables of unknown content.
const INHERITED_NAMES: [&str; 14] = [
    "PATH",
    "HOME",
    "USER",
    "LANG",
    "TMPDIR",
    // Locations of CA certificates, needed behind TLS-inspecting proxies.
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

/// Proxy variables, in upper or lower case since programs disagree. Inherited without credentials.
const PROXY_NAMES: [&str; 3] = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"];
/// Host names for which no proxy is used; contains no credentials.
const NO_PROXY_NAME: &str = "NO_PROXY";

/// Required by most programs on Windows.
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

/// Selects the variables that a server inherits: the standard names, proxies without credentials, and those in
/// `inherit` unchanged. Everything else is dropped, since the environment of Toolcrib may hold tokens of other servers.
pub fn clean_env(
    variables: impl Iterator<Item = (OsString, OsString)>,
    inherit: &[String],
) -> Vec<(OsString, OsString)> {
    variables
        .filter_map(|(name, value)| {
            if inherit.iter().any(|listed| is_same_name(&name, listed)) || is_inherited(&name) {
                return Some((name, value));
            }
            if !is_one_of(&name, &PROXY_NAMES) {
                return None;
            }
            // A value that is not Unicode cannot be checked for credentials, so it is dropped.
            let stripped = strip_credentials(value.to_str()?);
            Some((name, stripped.into()))
        })
        .collect()
}

/// Removes `user:password@` from the URL of a proxy.
fn strip_credentials(proxy: &str) -> String {
    // Not parsed as a URL: values without a scheme, which programs accept as well, would not parse.
    let (scheme, rest) = match proxy.find("://") {
        Some(at) => proxy.split_at(at + 3),
        None => ("", proxy),
    };
    // An unencoded password may contain `/`, `:` or `@`; the host comes after the last `@`.
    match rest.rfind('@') {
        Some(at) => format!("{scheme}{}", &rest[at + 1..]),
        None => proxy.to_owned(),
    }
}

/// Whether a name is in the list, in upper or lower case.
fn is_one_of(name: &OsStr, names: &[&str]) -> bool {
    names.iter().any(|listed| name == *listed || name == listed.to_ascii_lowercase().as_str())
}

/// Whether a variable is inherited by default.
fn is_inherited(name: &OsStr) -> bool {
    // All inherited names are Unicode.
    let Some(name) = name.to_str() else { return false };
    // Windows does not distinguish case in the names of variables; elsewhere `Path` is another variable than `PATH`.
    let upper_name = name.to_ascii_uppercase();
    if cfg!(windows)
        && (WINDOWS_NAMES.contains(&upper_name.as_str())
            || upper_name == "TMP"
            || INHERITED_NAMES.contains(&upper_name.as_str()))
    {
        return true;
    }
    INHERITED_NAMES.contains(&name) || XDG_DIRECTORIES.contains(&name) || is_one_of(OsStr::new(name), &[NO_PROXY_NAME])
}

/// Compares names as the platform does.
fn is_same_name(name: &OsStr, listed: &str) -> bool {
    if cfg!(windows) { name.eq_ignore_ascii_case(listed) } else { name == listed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_gets_the_named_variables_and_proxies_without_credentials() {
        let variables = [
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
        let variables = variables.map(|(name, value)| (OsString::from(name), OsString::from(value)));
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
        assert_eq!(clean_env(variables.into_iter(), &["WANTED".to_owned()]), expected);
    }
}
