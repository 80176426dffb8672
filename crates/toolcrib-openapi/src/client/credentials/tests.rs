use std::collections::BTreeMap;

use super::*;

fn requirement(scheme: &str, kind: SecurityScheme) -> SecurityRequirement {
    SecurityRequirement { scheme: scheme.into(), kind, scopes: Vec::new() }
}

fn key_requirement(name: &str, location: KeyLocation) -> SecurityRequirement {
    requirement(name, SecurityScheme::ApiKey { name: format!("X-{name}"), location })
}

fn operation(security: Vec<Vec<SecurityRequirement>>) -> Operation {
    Operation { method: "GET".into(), path: "/x".into(), security, ..Operation::default() }
}

fn by_scheme<const N: usize>(schemes: [(&str, Auth); N]) -> SourceCredentials {
    SourceCredentials::ByScheme(schemes.into_iter().map(|(name, auth)| (name.to_owned(), Ok(auth))).collect())
}

fn bearer_auth() -> Auth {
    Auth::Bearer("b-token".into())
}

fn key_auth() -> Auth {
    Auth::ApiKey { name: "K".into(), location: None, value: "k-value".into() }
}

/// Query and headers of a request after the credentials were added.
fn render_request(values: &[AuthValue]) -> Result<String> {
    let mut url = Url::parse("http://h/p?a=1").unwrap();
    let mut headers = HeaderMap::new();
    apply_auth(values, &["o-token".to_owned()], &mut url, &mut headers)?;
    let headers = headers.iter().map(|(name, value)| format!(" {name}: {}", value.to_str().unwrap()));
    Ok(format!("{}{}", url.query().unwrap(), headers.collect::<String>()))
}

#[test]
fn the_first_alternative_that_can_be_satisfied_is_used() {
    let oauth_and_key =
        || vec![requirement("oauth", SecurityScheme::Oauth2), key_requirement("key", KeyLocation::Query)];
    for (security, credentials, expected) in [
        (
            vec![vec![key_requirement("key", KeyLocation::Header)]],
            by_scheme([("key", key_auth())]),
            "a=1 x-key: k-value",
        ),
        (vec![vec![key_requirement("key", KeyLocation::Query)]], by_scheme([("key", key_auth())]), "a=1&X-key=k-value"),
        (
            vec![vec![key_requirement("key", KeyLocation::Cookie)]],
            by_scheme([("key", bearer_auth())]),
            "a=1 cookie: X-key=b-token",
        ),
        (
            vec![vec![requirement("b", SecurityScheme::Bearer)]],
            by_scheme([("b", bearer_auth())]),
            "a=1 authorization: Bearer b-token",
        ),
        (
            vec![oauth_and_key(), vec![requirement("b", SecurityScheme::Bearer)]],
            by_scheme([("b", bearer_auth()), ("key", key_auth())]),
            "a=1 authorization: Bearer b-token",
        ),
        (
            vec![oauth_and_key()],
            by_scheme([("oauth", bearer_auth()), ("key", key_auth())]),
            "a=1&X-key=k-value authorization: Bearer b-token",
        ),
        (vec![vec![requirement("b", SecurityScheme::Bearer)], vec![]], by_scheme([("other", bearer_auth())]), "a=1"),
        (vec![], by_scheme([("b", bearer_auth())]), "a=1"),
    ] {
        let selected = select_auth(&operation(security.clone()), &credentials).unwrap();
        assert_eq!(render_request(&selected.values).unwrap(), expected, "{security:?}");
        assert_eq!(selected.missing, None);
    }
}

#[test]
fn credentials_without_a_scheme_go_with_every_operation_that_is_not_public() {
    let key_required = || vec![vec![key_requirement("key", KeyLocation::Query)]];
    for (security, auth, expected) in [
        (key_required(), bearer_auth(), "a=1 authorization: Bearer b-token"),
        (vec![], bearer_auth(), "a=1 authorization: Bearer b-token"),
        (key_required(), key_auth(), "a=1 k: k-value"),
        (key_required(), Auth::ApiKey { name: String::new(), location: None, value: "v".into() }, "a=1&X-key=v"),
        // The place of a named key is that of the document, too.
        (key_required(), Auth::ApiKey { name: "X-key".into(), location: None, value: "v".into() }, "a=1&X-key=v"),
        (
            key_required(),
            Auth::ApiKey { name: "X-key".into(), location: Some(KeyLocation::Header), value: "v".into() },
            "a=1 x-key: v",
        ),
        (vec![vec![]], key_auth(), "a=1 k: k-value"),
        (vec![], Auth::Basic { user: "u".into(), password: "p".into() }, "a=1 authorization: Basic dTpw"),
        (
            vec![],
            Auth::Oauth2 { token_url: "t".into(), client_id: "i".into(), client_secret: "s".into(), scopes: vec![] },
            "a=1 authorization: Bearer o-token",
        ),
    ] {
        let credentials = SourceCredentials::Always(auth);
        let operation = operation(security);
        assert_eq!(render_request(&select_auth(&operation, &credentials).unwrap().values).unwrap(), expected);
        let public = Operation { public: true, ..operation };
        assert_eq!(select_auth(&public, &credentials).unwrap().values, []);
    }
}

#[test]
fn an_unnamed_key_satisfies_the_first_alternative_that_needs_nothing_else() {
    let unnamed = |location| Auth::ApiKey { name: String::new(), location, value: "v".into() };
    let credentials = SourceCredentials::Always(unnamed(None));
    let header = || key_requirement("head", KeyLocation::Header);
    let query = || key_requirement("query", KeyLocation::Query);
    let bearer = || requirement("b", SecurityScheme::Bearer);
    for (security, expected) in [
        (vec![vec![header()], vec![query()]], "a=1 x-head: v"),
        (vec![vec![query()], vec![header()]], "a=1&X-query=v"),
        (vec![vec![bearer()], vec![query()]], "a=1&X-query=v"),
        (vec![vec![header(), query()], vec![query()]], "a=1&X-query=v"),
        (vec![vec![header(), bearer()], vec![query()]], "a=1&X-query=v"),
        (vec![vec![header(), bearer()]], "a=1 x-head: v"),
        (vec![vec![header()], vec![]], "a=1 x-head: v"),
        (vec![vec![bearer()], vec![]], "a=1"),
    ] {
        let selected = select_auth(&operation(security.clone()), &credentials).unwrap();
        assert_eq!(render_request(&selected.values).unwrap(), expected, "{security:?}");
    }
    let in_query = SourceCredentials::Always(unnamed(Some(KeyLocation::Query)));
    let selected = select_auth(&operation(vec![vec![header()], vec![query()]]), &in_query).unwrap();
    assert_eq!(render_request(&selected.values).unwrap(), "a=1&X-query=v");
    let message = |operation: Operation| {
        let error = select_auth(&operation, &credentials).unwrap_err();
        assert_eq!(error.code, Code::ConfigInvalid);
        error.message
    };
    let several = "the document names several security schemes for `GET /x`: `head`, `query`; set the credentials of \
                   each that is needed";
    assert_eq!(
        message(operation(vec![vec![header(), query()]])),
        format!("{several}: `auth: {{ schemes: {{ head: …, query: … }} }}`")
    );
    let undeclared = Operation { declared_schemes: vec![header(), query()], ..operation(vec![]) };
    assert_eq!(message(undeclared), format!("{several}: `auth: {{ schemes: {{ head: … }} }}`"));
    assert_eq!(
        message(operation(vec![vec![bearer()]])),
        "the document names no API key for `GET /x`; set `name` and `in` under `api_key`"
    );
}

#[test]
fn missing_credentials_are_described_as_in_the_document() {
    let required =
        vec![vec![key_requirement("key", KeyLocation::Header), requirement("login", SecurityScheme::Oauth2)]];
    let selected = select_auth(&operation(required.clone()), &SourceCredentials::NotConfigured).unwrap();
    assert_eq!(selected.missing.as_deref(), Some("`key` (a key in the header `X-key`) and `login` (OAuth 2)"));
    let selected = select_auth(&operation(required), &by_scheme([("key", key_auth())])).unwrap();
    assert!(selected.missing.is_some() && selected.values.is_empty());
    assert_eq!(select_auth(&operation(vec![vec![]]), &SourceCredentials::NotConfigured).unwrap().missing, None);

    let unresolved = BTreeMap::from([("b".to_owned(), Err("`${env:T}` cannot be resolved".to_owned()))]);
    let unresolved = SourceCredentials::ByScheme(unresolved);
    let error = select_auth(&operation(vec![vec![requirement("b", SecurityScheme::Bearer)]]), &unresolved).unwrap_err();
    assert_eq!((error.code, error.message.as_str()), (Code::ConfigInvalid, "`${env:T}` cannot be resolved"));
    assert!(select_auth(&operation(vec![vec![requirement("b", SecurityScheme::Bearer)], vec![]]), &unresolved).is_ok());
}

#[test]
fn a_value_that_would_inject_headers_is_rejected_and_not_quoted() {
    let key = |location, value: &str| AuthValue::ApiKey { name: "k".into(), location, value: value.into() };
    for value in [
        AuthValue::Bearer("secret\r\nX-Evil: 1".into()),
        key(KeyLocation::Header, "secret\r\nX-Evil: 1"),
        key(KeyLocation::Query, "secret\n"),
        key(KeyLocation::Cookie, "secret\r\n"),
        key(KeyLocation::Cookie, "secret; other=1"),
    ] {
        let error = render_request(&[value]).unwrap_err();
        assert_eq!(error.code, Code::ConfigInvalid);
        assert!(!error.message.contains("secret") && !error.message.contains("Evil"), "{error}");
    }
}

#[test]
fn all_cookies_are_sent_in_one_header() {
    let mut url = Url::parse("http://h/").unwrap();
    let mut headers = HeaderMap::new();
    add_cookies(&mut headers, &["a=1".to_owned(), "b=2".to_owned()]).unwrap();
    let values = [AuthValue::ApiKey { name: "sid".into(), location: KeyLocation::Cookie, value: "s".into() }];
    apply_auth(&values, &[], &mut url, &mut headers).unwrap();
    assert_eq!(headers.get_all(COOKIE).iter().collect::<Vec<_>>(), ["a=1; b=2; sid=s"]);
}
