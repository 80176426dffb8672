use std::time::Duration;

use toolcrib_core::access::Role;

use super::*;
use crate::{IssuerConfig, JwksLocation, JwtAlgorithm, RoleMapping};

/// Reads a file with one issuer of these keys.
fn read_issuer(keys: &str) -> Result<IssuerConfig, String> {
    let text = format!("identity:\n  issuers:\n    - {{ {keys} }}");
    let config = parse_toolcrib(&text);
    let config = config.map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
    Ok(config.identity.issuers[0].clone())
}

#[test]
fn an_issuer_has_defaults_and_reads_every_key() {
    let minimal = read_issuer("issuer: \"https://id.example\"").unwrap();
    let expected = IssuerConfig {
        issuer: "https://id.example".into(),
        audience: None,
        jwks: JwksLocation::Auto,
        algorithms: vec![JwtAlgorithm::Rs256, JwtAlgorithm::Es256, JwtAlgorithm::EdDsa],
        roles: RoleMapping::default(),
        leeway: Duration::from_secs(30),
    };
    assert_eq!(minimal, expected);
    let full = read_issuer(
        "issuer: \"http://127.0.0.2:8080/realms/acme/\", audience: tools, jwks: \"https://id.example/keys?app=1\", \
         algorithms: [PS384, PS384, EdDSA], leeway: 5s, roles: { claim: 'https://id\\.example/a.b', admin: root, \
         agent: [a, b], default: viewer }",
    );
    let roles = RoleMapping {
        claim: vec!["https://id.example/a".into(), "b".into()],
        admin: vec!["root".into()],
        agent: vec!["a".into(), "b".into()],
        viewer: Vec::new(),
        default: Some(Role::Viewer),
    };
    let expected = IssuerConfig {
        issuer: "http://127.0.0.2:8080/realms/acme/".into(),
        audience: Some("tools".into()),
        jwks: JwksLocation::Url("https://id.example/keys?app=1".parse().unwrap()),
        algorithms: vec![JwtAlgorithm::Ps384, JwtAlgorithm::EdDsa],
        roles,
        leeway: Duration::from_secs(5),
    };
    assert_eq!(full.unwrap(), expected);
    let file = read_issuer("issuer: \"https://id.example\", jwks: ./keys/jwks.json").unwrap();
    let JwksLocation::File(path) = file.jwks else { panic!("{file:?}") };
    assert!(path.ends_with("/keys/jwks.json") && Path::new(&path).is_absolute(), "{path}");
}

#[test]
fn wrong_issuers_are_errors_with_line_and_key() {
    let known = "`RS256`, `RS384`, `RS512`, `PS256`, `PS384`, `PS512`, `ES256`, `ES384` or `EdDSA`";
    let secure = "must begin with `https://`; `http://` is accepted for loopback addresses only";
    let id = "issuer: \"https://id.example\"";
    let cases = [
        ("audience: x".to_owned(), "issuer: is missing; it is the claim `iss` of the provider's tokens".to_owned()),
        ("issuer: \"http://id.example\"".to_owned(), format!("issuer: {secure}")),
        ("issuer: \"http://localhost.example\"".to_owned(), format!("issuer: {secure}")),
        ("issuer: \"id.example\"".to_owned(), "issuer: expected a URL that begins with `https://`".to_owned()),
        ("issuer: \"https://id.example?x\"".to_owned(), "issuer: must not contain a query or a fragment".to_owned()),
        (
            "issuer: \"https://u:p@id.example\"".to_owned(),
            "issuer: must not contain a user name or password".to_owned(),
        ),
        (format!("{id}, jwks: \"http://10.0.0.1/keys\""), format!("jwks: {secure}")),
        (format!("{id}, jwks: \"file:///keys\""), "jwks: expected a URL that begins with `https://`".to_owned()),
        (
            format!("{id}, algorithms: [none]"),
            format!("algorithms: `none` would accept tokens without a signature; expected {known}"),
        ),
        (
            format!("{id}, algorithms: [HS256]"),
            format!("algorithms: `HS256` needs a secret that the provider shares with this server; expected {known}"),
        ),
        (format!("{id}, algorithms: [RS265]"), format!("algorithms: expected {known}, found `RS265`")),
        (format!("{id}, algorithms: []"), "algorithms: is empty, so that no token could be verified".to_owned()),
        (format!("{id}, leeway: 1h"), "leeway: must be at most ten minutes; write `10m` or less".to_owned()),
        (
            format!("{id}, roles: {{ agent: x }}"),
            "roles.claim: is missing; it names the claim that has these values".to_owned(),
        ),
        (
            format!("{id}, roles: {{ claim: a..b, agent: x }}"),
            "roles.claim: has an empty part; write a dot inside a key as `\\.`".to_owned(),
        ),
        (
            format!("{id}, roles: {{ default: root }}"),
            "roles.default: expected `none`, `viewer`, `agent` or `admin`, found `root`".to_owned(),
        ),
    ];
    for (keys, message) in cases {
        let expected = format!("toolcrib.yaml:3: identity.issuers[0].{message}");
        assert_eq!(read_issuer(&keys).unwrap_err(), expected, "{keys}");
    }
    let unknown = read_issuer("isuer: x, issuer: \"https://id.example\"").unwrap_err();
    assert_eq!(unknown, "toolcrib.yaml:3: identity.issuers[0]: unknown key `isuer`; did you mean `issuer`?");
    let twice = "identity:\n  issuers:\n    - issuer: https://a.example\n    - issuer: https://a.example";
    let errors = parse_toolcrib(twice).unwrap_err();
    assert_eq!(
        errors[0].to_string(),
        "toolcrib.yaml:4: identity.issuers[1].issuer: `https://a.example` is listed twice"
    );
}

#[test]
fn an_issuer_that_admits_no_client_is_warned_about() {
    let warnings = parse_toolcrib("identity: { issuers: [{ issuer: \"https://id.example\" }] }").unwrap().warnings;
    assert_eq!(
        warnings[0].to_string(),
        "toolcrib.yaml:1: identity.issuers[0].roles: no token of this issuer gets a role; set `claim` with `agent`, or \
         `default`"
    );
}

#[test]
fn the_public_url_is_an_address_without_a_slash_at_its_end() {
    for (url, expected) in [
        ("https://tools.example", Ok("https://tools.example")),
        ("https://Tools.example:8443/base/", Ok("https://tools.example:8443/base")),
        ("http://[::1]:7450/", Ok("http://[::1]:7450")),
        ("http://tools.lan:7450", Ok("http://tools.lan:7450")),
        ("ftp://tools.example", Err("expected a URL that begins with `https://`")),
        ("https://tools.example/?x=1", Err("must not contain a query or a fragment")),
        ("https://tools.example/#x", Err("must not contain a query or a fragment")),
        ("https://u@tools.example", Err("must not contain a user name or password")),
        ("tools.example", Err("expected a URL that begins with `https://`")),
    ] {
        let config = parse_toolcrib(&format!("public_url: \"{url}\""));
        match expected {
            Ok(expected) => assert_eq!(config.unwrap().public_url.as_deref(), Some(expected)),
            Err(reason) => {
                assert_eq!(config.unwrap_err()[0].to_string(), format!("toolcrib.yaml:1: public_url: {reason}"));
            }
        }
    }
}

#[test]
fn a_public_url_without_tls_is_warned_about_beyond_loopback() {
    for (url, count) in [("http://tools.lan:7450", 1), ("http://localhost:7450", 0), ("https://tools.example", 0)] {
        let warnings = parse_toolcrib(&format!("public_url: \"{url}\"")).unwrap().warnings;
        assert_eq!(warnings.len(), count, "{url}: {warnings:?}");
    }
}

#[test]
fn an_issuer_whose_keys_are_elsewhere_may_be_any_text() {
    for issuer in ["http://idp.test", "idp", "https://id.example?x"] {
        for jwks in ["./keys.json", "https://id.example/keys"] {
            let read = read_issuer(&format!("issuer: \"{issuer}\", jwks: \"{jwks}\"")).unwrap();
            assert_eq!(read.issuer, issuer);
        }
        read_issuer(&format!("issuer: \"{issuer}\"")).unwrap_err();
    }
    let empty = read_issuer("issuer: \"\", jwks: ./keys.json").unwrap_err();
    assert!(empty.contains("empty"), "{empty}");
}

#[test]
fn a_key_in_the_address_of_keys_is_not_shown() {
    let text =
        "identity: { issuers: [{ issuer: \"https://a.example\", jwks: \"https://a.example/keys?api_key=hunter2\" }] }";
    let shown = show::show_config(&parse_toolcrib(text).unwrap())["identity"].to_string();
    assert!(shown.contains("https://a.example/keys?api_key=***") && !shown.contains("hunter2"), "{shown}");
}

#[test]
fn the_upper_file_replaces_issuers_and_public_url() {
    let read = |text: &str| parse_toolcrib(text).unwrap();
    let lower = || {
        read(
            "identity: { loopback: token, issuers: [{ issuer: \"https://a.example\", roles: { default: agent } }] }\n\
              public_url: \"https://tools.example\"",
        )
    };
    let merged = read("identity: { loopback: open }").merge_over(lower());
    assert_eq!(merged.identity.issuers, lower().identity.issuers);
    assert_eq!(merged.public_url.as_deref(), Some("https://tools.example"));
    let upper = "identity: { issuers: [{ issuer: \"https://b.example\", roles: { default: agent } }] }\n\
                 public_url: \"https://other.example\"";
    let merged = read(upper).merge_over(lower());
    assert_eq!(merged.identity.loopback, LoopbackAccess::Token);
    assert_eq!(merged.identity.issuers.len(), 1);
    assert_eq!(merged.identity.issuers[0].issuer, "https://b.example");
    assert_eq!(merged.public_url.as_deref(), Some("https://other.example"));
    assert!(read("identity: { issuers: [] }").merge_over(lower()).identity.issuers.is_empty());
}

#[test]
fn shown_issuers_have_an_origin_and_parse_back() {
    let text = "identity:\n  issuers:\n    - { issuer: \"https://a.example\", audience: x, jwks: ./keys.json, \
                roles: { claim: 'a\\.b.c', admin: root, default: agent } }\n    - { issuer: \"https://b.example\", roles: { default: viewer } }";
    let config = parse_toolcrib(text).unwrap();
    let shown = show::show_config(&config);
    assert_eq!(shown["identity"]["issuers"]["origin"], "toolcrib.yaml:2");
    assert_eq!(shown["public_url"], json!({ "value": null, "origin": "default" }));
    let written = json!({ "identity": { "issuers": shown["identity"]["issuers"]["value"] } });
    assert_eq!(parse_toolcrib(&written.to_string()).unwrap().identity, config.identity);
}
