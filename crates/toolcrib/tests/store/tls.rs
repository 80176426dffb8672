//! TLS to PostgreSQL: which certificates are accepted, and what a refusal says.

use std::path::Path;
use std::process::{Command, Stdio};

use toolcrib::core::Code;
use toolcrib::store::PostgresStore;
use toolcrib_testkit::postgres::{PostgresServer, run_sql};
use toolcrib_testkit::programs;

use super::append;

#[tokio::test]
async fn the_certificate_of_the_server_is_verified_if_the_url_says_so() {
    const TEST: &str = "the_certificate_of_the_server_is_verified_if_the_url_says_so";
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    if !create_certificates(folder.path()) {
        return programs::skip(TEST, "openssl is not installed");
    }
    let read = |name: &str| std::fs::read_to_string(path(name)).unwrap();
    let Some(server) = PostgresServer::start_with_tls(&read("server.crt"), &read("server.key")) else {
        return programs::skip(TEST, "PostgreSQL is not installed");
    };
    let url = server.create_database();
    let plain = PostgresServer::start().unwrap();

    for (root, refused_url) in [
        ("another root", format!("{url}?sslmode=verify-full&sslrootcert={}", path("other.crt"))),
        (
            "another name",
            format!("{url}?sslmode=verify-full&sslrootcert={}", path("root.crt")).replacen("127.0.0.1", "localhost", 1),
        ),
        ("no TLS", format!("{}?sslmode=require", plain.create_database())),
    ] {
        let error = PostgresStore::open(&refused_url).await.unwrap_err();
        assert_eq!((error.code, error.is_retryable()), (Code::StoreUnavailable, false), "{root}: {}", error.message);
        let reason =
            "has no acceptable TLS connection: its certificate or host name is refused, or it has no TLS; check";
        assert!(error.message.contains(reason), "{root}: {}", error.message);
        assert!(error.message.ends_with("`sslmode` and `sslrootcert` in the URL"), "{root}: {}", error.message);
    }
    let missing = format!("{url}?sslmode=verify-full&sslrootcert={}", path("absent.crt"));
    let error = PostgresStore::open(&missing).await.unwrap_err();
    assert!(error.message.ends_with("a file or socket that its URL names does not exist"), "{}", error.message);
    assert_eq!(run_sql(&url, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"), "0");

    let verified = format!("{url}?sslmode=verify-full&sslrootcert={}", path("root.crt"));
    let mut stores = Vec::new();
    for (records, url) in [format!("{url}?sslmode=require"), verified].iter().enumerate() {
        let store = PostgresStore::open(url).await.unwrap();
        append(&store, records as u64, &["a"]).await;
        stores.push(store);
    }
    let sessions =
        "SELECT DISTINCT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'toolcrib'";
    assert_eq!(run_sql(&url, sessions), "t", "there are sessions, all with TLS");
}

/// Creates two roots, and a certificate of the first one for 127.0.0.1. Returns false without OpenSSL.
fn create_certificates(folder: &Path) -> bool {
    let common = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"];
    let create = |name: &str, arguments: &[&str]| {
        let mut openssl = Command::new("openssl");
        openssl.args(["req", "-x509"]).args(common).args(["-subj", &format!("/CN={name}")]).args(arguments);
        openssl.args(["-keyout", &format!("{name}.key"), "-out", &format!("{name}.crt")]);
        openssl.current_dir(folder).stdin(Stdio::null()).stderr(Stdio::null()).status()
    };
    let Ok(status) = create("root", &[]) else { return false };
    assert!(status.success());
    assert!(create("other", &[]).unwrap().success());
    let leaf = ["-CA", "root.crt", "-CAkey", "root.key"];
    let extensions = ["-addext", "basicConstraints=critical,CA:FALSE", "-addext", "subjectAltName=IP:127.0.0.1"];
    assert!(create("server", &[&leaf[..], &extensions].concat()).unwrap().success());
    true
}
