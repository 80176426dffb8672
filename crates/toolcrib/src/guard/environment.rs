//! What a server sees of our environment: enough to run, nothing to steal.

use std::ffi::{OsStr, OsString};

const NAMES: [&str; 14] = [
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

/// Read in both cases, for programs disagree.
const PROXIES: [&str; 4] = ["HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"];

const PREFIXES: [&str; 2] = ["XDG_", "LC_"];

/// Without these hardly a program starts on Windows.
const WINDOWS: [&str; 14] = [
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

/// The part of `own` that a server gets: the usual names, and those in `inherit`. Nothing else.
pub fn clean_env(own: impl Iterator<Item = (OsString, OsString)>, inherit: &[String]) -> Vec<(OsString, OsString)> {
    own.filter(|(name, _)| is_usual(name) || inherit.iter().any(|wanted| same_name(name, wanted))).collect()
}

fn is_usual(name: &OsStr) -> bool {
    // A name that is not Unicode is none of ours.
    let Some(name) = name.to_str() else { return false };
    let upper = name.to_ascii_uppercase();
    if cfg!(windows) && (WINDOWS.contains(&upper.as_str()) || upper == "TMP" || NAMES.contains(&upper.as_str())) {
        return true;
    }
    NAMES.contains(&name)
        || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || PROXIES.iter().any(|proxy| name == *proxy || name == proxy.to_ascii_lowercase())
}

fn same_name(name: &OsStr, wanted: &str) -> bool {
    if cfg!(windows) { name.eq_ignore_ascii_case(wanted) } else { name == wanted }
}
