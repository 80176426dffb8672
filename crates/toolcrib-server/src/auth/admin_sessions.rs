//! Console sessions of the administrator end when the token is replaced that they were started with.
//!
//! They are stored with a keyed hash of that token and accepted on all nodes of the store, because the nodes may have
//! different tokens in their files. So a node remembers the hash in its data directory; when it starts with another token,
//! it ends the sessions of the old one. Nodes with the variable `TOOLCRIB_ADMIN_TOKEN` are meant to have the same value and
//! may start with an empty data directory, so they accept no session of another value either.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use toolcrib::core::ResultExt;
use toolcrib::private_dir::ensure_private_directory;
use toolcrib::registry::Logins;
use toolcrib::{Code, Error, Result};

use super::admin_token::{AdminToken, AdminTokenOrigin, replace_private_file};

/// Name of the file in the data directory that has the hash of the token of the last start.
const HASH_FILE_NAME: &str = "admin.sessions";
/// Prefix of the hashes of tokens in files. No id of a stored token has a colon.
const FILE_PREFIX: &str = "admin-file:";
/// Prefix of the hashes of tokens in the variable.
const VARIABLE_PREFIX: &str = "admin-variable:";

/// Representation of the administrator's token of this node in stored sessions and links.
#[derive(Debug)]
pub(super) struct AdminSessions {
    /// Credential of new sessions and links.
    pub(super) credential: String,
    /// Credential of the token that this node had at its last start, if it was another one.
    former: Option<String>,
    origin: AdminTokenOrigin,
    data_dir: PathBuf,
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
        let former = match fs::read_to_string(&path) {
            Ok(text) => Some(text.trim().to_owned()).filter(|former| *former != credential),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                let message = format!("`{}` cannot be read: {error}", path.display());
                return Err(Error::new(Code::ConfigInvalid, message).with_cause(error));
            }
        };
        Ok(AdminSessions { credential, former, origin: token.origin, data_dir: data_dir.to_owned() })
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

    /// Ends the sessions and links of the token that this node had before, and remembers the current one.
    pub(super) async fn end_former(&self, logins: &Logins) -> Result<()> {
        if let Some(former) = &self.former {
            logins.end_credential(former).await?;
            tracing::info!("the administrator's token was replaced; console sessions of the former one have ended");
        }
        // Afterwards, so that a failure is made up for at the next start.
        replace_private_file(&self.data_dir, HASH_FILE_NAME, &self.credential)
            .context(Code::Internal, "remember the administrator's token in the data directory")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_of_other_nodes_are_accepted_unless_their_token_was_replaced() {
        let accepted = |origin, own: &str, former: Option<&str>| {
            let former = former.map(str::to_owned);
            let sessions = AdminSessions { credential: own.into(), former, origin, data_dir: PathBuf::new() };
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
