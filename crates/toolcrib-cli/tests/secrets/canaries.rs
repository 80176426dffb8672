//! The secrets of this test: each value is unique, and is searched for in plain text and in several encodings.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};

use super::operations::server_script;

/// A secret value that a source is configured with.
pub(super) struct Canary {
    pub(super) number: usize,
    pub(super) value: String,
    /// Written literally into the configuration, which is stored with the source.
    pub(super) is_literal: bool,
}

impl Canary {
    /// The unique part of the value.
    pub(super) fn canary_core(&self) -> String {
        canary_core(self.number)
    }

    /// The texts that must not be found: the beginning of the value, and its encodings.
    pub(super) fn needles(&self) -> Vec<String> {
        let core = self.canary_core();
        let hex = |upper: bool| {
            let digits = core.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
            if upper { digits.to_uppercase() } else { digits }
        };
        // A truncated message may show the beginning of the value.
        let mut needles = vec![core[..8].to_owned(), hex(false), hex(true)];
        needles.extend((0..3).map(|before| base64_fragment(core.as_bytes(), before)));
        needles.push(core.bytes().map(|byte| format!("%{byte:02X}")).collect());
        needles
    }
}

pub(super) fn canary_core(number: usize) -> String {
    format!("c{number:02}Vb7qLwZ{number:02}kxT")
}

/// The Base64 characters that depend on these bytes alone, when `before` other bytes precede them.
pub(super) fn base64_fragment(bytes: &[u8], before: usize) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits: Vec<u8> = std::iter::repeat_n(0, before)
        .chain(bytes.iter().copied())
        .flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1))
        .collect();
    let letters: String = bits
        .chunks_exact(6)
        .map(|six| char::from(ALPHABET[usize::from(six.iter().fold(0, |value, bit| value << 1 | bit))]))
        .collect();
    letters[(before * 8).div_ceil(6)..].to_owned()
}

/// Creates secrets in the forms that sources accept.
pub(super) struct Canaries<'a> {
    pub(super) directory: &'a Path,
    pub(super) all: Vec<Canary>,
    pub(super) variables: Vec<(String, String)>,
}

impl Canaries<'_> {
    /// Returns `shape` with a new secret in place of `*`.
    pub(super) fn value(&mut self, shape: &str, is_literal: bool) -> String {
        let number = self.all.len() + 1;
        let value = shape.replace('*', &canary_core(number));
        self.all.push(Canary { number, value: value.clone(), is_literal });
        value
    }

    pub(super) fn literal(&mut self, shape: &str) -> String {
        self.value(shape, true)
    }

    pub(super) fn env(&mut self, shape: &str) -> String {
        let value = self.value(shape, false);
        let name = format!("GIVEN_{}", self.all.len());
        self.variables.push((name.clone(), value));
        format!("${{env:{name}}}")
    }

    pub(super) fn default(&mut self, shape: &str) -> String {
        format!("${{env:NOT_SET_ANYWHERE:-{}}}", self.value(shape, true))
    }

    pub(super) fn file(&mut self, shape: &str) -> String {
        let value = self.value(shape, false);
        // Outside of the data directory, which is searched for secrets.
        let path = self.directory.join(format!("given_{}", self.all.len()));
        fs::write(&path, format!("{value}\n")).unwrap();
        format!("${{file:{}}}", path.display())
    }

    /// Creates a directory whose name is a secret.
    pub(super) fn directory(&mut self) -> String {
        let path = self.value(&format!("{}/d-*", self.directory.display()), false);
        fs::create_dir_all(&path).unwrap();
        let name = format!("GIVEN_{}", self.all.len());
        self.variables.push((name.clone(), path));
        format!("${{env:{name}}}")
    }
}

const PRIVATE_KEY: &str = "-----BEGIN PRIVATE KEY-----\nMIIEvQ*\nAASCBKcw\n-----END PRIVATE KEY-----";

pub(super) fn canary_sources(canaries: &mut Canaries<'_>, python: &Path, port: u16) -> Value {
    let http = format!("http://127.0.0.1:{port}");
    let script = server_script().to_string_lossy().into_owned();
    let cwd = canaries.directory();
    let programs = canaries.directory();
    let linked = Path::new(&canaries.all[1].value).join("python3");
    symlink(python, linked).unwrap();
    canaries.variables.push(("S_INHERITED".to_owned(), String::new()));
    let inherited = canaries.value("*", false);
    if let Some((_, value)) = canaries.variables.iter_mut().find(|(name, _)| name == "S_INHERITED") {
        *value = inherited;
    }
    let repeats = json!({
        "command": format!("{programs}/python3"),
        "cwd": cwd,
        "inherit_env": ["S_INHERITED"],
        "args": [
            script, "stdio",
            canaries.env("*"),
            "--token", canaries.env("*=="),
            format!("--token={}", canaries.env("a/b+*=")),
            format!("NAME={}", canaries.env("it's \"*\" \\ & more")),
            canaries.file("*"),
            canaries.default("*"),
            "--token", canaries.literal("*="),
            canaries.literal("--api-key=*=="),
            "-H", canaries.literal("Authorization: Bearer *"),
            "-e", canaries.literal("NAME=*"),
            canaries.literal("postgres://me:*@db.example/x"),
            canaries.literal("https://h.example/x?page=*"),
            canaries.literal(r#"{"apiKey":"*"}"#),
            canaries.literal("ghp_*0123456789"),
        ],
        "env": {
            "S_PLAIN": canaries.env("*"),
            "S_LOGIN": canaries.env("me:*"),
            "S_KEY": canaries.env(PRIVATE_KEY),
            "S_JSON": canaries.env(r#"{"client":"x","secret":"*"}"#),
            "S_BEARER": format!("Bearer {}", canaries.env("*")),
            "S_FILE": canaries.file(r#"{"private_key":"-----BEGIN\n*\n-----END","n":1}"#),
            "S_DOTENV": canaries.file("A=1\nTOKEN='*'"),
            "S_LITERAL": canaries.literal("*"),
            "S_PASSWORD": canaries.literal("pw *"),
            "S_DEFAULT": canaries.default("*"),
            "S_ADDRESS": canaries.env("https://hooks.example/services/*/x"),
        },
    });
    json!({
        "repeats": repeats,
        "broken": {
            "command": python, "args": [script, "broken", canaries.env("*"), canaries.literal("--password=*")],
            "env": { "S_A": canaries.env("*") },
        },
        "absent": { "command": canaries.env("/nowhere/*"), "args": [canaries.env("*")] },
        "web": {
            "url": format!("http://{}:{}@127.0.0.1:{port}/mcp/{}?key={}&page={}", canaries.env("u*"), canaries.env("p*"),
                canaries.env("*"), canaries.env("q*&="), canaries.literal("*")),
            "headers": { "X-Tenant": canaries.env("*"), "X-Literal": canaries.literal("*") },
            "auth": { "bearer": canaries.env("*") },
        },
        "basic": { "url": format!("{http}/mcp"), "auth": { "basic": { "user": canaries.env("*"), "password": canaries.file("*:x") } } },
        "cookie": { "url": format!("{http}/mcp"), "auth": { "api_key": { "name": "sid", "in": "cookie", "value": canaries.env("*") } } },
        "denied": { "url": format!("{http}/denied/{}", canaries.env("*")), "headers": { "X-Key": canaries.env("* *") } },
        "hosted": { "url": format!("https://{}.invalid/mcp", canaries.env("*")) },
        "whole": { "url": canaries.env(&format!("{http}/denied/*?x=y")) },
        "api": {
            "openapi": format!("{http}/doc?key={}", canaries.env("*")), "base_url": format!("{http}/{}", canaries.env("*")),
            "headers": { "X-Account": "{{ account }}" }, "variables": { "account": canaries.env("*") },
            "auth": { "api_key": { "name": "key", "in": "query", "value": canaries.env("* /?") } }, "allow_private": true,
        },
        "granted": {
            "openapi": "api.json", "base_url": http, "allow_private": true,
            "auth": { "oauth2": { "token_url": format!("{http}/token"), "client_id": canaries.env("*"), "client_secret": canaries.env("*&=") } },
        },
        "refused": {
            "openapi": "api.json", "base_url": http, "allow_private": true,
            "auth": { "oauth2": { "token_url": format!("{http}/token/bad"), "client_id": "me", "client_secret": canaries.literal("*") } },
        },
    })
}

/// Appends a report to `found` for each secret in the text.
pub(super) fn find_canaries(canaries: &[Canary], name: &str, bytes: &[u8], found: &mut Vec<String>) {
    let text = String::from_utf8_lossy(bytes);
    for canary in canaries {
        for needle in canary.needles() {
            if let Some(at) = text.find(&needle) {
                let around = &text.as_bytes()[at.saturating_sub(300)..text.len().min(at + 200)];
                let number = canary.number;
                let value = &canary.value;
                found.push(format!("secret {number} (`{value}`) is in {name}:\n{}", String::from_utf8_lossy(around)));
            }
        }
    }
}
