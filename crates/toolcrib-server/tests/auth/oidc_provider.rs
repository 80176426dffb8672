//! Tests access tokens of a real identity provider, `oidc-provider`: discovery, rotation of keys, and a provider that is
//! down.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use reqwest::Client;
use serde_json::Value;
use tempfile::TempDir;
use toolcrib::clock::Clock;
use toolcrib::config::Config;
use toolcrib::testkit::{ScriptedSource, config_with_sources};
use toolcrib::{Registry, RegistryOptions};
use toolcrib_testkit::observe::wait_until_async;
use toolcrib_testkit::programs;

use super::support::{bearer_header, build_configured_server};
use crate::test_server::{RunningServer, open_scripted};

/// The running provider; killed on drop.
struct OidcProvider {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    issuer: String,
    client: Client,
}

impl OidcProvider {
    /// Starts the provider at a port (0 for a free one) with the keys in a file. `None` if it was not fetched.
    fn start(port: &str, keys: &Path) -> Option<OidcProvider> {
        let (program, arguments) = programs::oidc_provider()?;
        let mut command = Command::new(program);
        command.args(arguments).arg(port).arg(keys).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let issuer = read_line(&mut stdout);
        let client = toolcrib_mcp::ClientOptions::http_client(crate::test_server::TEST_TIMEOUT).unwrap();
        Some(OidcProvider { child, stdin, stdout, issuer, client })
    }

    fn port(&self) -> String {
        self.issuer.rsplit(':').next().unwrap().to_owned()
    }

    /// Gets a token for a resource by the grant `client_credentials`.
    async fn issue_token(&self, resource: &str) -> String {
        let form = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("grant_type", "client_credentials")
            .append_pair("scope", "agents")
            .append_pair("resource", resource)
            .finish();
        let request = self.client.post(format!("{}/token", self.issuer));
        let request = request.basic_auth("toolcrib-test", Some("toolcrib-test-secret"));
        let request = request.header("content-type", "application/x-www-form-urlencoded").body(form);
        let response = request.send().await.unwrap().text().await.unwrap();
        let response: Value = serde_json::from_str(&response).unwrap();
        assert!(response["access_token"].is_string(), "{response}");
        response["access_token"].as_str().unwrap().to_owned()
    }

    /// Signs with a new key from now on; the old one stays in the set.
    fn rotate_keys(&mut self) {
        self.stdin.write_all(b"\n").unwrap();
        read_line(&mut self.stdout);
    }

    async fn key_fetches(&self) -> usize {
        let response = self.client.get(format!("{}/key-fetches", self.issuer)).send().await.unwrap();
        response.text().await.unwrap().parse().unwrap()
    }
}

impl Drop for OidcProvider {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_line(stdout: &mut impl BufRead) -> String {
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    line.trim().to_owned()
}

/// Starts a server that trusts an issuer. The clock is that of the system, as the provider's is.
async fn start_server(registry: &Registry, issuer: &str) -> RunningServer {
    let text = format!(
        "sources: {{ git: {{ command: x }} }}\nidentity: {{ issuers: [{{ issuer: \"{issuer}\", roles: {{ claim: scope, \
         agent: agents }} }}] }}"
    );
    let config = Config::read(&text, "toolcrib.yaml", Path::new("/")).unwrap();
    let built: (_, TempDir) = build_configured_server(registry, "127.0.0.1:0", true, config).await.unwrap();
    RunningServer::start(built.0, built.1)
}

async fn status(server: &RunningServer, token: &str) -> u16 {
    server.send("GET", "/api/whoami", &bearer_header(token), "").await.status
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_of_a_real_provider_work_through_rotation_and_failure() {
    let keys_dir = tempfile::tempdir().unwrap();
    let keys = keys_dir.path().join("keys.json");
    let Some(mut provider) = OidcProvider::start("0", &keys) else {
        return programs::skip(
            "tokens_of_a_real_provider_work_through_rotation_and_failure",
            "`oidc-provider` was not fetched",
        );
    };
    let scripted = ScriptedSource::new([serde_json::json!({ "name": "push", "inputSchema": { "type": "object" } })]);
    let options = RegistryOptions { clock: Clock::system(), ..RegistryOptions::default() };
    let registry = open_scripted(config_with_sources(["git"]), options, &[("git", &scripted)]).await;
    let server = start_server(&registry, &provider.issuer).await;
    let metadata = server.send("GET", "/.well-known/oauth-protected-resource/mcp", "", "").await.expect_json(200);
    assert_eq!(metadata["authorization_servers"][0], provider.issuer);
    let resource = metadata["resource"].as_str().unwrap();

    let token = provider.issue_token(resource).await;
    let client = server.send("GET", "/api/whoami", &bearer_header(&token), "").await.expect_json(200);
    assert!(client["name"].as_str().unwrap().starts_with("jwt:oidc-test#"), "{client}");
    assert_eq!(client["role"], "agent");
    assert_eq!(status(&server, &provider.issue_token("https://other.example/mcp").await).await, 401);
    assert_eq!(provider.key_fetches().await, 1);

    provider.rotate_keys();
    let [rotated, second] = [provider.issue_token(resource).await, provider.issue_token(resource).await];
    assert_eq!((status(&server, &rotated).await, status(&server, &token).await), (200, 200));
    assert_eq!(provider.key_fetches().await, 2);

    // Known keys go on being used; a server that has none yet cannot verify anything.
    let (port, issuer) = (provider.port(), provider.issuer.clone());
    drop(provider);
    assert_eq!((status(&server, &second).await, status(&server, &rotated).await), (200, 200));
    let fresh = start_server(&registry, &issuer).await;
    let own_metadata = fresh.send("GET", "/.well-known/oauth-protected-resource", "", "").await.expect_json(200);
    assert_eq!(status(&fresh, &second).await, 401, "it is for another server");
    let own_resource = own_metadata["resource"].as_str().unwrap().to_owned();

    let provider = OidcProvider::start(&port, &keys).unwrap();
    let own = provider.issue_token(&own_resource).await;
    drop(provider);
    let response = fresh.send("GET", "/api/whoami", &bearer_header(&own), "").await;
    assert_eq!((response.status, response.error_code().as_str()), (503, "UNAUTHORIZED"));
    let mut provider = OidcProvider::start(&port, &keys).unwrap();
    wait_until_async("the keys are fetched", async || status(&fresh, &own).await == 200).await;

    // A token with a new key is not known to be wrong while the provider is down.
    provider.rotate_keys();
    let newest = provider.issue_token(&own_resource).await;
    drop(provider);
    for _ in 0..2 {
        let response = fresh.send("GET", "/api/whoami", &bearer_header(&newest), "").await;
        assert_eq!((response.status, response.json()["error"]["retryable"].as_bool()), (503, Some(true)));
        assert!(response.header("retry-after").is_some());
    }
    assert_eq!(status(&fresh, &own).await, 200);
    let _provider = OidcProvider::start(&port, &keys).unwrap();
    wait_until_async("the new key is fetched", async || status(&fresh, &newest).await == 200).await;
}
