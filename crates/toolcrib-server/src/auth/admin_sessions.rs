//! Console sessions of the administrator end when the token is replaced that they were started with.
//!
//! They are stored with a keyed hash of that token and accepted on all nodes of the store, because the nodes may have
//! different tokens in their files. So a node remembers the hash in its data directory, for each store that it was
//! started with; when it starts with another token, it ends the sessions of the old one. Nodes with the variable
//! `TOOLCRIB_ADMIN_TOKEN` are meant to have the same value and may start with an empty data directory, so they accept
//! no session of another value either.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use toolcrib::private_dir::ensure_private_directory;
use toolcrib::registry::Logins;
use toolcrib::{Code, Error, Result};

use super::admin_token::{AdminToken, AdminTokenOrigin, replace_private_file};

/// Name of the file in the data directory that has the hash of the token of the last start: a line per store, with the
/// tag of the store and the hash.
const HASH_FILE_NAME: &str = "admin.sessions";
/// Maximum number of stores in the file. Every store in memory is another one.
const MAX_STORES: usize = 50;
/// Prefix of the hashes of tokens in files. No id of a stored token has a colon.
const FILE_PREFIX: &str = "admin-file:";
/// Prefix of the hashes of tokens in the variable.
const VARIABLE_PREFIX: &str = "admin-variable:";

/// Representation of the administrator's token of this node in stored sessions and links.
#[derive(Debug)]
pub(super) struct AdminSessions {
    /// Credential of new sessions and links.
    pub(super) credential: String,
    /// Credential of the token that this node had at its last start with the store, if it was another one.
    former: Option<String>,
    origin: AdminTokenOrigin,
    data_dir: PathBuf,
    /// New content of the file; `None` if it is current.
    changed_file: Option<String>,
}

impl AdminSessions {
    /// Compares the token with the one of the last start.
    pub(super) fn open(data_dir: &Path, token: &AdminToken, logins: &Logins) -> Result<AdminSessions> {
        ensure_private_directory(data_dir)?;
        let prefix = match token.origin {
            AdminTokenOrigin::File => FILE_PREFIX,
            AdminTokenOrigin::Variable => VARIABLE_PREFIX,
        };
        let credential = format!("{prefix}{}", logins.secret_tag(&token.hash));
        let path = data_dir.join(HASH_FILE_NAME);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => {
                let message = format!(
                    "`{}` cannot be read: {error}; make it readable for the user of this process, or remove it",
                    path.display()
                );
                return Err(Error::new(Code::ConfigInvalid, message).with_cause(error));
            }
        };
        let (remembered, changed_file) = remember(&text, &logins.store_tag(), &credential);
        let former = remembered.filter(|former| *former != credential);
        Ok(AdminSessions { credential, former, origin: token.origin, data_dir: data_dir.to_owned(), changed_file })
    }

    /// Whether a stored credential is that of an administrator's token.
    pub(super) fn is_admin(credential: &str) -> bool {
        credential.starts_with(FILE_PREFIX) || credential.starts_with(VARIABLE_PREFIX)
    }

    /// Whether sessions of this credential are accepted: those of this node, and those of other nodes unless they were
    /// started with another value of the variable.
    pub(super) fn accepts(&self, credential: &str) -> bool {
        if credential == self.credential {
            return true;
        }
        let may_be_replaced = self.origin == AdminTokenOrigin::Variable && credential.starts_with(VARIABLE_PREFIX);
        AdminSessions::is_admin(credential) && !may_be_replaced && self.former.as_deref() != Some(credential)
    }

    /// Ends the sessions and links of the token that this node had before, and remembers the current one. A failure is
    /// logged.
    pub(super) async fn end_former(&self, logins: &Logins) {
        if let Some(former) = &self.former {
            if let Err(error) = logins.end_credential(former).await {
                // Not remembered, so that it is made up for at the next start.
                tracing::warn!(%error, "console sessions of the former admin token may be accepted on other nodes until the next start");
                return;
            }
            tracing::info!("the administrator's token was replaced; console sessions of the former one have ended");
        }
        let Some(text) = &self.changed_file else { return };
        if let Err(error) = replace_private_file(&self.data_dir, HASH_FILE_NAME, text.trim_end()) {
            tracing::warn!(%error, "the admin token cannot be remembered in the data directory; its console sessions go on when it is replaced");
        }
    }
}

/// Returns the credential that the file has for a store, and the new content of the file if it has another one than the
/// current. The line of the store becomes the last one, and the oldest lines are dropped.
fn remember(text: &str, store_tag: &str, credential: &str) -> (Option<String>, Option<String>) {
    let lines: Vec<(&str, &str)> = text.lines().filter_map(|line| line.split_once(' ')).collect();
    let remembered = lines.iter().find(|(tag, _)| *tag == store_tag).map(|(_, remembered)| (*remembered).to_owned());
    if remembered.as_deref() == Some(credential) {
        return (remembered, None);
    }
    let mut lines: Vec<_> = lines.into_iter().filter(|(tag, _)| *tag != store_tag).collect();
    lines.drain(..lines.len().saturating_sub(MAX_STORES - 1));
    lines.push((store_tag, credential));
    let text = lines.into_iter().map(|(tag, credential)| format!("{tag} {credential}\n")).collect();
    (remembered, Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: there was one line for all stores, so that an unchanged token counted as replaced with another store.
    #[test]
    fn the_token_is_remembered_for_each_store() {
        let former = |credential: &str| Some(credential.to_owned());
        let (none, first) = remember("", "s1", "a");
        assert_eq!((none, first.as_deref()), (None, Some("s1 a\n")));
        let (none, both) = remember("s1 a\n", "s2", "a");
        assert_eq!((none, both.as_deref()), (None, Some("s1 a\ns2 a\n")));
        assert_eq!(remember("s1 a\ns2 a\n", "s1", "a"), (former("a"), None));
        assert_eq!(remember("s1 a\ns2 b\n", "s1", "c"), (former("a"), former("s2 b\ns1 c\n")));
        let many: String = (0..100).map(|number| format!("s{number} a\n")).collect();
        let (_, kept) = remember(&many, "new", "a");
        let kept = kept.unwrap();
        assert_eq!(
            (kept.lines().count(), kept.lines().next(), kept.lines().last()),
            (50, Some("s51 a"), Some("new a"))
        );
    }

    #[test]
    fn sessions_of_other_nodes_are_accepted_unless_their_token_was_replaced() {
        let accepted = |origin, own: &str, former: Option<&str>| {
            let former = former.map(str::to_owned);
            let (data_dir, changed_file) = (PathBuf::new(), None);
            let sessions = AdminSessions { credential: own.into(), former, origin, data_dir, changed_file };
            ["admin-file:1", "admin-file:2", "admin-variable:1", "admin-variable:2", "", "0123456789ab"]
                .into_iter()
                .filter(|credential| sessions.accepts(credential))
                .collect::<Vec<_>>()
        };
        let (file, variable) = (AdminTokenOrigin::File, AdminTokenOrigin::Variable);
        let all = ["admin-file:1", "admin-file:2", "admin-variable:1", "admin-variable:2"];
        assert_eq!(accepted(file, "admin-file:1", None), all);
        assert_eq!(accepted(file, "admin-file:1", Some("admin-file:2")), [all[0], all[2], all[3]]);
        assert_eq!(accepted(variable, "admin-variable:1", None), all[..3]);
        assert_eq!(accepted(variable, "admin-variable:1", Some("admin-file:1")), all[1..3]);
    }
}
