use super::*;
use crate::programs;

/// Runs a statement and returns its output, or the error message.
fn query(url: &str, statement: &str) -> Result<String, String> {
    let mut psql = Installation::find().unwrap().psql();
    let output = psql.args(["-X", "-A", "-t", "-c", statement, url]).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().trim().to_owned();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

#[test]
fn committed_rows_survive_every_kind_of_restart() {
    let Some(mut server) = PostgresServer::start() else {
        return programs::skip("committed_rows_survive_every_kind_of_restart", "PostgreSQL is not installed");
    };
    let url = server.create_database();
    query(&url, "CREATE TABLE numbers (number int)").unwrap();
    for (count, mode) in [StopMode::Fast, StopMode::Immediate, StopMode::Kill].into_iter().enumerate() {
        query(&url, "INSERT INTO numbers VALUES (1)").unwrap();
        server.stop(mode);
        query(&url, "SELECT 1").unwrap_err();
        server.start_again();
        assert_eq!(query(&url, "SELECT count(*) FROM numbers"), Ok((count + 1).to_string()));
    }
}

#[test]
fn a_paused_server_answers_after_the_pause() {
    let Some(server) = PostgresServer::start() else {
        return programs::skip("a_paused_server_answers_after_the_pause", "PostgreSQL is not installed");
    };
    server.pause();
    let url = format!("{}?connect_timeout=2", server.url("postgres"));
    assert!(query(&url, "SELECT 1").unwrap_err().contains("timeout"));
    server.resume();
    assert_eq!(query(&url, "SELECT 1"), Ok("1".into()));
}

#[test]
fn a_dropped_server_leaves_nothing() {
    let Some(server) = PostgresServer::start() else {
        return programs::skip("a_dropped_server_leaves_nothing", "PostgreSQL is not installed");
    };
    let (directory, pid) = (server.directory.clone(), server.main_pid().to_owned());
    server.pause();
    drop(server);
    assert!(!is_running(&pid) && !directory.exists());
}

#[test]
fn a_shared_database_is_new_and_empty() {
    let Some((first, second)) = shared_database().zip(shared_database()) else {
        return programs::skip("a_shared_database_is_new_and_empty", "PostgreSQL is not installed");
    };
    assert_ne!(first, second);
    assert_eq!(query(&first, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"), Ok("0".into()));
}

#[test]
fn a_server_ends_with_its_killed_process() {
    if Installation::find().is_none() {
        return programs::skip("a_server_ends_with_its_killed_process", "PostgreSQL is not installed");
    }
    let temp_dir = env::temp_dir().join(format!("toolcrib-test-{}", random_name()));
    fs::create_dir(&temp_dir).unwrap();
    let mut command = Command::new(programs::postgres_server());
    command.env("TMPDIR", &temp_dir).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = command.spawn().unwrap();
    let mut url = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut url).unwrap();
    assert_eq!(query(url.trim(), "SELECT 1"), Ok("1".into()));

    process.kill().unwrap();
    process.wait().unwrap();
    let is_data_dir = |entry: fs::DirEntry| entry.file_name().to_string_lossy().starts_with("toolcrib-postgres-");
    let has_data = || fs::read_dir(&temp_dir).unwrap().flatten().any(is_data_dir);
    wait_until_blocking("no server and no data", || !has_data());
    query(url.trim(), "SELECT 1").unwrap_err();
    fs::remove_dir_all(&temp_dir).unwrap();
}
