//! `url_fetch`: fetches a web page, bounded in size and time, and never from private networks.
//!
//! Addresses are checked where they are used: the resolver gives the connection only permitted addresses, so DNS
//! rebinding has no effect. Hosts that are IP addresses are checked with the URL, for the first request and for every
//! redirect. No proxy is used, because it would resolve names unchecked.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Method, Response, Url, redirect};
use serde::Deserialize;
use serde_json::json;
use toolcrib_connector::address_policy::{
    BlockedAddress, NetworkScope, NoLinkLocalResolver, PublicOnlyResolver, check_url, find_blocked_address,
};
use toolcrib_core::{Error, Result};

use super::{
    BuiltinDefinition, BuiltinHandler, BuiltinOutput, builtin_handler, execution_failed, invalid_input,
    parse_arguments, sanitize_for_message,
};

/// Upper bound of `max_bytes`.
const MAX_BODY_BYTES: usize = 1024 * 1024;
/// Value of `max_bytes` if it is not given. A page of this size stays within the default limit on results, JSON escapes
/// included.
const DEFAULT_BODY_BYTES: usize = 64 * 1024;
/// Limit for the whole request.
const FETCH_TIMEOUT: Duration = Duration::from_secs(20);
/// Redirects followed for one request. Each is checked like the first URL.
const MAX_REDIRECTS: usize = 5;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    url: String,
    #[serde(default)]
    method: FetchMethod,
    /// Bytes of the body in the output; the rest is not read.
    max_bytes: Option<usize>,
}

/// HTTP method that agents may use: none that changes anything.
#[derive(Deserialize, Default, Clone, Copy)]
#[serde(rename_all = "UPPERCASE")]
enum FetchMethod {
    #[default]
    Get,
    Head,
}

/// Builds the tool, which may reach the addresses of a scope.
pub(super) fn tool(scope: NetworkScope) -> Result<(BuiltinDefinition, BuiltinHandler)> {
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
    // Built by the first call: reading the system's certificates takes a while.
    let client = Arc::new(OnceLock::new());
    let handler = builtin_handler(move |input| {
        let client = Arc::clone(&client);
        async move { fetch(&client, scope, parse_arguments(input)?).await }
    });
    Ok((definition, handler))
}

/// Fetches the URL with the shared client.
async fn fetch(client: &OnceLock<Client>, scope: NetworkScope, arguments: Arguments) -> Result<BuiltinOutput> {
    // Check the URL before anything is resolved or sent.
    let url = Url::parse(&arguments.url)
        .map_err(|error| invalid_input(format!("`{}` is not a URL: {error}", sanitize_for_message(&arguments.url))))?;
    check_url(&url, scope).map_err(|blocked| invalid_input(blocked.to_string()))?;
    // `get_or_try_init` is not stable, so a failed build is returned here and retried by the next call.
    let client = match client.get() {
        Some(client) => client,
        None => client.get_or_init({
            let new_client = build_client(scope)?;
            || new_client
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

/// Builds a client that checks every redirect and resolved address.
fn build_client(scope: NetworkScope) -> Result<Client> {
    // Fails if the program has installed another provider, which serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // reqwest calls this before each redirect; the resolver checks names only, so addresses are checked here.
    let redirects = redirect::Policy::custom(move |attempt| {
        if attempt.previous().len() > MAX_REDIRECTS {
            return attempt.error(BlockedAddress::new(format!("more than {MAX_REDIRECTS} redirects")));
        }
        match check_url(attempt.url(), scope) {
            Ok(()) => attempt.follow(),
            Err(blocked) => attempt.error(blocked),
        }
    });
    let builder = Client::builder()
        .no_proxy()
        .redirect(redirects)
        .referer(false)
        .timeout(FETCH_TIMEOUT)
        .user_agent(concat!("toolcrib/", env!("CARGO_PKG_VERSION")));
    let builder = match scope {
        NetworkScope::Anywhere => builder,
        NetworkScope::NotLinkLocal => builder.dns_resolver(Arc::new(NoLinkLocalResolver)),
        NetworkScope::PublicOnly => builder.dns_resolver(Arc::new(PublicOnlyResolver)),
    };
    builder.build().map_err(|error| execution_failed("cannot prepare HTTPS on this machine").with_cause(error))
}

/// Output with status, media type and, for text, the body up to `limit` bytes.
async fn describe_response(mut response: Response, limit: usize) -> Result<BuiltinOutput> {
    let url = response.url().clone();
    let status = response.status();
    let media_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = sanitize_for_message(media_type.unwrap_or("no content type"));
    // Read no more than the limit, whatever `Content-Length` says. The connection is dropped with the rest.
    let mut body = Vec::new();
    let mut is_truncated = false;
    while let Some(chunk) = response.chunk().await.map_err(|error| fetch_error(error, &url))? {
        let taken = chunk.len().min(limit - body.len());
        body.extend_from_slice(&chunk[..taken]);
        if taken < chunk.len() {
            is_truncated = true;
            break;
        }
    }

    let heading = format!(
        "HTTP {status}, {media_type}, {} bytes{}, {}",
        body.len(),
        if is_truncated { " and more" } else { "" },
        sanitize_for_message(url.as_str())
    );
    // The body of an error is shown as well: it often has the reason.
    let mut output = BuiltinOutput { is_error: !status.is_success(), ..BuiltinOutput::text(heading) };
    if is_text(&media_type, &body) {
        output = output.with_text(String::from_utf8_lossy(&body));
    } else if !body.is_empty() {
        output = output.with_text("(binary content, not shown)");
    }
    Ok(if is_truncated { output.with_text(format!("(cut after {limit} bytes)")) } else { output })
}

/// Whether a body is shown as text, by media type and content.
fn is_text(media_type: &str, body: &[u8]) -> bool {
    let media_type = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    // The media type first: a PDF may have no NUL byte near its beginning.
    let is_binary_type =
        ["image/", "audio/", "video/", "font/", "application/pdf", "application/zip", "application/gzip"]
            .iter()
            .any(|prefix| media_type.starts_with(prefix))
            && media_type != "image/svg+xml";
    !body.is_empty() && !is_binary_type && !super::files::is_binary(body)
}

/// Error without the URL, which may contain credentials.
fn fetch_error(error: reqwest::Error, url: &Url) -> Error {
    let host = sanitize_for_message(url.host_str().unwrap_or_default());
    if let Some(blocked) = find_blocked_address(&error) {
        return invalid_input(blocked.to_string());
    }
    // In this order: a timeout while connecting is both.
    let message = if error.is_timeout() {
        format!("`{host}` timed out after 20 s")
    } else if error.is_connect() {
        format!("cannot connect to `{host}`")
    } else {
        format!("the response of `{host}` could not be read")
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

    /// Spellings of URLs that lead to this machine, its network or its files; `P` stands for a listening port.
    const PRIVATE_URL_SPELLINGS: [&str; 77] = [
        // Loopback in plain form, with ports, users and dots.
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
        // The same address in other spellings.
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
        // Cloud metadata services.
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
        for spelling in PRIVATE_URL_SPELLINGS {
            let url = spelling.replace(":P", &format!(":{}", address.port()));
            let arguments = Arguments { url: url.clone(), method: FetchMethod::Get, max_bytes: None };
            let error = fetch(&OnceLock::new(), NetworkScope::PublicOnly, arguments).await.unwrap_err();
            assert_eq!(error.code, Code::ToolInvalidInput, "{url:?}: {error}");
        }
        assert_eq!(connections.load(Ordering::SeqCst), 0);
    }

    #[tokio::test]
    async fn no_redirect_leads_to_a_private_address() {
        let (target, connections) = serve("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecret");
        let client = build_client(NetworkScope::PublicOnly).unwrap();
        for spelling in PRIVATE_URL_SPELLINGS.iter().filter(|spelling| !spelling.contains(['\t', '\n'])) {
            let location = spelling.trim().replace(":P", &format!(":{}", target.port()));
            let response = format!("HTTP/1.1 302 Found\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n");
            let (first, _) = serve(&response);
            // The client checks redirects; the first URL is checked before the client is used.
            match client.get(format!("http://{first}/")).send().await {
                Ok(response) => assert!(response.status().is_redirection(), "{location}: {response:?}"),
                Err(error) => {
                    assert!(error.is_redirect() || find_blocked_address(&error).is_some(), "{location}: {error:?}")
                }
            }
        }
        assert_eq!(connections.load(Ordering::SeqCst), 0);
    }

    /// Server that sends the same response to every connection, and counts them.
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
