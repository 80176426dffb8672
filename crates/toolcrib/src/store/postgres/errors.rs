//! Turns errors of PostgreSQL and of the connection to it into `STORE_UNAVAILABLE` with a message that names the database
//! and the next step. The original error is the cause, for the log.
//!
//! No message contains the password: databases are named by [`DatabaseName`], and the texts of connection errors are not
//! repeated.

use std::fmt;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use toolcrib_core::time::format_duration;
use toolcrib_core::{Code, Error};

use crate::store::{StoreState, VERIFY_HINT};

/// A database as messages name it: `postgres://user@host:port/database`, with the options of the URL, which may select a
/// schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DatabaseName(String);

impl DatabaseName {
    pub(super) fn new(options: &PgConnectOptions) -> DatabaseName {
        let user = options.get_username();
        let database = options.get_database().unwrap_or(user);
        let server = match options.get_socket() {
            Some(socket) => socket.display().to_string(),
            None => format!("{}:{}", options.get_host(), options.get_port()),
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

/// Converts an error of the database or of the connection.
pub(super) fn store_error(store: &DatabaseName, error: sqlx::Error) -> Error {
    let code = error.as_database_error().and_then(|error| error.code()).unwrap_or_default().into_owned();
    // https://www.postgresql.org/docs/current/errcodes-appendix.html
    let (message, retryable) = match code.as_str() {
        "28P01" | "28000" => {
            (format!("the store `{store}` refuses this user or password; check the URL of the store"), false)
        }
        "3D000" => (format!("the store `{store}` does not exist; create the database with `createdb`"), false),
        "42501" | "25006" => {
            let message = format!(
                "the user of the store `{store}` lacks rights; it must own its tables, or may create them in the schema"
            );
            (message, false)
        }
        "53300" => (format!("the store `{store}` has no connection left; raise its `max_connections`"), true),
        "53100" => (format!("the disk of the store `{store}` is full; free some space"), true),
        "55P03" | "57014" | "40001" | "40P01" => (format!("the store `{store}` is busy; try again"), true),
        // Starting, stopping, or ended by its administrator.
        "57P01" | "57P02" | "57P03" => (format!("the store `{store}` is starting or stopping; try again"), true),
        // Missing tables or columns.
        "42P01" | "42703" => {
            let message = format!("the store `{store}` is damaged: tables or columns are missing{VERIFY_HINT}");
            return StoreState::Damaged.annotate(Error::new(Code::StoreUnavailable, message)).with_cause(error);
        }
        "" if is_connection_error(&error) => {
            (format!("the store `{store}` cannot be reached; check that the database is running, and the URL"), true)
        }
        _ => (format!("the store `{store}` failed"), true),
    };
    Error::new(Code::StoreUnavailable, message).with_retryable(retryable).with_cause(error)
}

/// Whether an error is of the connection and not of a statement.
fn is_connection_error(error: &sqlx::Error) -> bool {
    matches!(
        error,
        sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed
            | sqlx::Error::Protocol(_)
    )
}

/// The database does not answer in time.
pub(super) fn no_answer_error(store: &DatabaseName, limit: Duration) -> Error {
    let message = format!("the store `{store}` did not answer within {}; try again", format_duration(limit));
    Error::new(Code::StoreUnavailable, message)
}

/// A store that was in use before is empty. `what` is e.g. "holds no tables".
pub(super) fn lost_store_error(store: &DatabaseName, what: &str) -> Error {
    let message = format!("the store `{store}` {what}, although it was in use before{VERIFY_HINT}");
    StoreState::Damaged.annotate(Error::new(Code::StoreUnavailable, message))
}

/// The schema is of a newer Toolcrib that has finished its migration.
pub(super) fn newer_schema_error(store: &DatabaseName, needed: i64, known: i64) -> Error {
    let message = format!(
        "the store `{store}` needs a newer Toolcrib (schema version {needed}, this one supports {known}); upgrade this \
         Toolcrib, or use another database"
    );
    Error::new(Code::StoreUnavailable, message).with_retryable(false)
}

/// Some tables of the store exist, and others are missing.
pub(super) fn incomplete_schema_error(store: &DatabaseName) -> Error {
    let message = format!(
        "the store `{store}` has tables with names that Toolcrib uses, but not all of them: they belong to another program, \
         or to a copy that was interrupted; use an empty database, or another schema with \
         `?options=-c%20search_path%3DNAME`"
    );
    Error::new(Code::StoreUnavailable, message).with_retryable(false)
}

/// A record is of a type that nodes of the previous version do not know.
pub(super) fn needs_contract_error(event: &str, contracted: &str) -> Error {
    let message = format!(
        "`{event}` is unknown to Toolcrib {contracted}, which may still use this store; when every node runs this version, \
         finish the upgrade with `toolcrib store migrate --contract`"
    );
    Error::new(Code::Conflict, message).with_retryable(false)
}
