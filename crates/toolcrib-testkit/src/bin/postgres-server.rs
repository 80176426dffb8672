//! PostgreSQL server that the tests of several processes share; `cargo xtask test` runs one. Prints the URL of its
//! database `postgres` as its only line, and runs until stdin is closed. Fails if PostgreSQL is not installed.

#![expect(clippy::expect_used, reason = "a test fixture may fail loudly")]

use std::io::{self, Read, Write};

use toolcrib_testkit::postgres::PostgresServer;

fn main() {
    let server = PostgresServer::start().expect("PostgreSQL is installed");
    let mut out = io::stdout();
    writeln!(out, "{}", server.url("postgres")).and_then(|()| out.flush()).expect("print the URL");
    // Only its end matters.
    let _ = io::stdin().read_to_end(&mut Vec::new());
}
