//! Turns errors of PostgreSQL and of the connection to it into `STORE_UNAVAILABLE` with a message that names the next
//! step. The original error is the cause, for the log.
//!
//! Errors of an opening name the database by its [`DatabaseName`], which has no password. Later errors may reach any
//! client of a server, so they name no database; see [`StoreLabel`]. The texts of connection errors are not repeated.

use std::fmt;
use std::io::ErrorKind;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use toolcrib_core::time::format_duration;
use toolcrib_core::{Code, Error};

use crate::store::{NodeStatus, StoreState, VERIFY_HINT, mark_contract_pending};

/// A database as messages name it: `postgres://user@host:port/database`, with the options of the URL, which may select
/// a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DatabaseName(String);

impl DatabaseName {
    pub(super) fn new(options: &PgConnectOptions) -> DatabaseName {
        let user = options.get_username();
        let database = options.get_database().unwrap_or(user);
        let port = options.get_port();
        let server = match options.get_socket() {
            // The port is a part of the name of the socket.
            Some(socket) => format!("{}:{port}", socket.display()),
            None if options.get_host().contains(':') => format!("[{}]:{port}", options.get_host()),
            None => format!("{}:{port}", options.get_host()),
        };
        let options = options.get_options().map(|options| format!("?options={options}")).unwrap_or_default();
        DatabaseName(format!("postgres://{user}@{server}/{database}{options}"))
    }
}

impl fmt::Display for DatabaseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The store at the beginning of a message.
#[derive(Debug, Clone, Copy)]
pub(super) enum StoreLabel<'a> {
    /// For messages to the administrator at the start.
    Opening(&'a DatabaseName),
    /// For clients of a running process, which are not told where it keeps its store.
    Running,
}

impl fmt::Display for StoreLabel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreLabel::Opening(database) => write!(f, "the store `{database}`"),
            StoreLabel::Running => f.write_str("the store"),
        }
    }
}

/// Converts an error of the database or of the connection.
pub(super) fn store_error(store: StoreLabel<'_>, error: sqlx::Error) -> Error {
    let code = error.as_database_error().and_then(|error| error.code()).unwrap_or_default().into_owned();
    // https://www.postgresql.org/docs/current/errcodes-appendix.html
    let (message, retryable) = match code.as_str() {
        "28P01" | "28000" => (format!("{store} refuses this user or password; check the URL of the store"), false),
        "3D000" => match store {
            StoreLabel::Opening(_) => (format!("{store} does not exist; create the database with `createdb`"), false),
            StoreLabel::Running => {
                let message = format!("{store} is missing: its database was removed{VERIFY_HINT}");
                return StoreState::Missing.annotate(Error::new(Code::StoreUnavailable, message)).with_cause(error);
            }
        },
        "42501" | "3F000" => {
            let message =
                format!("the user of {store} lacks rights; it must own its tables, or may create them in the schema");
            (message, false)
        }
        // After a failover the address may lead to a standby, until it does not any more.
        "25006" => {
            (format!("{store} is read-only: the server is a standby; connect to the primary, or try again"), true)
        }
        "53300" => (format!("{store} has no connection left; raise its `max_connections`"), true),
        "53100" => (format!("the disk of {store} is full; free some space"), true),
        "55P03" | "57014" | "40001" | "40P01" | "25P03" => (format!("{store} is busy; try again"), true),
        // Starting, stopping, or ended by its administrator.
        "57P01" | "57P02" | "57P03" => (format!("{store} is starting or stopping; try again"), true),
        // Missing tables or columns.
        "42P01" | "42703" => {
            let message = format!("{store} is damaged: tables or columns are missing{VERIFY_HINT}");
            return StoreState::Damaged.annotate(Error::new(Code::StoreUnavailable, message)).with_cause(error);
        }
        // A table that another program created meanwhile.
        "42P07" => return incomplete_schema_error(store).with_cause(error),
        "08P01" if error.to_string().contains("startup parameter") => {
            let message = format!(
                "{store} is behind a connection pooler that refuses the parameter `options`; connect to PostgreSQL \
                 directly, or list `options` in `ignore_startup_parameters` and pool sessions"
            );
            (message, false)
        }
        "" => describe_connection_error(store, &error),
        _ => (format!("{store} failed"), true),
    };
    Error::new(Code::StoreUnavailable, message).with_retryable(retryable).with_cause(error)
}

/// Returns the message for an error that the database did not send, and whether it is retryable.
fn describe_connection_error(store: StoreLabel<'_>, error: &sqlx::Error) -> (String, bool) {
    // A certificate that is refused ends the handshake with this kind.
    let has_kind = |expected| matches!(error, sqlx::Error::Io(error) if error.kind() == expected);
    let is_refused_tls = matches!(error, sqlx::Error::Tls(_)) || has_kind(ErrorKind::InvalidData);
    if is_refused_tls {
        let message = format!(
            "{store} has no acceptable TLS connection: its certificate or host name is refused, or it has no TLS; check \
             `sslmode` and `sslrootcert` in the URL"
        );
        return (message, false);
    }
    if has_kind(ErrorKind::NotFound) {
        return (format!("{store} cannot be reached: a file or socket that its URL names does not exist"), false);
    }
    if matches!(error, sqlx::Error::Io(_) | sqlx::Error::WorkerCrashed | sqlx::Error::Protocol(_)) {
        return (format!("{store} cannot be reached; check that the database is running, and the URL"), true);
    }
    (format!("{store} failed"), true)
}

/// Whether an error is of the way to the database, so that other attempts would fail as well.
pub(super) fn is_outage(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    matches!(error, sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_))
        || matches!(code.as_deref(), Some("57P01" | "57P02" | "57P03"))
}

/// The database does not answer in time.
pub(super) fn no_answer_error(store: StoreLabel<'_>, limit: Duration) -> Error {
    Error::new(Code::StoreUnavailable, format!("{store} did not answer within {}; try again", format_duration(limit)))
}

/// The database could not be reached a moment ago, and is not asked again yet.
pub(super) fn outage_error() -> Error {
    let message = format!("{} cannot be reached; check that the database is running", StoreLabel::Running);
    Error::new(Code::StoreUnavailable, message)
}

/// All connections of this process are in use. The store itself works.
pub(super) fn busy_pool_error(max_connections: usize) -> Error {
    let message = format!("the store is busy: all {max_connections} connections of this process are in use; try again");
    StoreState::Ok.annotate(Error::new(Code::StoreUnavailable, message)).with_retryable(true)
}

/// The store was closed by this process.
pub(super) fn closed_error() -> Error {
    Error::new(Code::StoreUnavailable, "the store is closed").with_retryable(false)
}

/// The answer to a commit was lost, and the database cannot tell yet whether it was executed.
pub(super) fn unknown_outcome_error(error: sqlx::Error) -> Error {
    let message = "the store did not confirm the change, which may have been written; check before you repeat it";
    Error::new(Code::StoreUnavailable, message).with_retryable(false).with_cause(error)
}

/// A database that may never have been in use holds no tables.
pub(super) fn no_store_error(store: StoreLabel<'_>) -> Error {
    let message = format!("{store} holds no tables; check the URL, or run `toolcrib serve` with it once");
    StoreState::Missing.annotate(Error::new(Code::StoreUnavailable, message)).with_retryable(false)
}

/// A store that was in use before is empty. `what` is e.g. "holds no tables".
pub(super) fn lost_store_error(store: StoreLabel<'_>, what: &str) -> Error {
    let message = format!("{store} {what}, although it was in use before{VERIFY_HINT}");
    StoreState::Damaged.annotate(Error::new(Code::StoreUnavailable, message))
}

/// The schema is of a newer Toolcrib that has finished its migration.
pub(super) fn newer_schema_error(store: StoreLabel<'_>, needed: i64, known: i64) -> Error {
    let message = format!(
        "{store} needs a newer Toolcrib (schema version {needed}, this one supports {known}); upgrade this Toolcrib, or \
         use another database"
    );
    Error::new(Code::StoreUnavailable, message).with_retryable(false)
}

/// Some tables of the store exist, and others are missing.
pub(super) fn incomplete_schema_error(store: StoreLabel<'_>) -> Error {
    let message = format!(
        "{store} has tables with names that Toolcrib uses, but not all of them: they belong to another program, or to a \
         copy that was interrupted; use an empty database, or another schema with `?options=-c%20search_path%3DNAME`"
    );
    Error::new(Code::StoreUnavailable, message).with_retryable(false)
}

/// A record is of a type that nodes of the previous version do not know.
pub(super) fn needs_contract_error(event: &str, contracted: &str) -> Error {
    let message = format!(
        "`{event}` is unknown to Toolcrib {contracted}, which may still use this store; when every node runs this version, \
         finish the upgrade with `toolcrib store migrate --contract`"
    );
    mark_contract_pending(Error::new(Code::Conflict, message).with_retryable(false))
}

/// Nodes of an earlier version still use the store, which could not use it after the end of the migration.
pub(super) fn older_nodes_error(nodes: &[NodeStatus]) -> Error {
    let names: Vec<String> = nodes.iter().map(|node| format!("`{}` ({})", node.label, node.version)).collect();
    let message = format!("nodes of an earlier version are running: {}; upgrade or stop them first", names.join(", "));
    Error::new(Code::Conflict, message).with_retryable(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_at_run_time_name_no_database() {
        let options: PgConnectOptions = "postgres://me:secret@db.example.com/tools".parse().unwrap();
        let database = DatabaseName::new(&options);
        let opening = store_error(StoreLabel::Opening(&database), sqlx::Error::WorkerCrashed);
        assert!(opening.message.starts_with("the store `postgres://me@db.example.com:5432/tools` cannot be reached"));
        let running = store_error(StoreLabel::Running, sqlx::Error::WorkerCrashed);
        assert_eq!(running.message, "the store cannot be reached; check that the database is running, and the URL");
    }

    /// Regression: a client that follows `retryable` repeated a change that had been written.
    #[test]
    fn a_change_whose_outcome_is_unknown_is_not_to_be_repeated() {
        assert!(!unknown_outcome_error(sqlx::Error::WorkerCrashed).is_retryable());
    }

    #[test]
    fn a_socket_is_named_with_its_port() {
        let options: PgConnectOptions = "postgres://me@%2Frun%2Fpostgresql:5433/tools".parse().unwrap();
        assert_eq!(DatabaseName::new(&options).to_string(), "postgres://me@/run/postgresql:5433/tools");
    }
}
