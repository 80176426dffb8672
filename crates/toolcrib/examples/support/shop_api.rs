//! An HTTP API on loopback with its OpenAPI document, so that examples need no network: it lists products and takes
//! orders.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

use serde_json::{Value, json};

/// Serves the API until the process ends and returns its URL.
pub(crate) fn start() -> std::io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}", listener.local_addr()?);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A connection that breaks concerns its client only.
            let _ = answer(stream);
        }
    });
    Ok(url)
}

/// Reads one request and answers it; the connection is closed afterwards.
fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut request_line = String::new();
    reader.read_line(&mut request_line)?;
    let mut body_length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header)?;
        if header.trim().is_empty() {
            break;
        }
        if let Some(length) = header.to_ascii_lowercase().strip_prefix("content-length:") {
            body_length = length.trim().parse().unwrap_or_default();
        }
    }
    let mut body = vec![0; body_length];
    reader.read_exact(&mut body)?;

    let mut words = request_line.split_whitespace();
    let method = words.next().unwrap_or_default();
    let path = words.next().unwrap_or_default();
    let (status, text) = respond(method, path, &body);
    let length = text.len();
    write!(stream, "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n")?;
    write!(stream, "Connection: close\r\n\r\n{text}")
}

fn respond(method: &str, path: &str, body: &[u8]) -> (&'static str, String) {
    match (method, path) {
        ("GET", "/openapi.json") => ("200 OK", openapi_document().to_string()),
        ("GET", "/products") => ("200 OK", json!([{ "sku": "milk-1", "price": 1.4 }]).to_string()),
        ("POST", "/orders") => {
            let order: Value = serde_json::from_slice(body).unwrap_or_default();
            ("201 Created", json!({ "id": 1, "sku": order["sku"] }).to_string())
        }
        _ => ("404 Not Found", json!({ "error": "no such path" }).to_string()),
    }
}

/// Describes the API. Without `servers`: requests go to the origin of the document.
fn openapi_document() -> Value {
    let responses = json!({ "default": { "description": "The result" } });
    let order = json!({ "type": "object", "properties": { "sku": { "type": "string" } }, "required": ["sku"] });
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Shop", "version": "1" },
        "paths": {
            "/products": { "get": {
                "operationId": "list_products", "summary": "Lists products", "responses": responses,
            } },
            "/orders": { "post": {
                "operationId": "place_order",
                "summary": "Orders a product",
                "requestBody": { "required": true, "content": { "application/json": { "schema": order } } },
                "responses": responses,
            } },
        },
    })
}
