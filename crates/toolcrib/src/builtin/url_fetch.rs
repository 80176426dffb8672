//! `url_fetch`: a page from the web, bounded, and never from inside this network.
//!
//! Addresses are checked where they are used: the resolver below gives the connection only addresses that passed, so a
//! name cannot answer differently the second time. Hosts that are addresses themselves are checked with the URL, for
//! the first request and for every redirect. No proxy is used, for it would resolve names behind our back.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Method, Response, Url, redirect};
use serde::Deserialize;
use serde_json::json;
use toolcrib_core::{Error, Result};

use super::{
    BuiltinDefinition, BuiltinHandler, BuiltinOutput, execution_failed, handler, invalid_input, parse_arguments,
    sanitize_for_message,
};
use crate::address_policy::{BlockedAddress, PublicOnlyResolver, check_url, find_blocked_address};

const MAX_BODY_BYTES: usize = 1024 * 1024;
/// A page of this size stays within the usual bound on results, escapes included.
const DEFAULT_BODY_BYTES: usize = 64 * 1024;
const FETCH_TIMEOUT: Duration = Duration::from_secs(20);
const MAX_REDIRECTS: usize = 5;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    url: String,
    #[serde(default)]
    method: FetchMethod,
    max_bytes: Option<usize>,
}

#[derive(Deserialize, Default, Clone, Copy)]
#[serde(rename_all = "UPPERCASE")]
enum FetchMethod {
    #[default]
    Get,
    Head,
}

pub(super) fn tool(allow_private: bool) -> Result<(BuiltinDefinition, BuiltinHandler)> {
    let definition = BuiltinDefinition::new(
        "url_fetch",
        "Fetches a URL (http or https) and gives its status and its text as it is: HTML stays HTML, binary content is \
         only described. At most 1 MiB (default 64 KiB), 20 seconds, 5 redirects. No login, no cookies, no scripts \
         are run; addresses of private networks are refused unless the configuration allows them.",
        json!({
            "type": "object",
            "properties": {
                "url": { "type": "string", "minLength": 1, "maxLength": 8192 },
                "method": { "enum": ["GET", "HEAD"], "description": "default GET" },
                "max_bytes": { "type": "integer", "minimum": 1, "maximum": MAX_BODY_BYTES },
            },
            "required": ["url"],
            "additionalProperties": false,
        }),
    )?
    .title("Fetch a URL")
    .tags(["web"])
    .annotations(json!({ "readOnlyHint": true, "idempotentHint": true, "openWorldHint": true }));
    // Made by the first call: reading the machine's certificates takes a while.
    let client = Arc::new(OnceLock::new());
    let handler = handler(move |input| {
        let client = Arc::clone(&client);
        async move { fetch(&client, allow_private, parse_arguments(input)?).await }
    });
    Ok((definition, handler))
}

async fn fetch(client: &OnceLock<Client>, allow_private: bool, arguments: Arguments) -> Result<BuiltinOutput> {
    let url = Url::parse(&arguments.url)
        .map_err(|error| invalid_input(format!("`{}` is not a URL: {error}", sanitize_for_message(&arguments.url))))?;
    check_url(&url, allow_private).map_err(|refused| invalid_input(refused.to_string()))?;
    let client = match client.get() {
        Some(client) => client,
        None => client.get_or_init({
            let made = build_client(allow_private)?;
            || made
        }),
    };
    let method = match arguments.method {
        FetchMethod::Get => Method::GET,
        FetchMethod::Head => Method::HEAD,
    };
    let response = client.request(method, url.clone()).send().await.map_err(|error| fetch_error(error, &url))?;
    let limit = arguments.max_bytes.unwrap_or(DEFAULT_BODY_BYTES).clamp(1, MAX_BODY_BYTES);
    describe_response(response, limit).await
}

fn build_client(allow_private: bool) -> Result<Client> {
    // Somebody in this process may have installed one already, which serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let redirects = redirect::Policy::custom(move |attempt| {
        if attempt.previous().len() > MAX_REDIRECTS {
            return attempt.error(BlockedAddress::new(format!("more than {MAX_REDIRECTS} redirects")));
        }
        match check_url(attempt.url(), allow_private) {
            Ok(()) => attempt.follow(),
            Err(refused) => attempt.error(refused),
        }
    });
    let mut builder = Client::builder()
        .no_proxy()
        .redirect(redirects)
        .referer(false)
        .timeout(FETCH_TIMEOUT)
        .user_agent(concat!("toolcrib/", env!("CARGO_PKG_VERSION")));
    if !allow_private {
        builder = builder.dns_resolver(Arc::new(PublicOnlyResolver));
    }
    builder.build().map_err(|error| execution_failed("cannot prepare HTTPS on this machine").with_cause(error))
}

async fn describe_response(mut response: Response, limit: usize) -> Result<BuiltinOutput> {
    let url = response.url().clone();
    let status = response.status();
    let kind = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = sanitize_for_message(kind.unwrap_or("no content type"));
    let mut body = Vec::new();
    let mut cut = false;
    while let Some(chunk) = response.chunk().await.map_err(|error| fetch_error(error, &url))? {
        let kept = chunk.len().min(limit - body.len());
        body.extend_from_slice(&chunk[..kept]);
        if kept < chunk.len() {
            cut = true;
            break;
        }
    }

    let heading = format!(
        "HTTP {status}, {kind}, {} bytes{}, {}",
        body.len(),
        if cut { " and more" } else { "" },
        sanitize_for_message(url.as_str())
    );
    let mut answer = BuiltinOutput { is_error: !status.is_success(), ..BuiltinOutput::text(heading) };
    if is_text(&kind, &body) {
        answer = answer.with_text(String::from_utf8_lossy(&body));
    } else if !body.is_empty() {
        answer = answer.with_text("(binary content, not shown)");
    }
    Ok(if cut { answer.with_text(format!("(cut after {limit} bytes)")) } else { answer })
}

fn is_text(kind: &str, body: &[u8]) -> bool {
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let binary = ["image/", "audio/", "video/", "font/", "application/pdf", "application/zip", "application/gzip"]
        .iter()
        .any(|prefix| kind.starts_with(prefix))
        && kind != "image/svg+xml";
    !body.is_empty() && !binary && !super::files::is_binary(body)
}

fn fetch_error(error: reqwest::Error, url: &Url) -> Error {
    let host = sanitize_for_message(url.host_str().unwrap_or_default());
    if let Some(refused) = find_blocked_address(&error) {
        return invalid_input(refused.to_string());
    }
    let message = if error.is_timeout() {
        format!("`{host}` did not answer within 20 s")
    } else if error.is_connect() {
        format!("cannot connect to `{host}`")
    } else {
        format!("the answer of `{host}` could not be read")
    };
    execution_failed(message).with_cause(error.without_url())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use toolcrib_core::Code;

    use super::*;

    /// URLs that lead to this machine, its network or its files by other words; `P` is a port that listens.
    const PRIVATE_URL_SPELLINGS: [&str; 77] = [
        // Loopback as it is, with ports, users and dots.
        "http://127.0.0.1:P/",
        "http://127.0.0.1.:P/",
        "http://127.255.255.254:P/",
        "http://user@127.0.0.1:P/",
        "http://example.com@127.0.0.1:P/",
        "http://example.com:80@127.0.0.1:P/",
        "http://example.com%40127.0.0.1:P@127.0.0.1:P/",
        "http://127.0.0.1:P#@example.com/",
        "http://127.0.0.1:P?@example.com/",
        "HTTP://127.0.0.1:P/",
        "http:127.0.0.1:P",
        "http:/127.0.0.1:P",
        "http:///127.0.0.1:P",
        "http:\\\\127.0.0.1:P\\",
        "http://127.0.0.1:P\\@example.com",
        " http://127.0.0.1:P/ ",
        "http://127.0\t.0.1:P/",
        "http://127.0.\n0.1:P/",
        // The same number in other spellings.
        "http://2130706433:P/",
        "http://0x7f000001:P/",
        "http://0x7F.0x0.0x0.0x1:P/",
        "http://017700000001:P/",
        "http://0177.0.0.1:P/",
        "http://0177.0.0.01:P/",
        "http://0000177.0.0.1:P/",
        "http://127.1:P/",
        "http://127.0.1:P/",
        "http://127.00000.0.1:P/",
        "http://0x7f.1:P/",
        "http://%31%32%37.0.0.1:P/",
        "http://127%2E0%2E0%2E1:P/",
        "http://１２７.0.0.1:P/",
        "http://①②⑦.⓪.⓪.①:P/",
        "http://127。0。0。1:P/",
        "http://127｡0｡0｡1:P/",
        // Unspecified, broadcast, multicast, reserved.
        "http://0:P/",
        "http://0.0.0.0:P/",
        "http://[::]:P/",
        "http://255.255.255.255/",
        "http://224.0.0.1/",
        "http://240.0.0.1/",
        // IPv6, and IPv4 inside of it.
        "http://[::1]:P/",
        "http://[0:0:0:0:0:0:0:1]:P/",
        "http://[::ffff:127.0.0.1]:P/",
        "http://[::ffff:7f00:1]:P/",
        "http://[0:0:0:0:0:ffff:7f00:0001]:P/",
        "http://[::127.0.0.1]:P/",
        "http://[::ffff:0:127.0.0.1]:P/",
        "http://[64:ff9b::127.0.0.1]:P/",
        "http://[64:ff9b::a9fe:a9fe]/",
        "http://[64:ff9b:1::7f00:1]:P/",
        "http://[2002:7f00:1::]:P/",
        "http://[2002:a9fe:a9fe::1]/",
        "http://[2001:0:7f00:1::]:P/",
        "http://[::1%25lo]:P/",
        // Private networks.
        "http://10.0.0.1/",
        "http://172.16.0.1/",
        "http://192.168.0.1/",
        "http://100.64.0.1/",
        "http://198.18.0.1/",
        "http://[fc00::1]/",
        "http://[fd00::1]/",
        "http://[fe80::1]/",
        "http://[fec0::1]/",
        // What clouds tell their machines.
        "http://169.254.169.254/latest/meta-data/",
        "http://2852039166/",
        "http://0xa9fea9fe/",
        "http://[fd00:ec2::254]/",
        "http://[::ffff:a9fe:a9fe]/",
        "http://100.100.100.200/",
        "http://168.63.129.16/",
        // Names of this machine.
        "http://localhost:P/",
        "http://LOCALHOST.:P/",
        "http://www.localhost:P/",
        // Other ways to read a file or to speak another protocol.
        "file:///etc/passwd",
        "gopher://127.0.0.1:P/_x",
        "ftp://127.0.0.1:P/",
    ];

    #[tokio::test]
    async fn no_spelling_of_a_private_address_is_fetched() {
        let (address, connections) = serve("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecret");
        for trick in PRIVATE_URL_SPELLINGS {
            let url = trick.replace(":P", &format!(":{}", address.port()));
            let wanted = Arguments { url: url.clone(), method: FetchMethod::Get, max_bytes: None };
            let error = fetch(&OnceLock::new(), false, wanted).await.unwrap_err();
            assert_eq!(error.code, Code::ToolInvalidInput, "{url:?}: {error}");
        }
        assert_eq!(connections.load(Ordering::SeqCst), 0);
    }

    #[tokio::test]
    async fn no_redirect_leads_to_a_private_address() {
        let (target, connections) = serve("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecret");
        let client = build_client(false).unwrap();
        for trick in PRIVATE_URL_SPELLINGS.iter().filter(|trick| !trick.contains(['\t', '\n'])) {
            let location = trick.trim().replace(":P", &format!(":{}", target.port()));
            let response = format!("HTTP/1.1 302 Found\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n");
            let (first, _) = serve(&response);
            // The client checks redirects; the address it starts from is checked before it is asked.
            match client.get(format!("http://{first}/")).send().await {
                Ok(response) => assert!(response.status().is_redirection(), "{location}: {response:?}"),
                Err(error) => {
                    assert!(error.is_redirect() || find_blocked_address(&error).is_some(), "{location}: {error:?}")
                }
            }
        }
        assert_eq!(connections.load(Ordering::SeqCst), 0);
    }

    /// Answers every connection with the same bytes, and counts them.
    fn serve(response: &str) -> (SocketAddr, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let response = response.to_owned();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                counted.fetch_add(1, Ordering::SeqCst);
                let mut stream = stream.unwrap();
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(response.as_bytes());
            }
        });
        (address, count)
    }
}
