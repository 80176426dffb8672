use std::collections::BTreeMap;

use super::*;

fn requirement(scheme: &str, kind: SecurityScheme) -> SecurityRequirement {
    SecurityRequirement { scheme: scheme.into(), kind, scopes: Vec::new() }
}

fn key_requirement(name: &str, place: KeyLocation) -> SecurityRequirement {
    requirement(name, SecurityScheme::ApiKey { name: format!("X-{name}"), place })
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
    Auth::ApiKey { name: "K".into(), place: KeyLocation::Header, value: "k-value".into() }
}

/// What a request looks like with the credentials in it.
fn render_request(proofs: &[AuthValue]) -> Result<String> {
    let mut url = Url::parse("http://h/p?a=1").unwrap();
    let mut headers = HeaderMap::new();
    apply_auth(proofs, &["o-token".to_owned()], &mut url, &mut headers)?;
    let headers = headers.iter().map(|(name, value)| format!(" {name}: {}", value.to_str().unwrap()));
    Ok(format!("{}{}", url.query().unwrap(), headers.collect::<String>()))
}

#[test]
fn the_first_alternative_that_can_be_satisfied_is_used() {
    let both = || vec![requirement("oauth", SecurityScheme::Oauth2), key_requirement("key", KeyLocation::Query)];
    for (security, given, expected) in [
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
            vec![both(), vec![requirement("b", SecurityScheme::Bearer)]],
            by_scheme([("b", bearer_auth()), ("key", key_auth())]),
            "a=1 authorization: Bearer b-token",
        ),
        (
            vec![both()],
            by_scheme([("oauth", bearer_auth()), ("key", key_auth())]),
            "a=1&X-key=k-value authorization: Bearer b-token",
        ),
        (vec![vec![requirement("b", SecurityScheme::Bearer)], vec![]], by_scheme([("other", bearer_auth())]), "a=1"),
        (vec![], by_scheme([("b", bearer_auth())]), "a=1"),
    ] {
        let chosen = select_auth(&operation(security.clone()), &given).unwrap();
        assert_eq!(render_request(&chosen.values).unwrap(), expected, "{security:?}");
        assert_eq!(chosen.missing, None);
    }
}

#[test]
fn what_has_no_name_of_a_scheme_goes_with_every_operation_that_is_not_public() {
    let keyed = || vec![vec![key_requirement("key", KeyLocation::Query)]];
    for (security, auth, expected) in [
        (keyed(), bearer_auth(), "a=1 authorization: Bearer b-token"),
        (vec![], bearer_auth(), "a=1 authorization: Bearer b-token"),
        (keyed(), key_auth(), "a=1 k: k-value"),
        (keyed(), Auth::ApiKey { name: String::new(), place: KeyLocation::Header, value: "v".into() }, "a=1&X-key=v"),
        (vec![], Auth::Basic { user: "u".into(), password: "p".into() }, "a=1 authorization: Basic dTpw"),
        (
            vec![],
            Auth::Oauth2 { token_url: "t".into(), client_id: "i".into(), client_secret: "s".into(), scopes: vec![] },
            "a=1 authorization: Bearer o-token",
        ),
    ] {
        let given = SourceCredentials::Always(auth);
        let operation = operation(security);
        assert_eq!(render_request(&select_auth(&operation, &given).unwrap().values).unwrap(), expected);
        let public = Operation { public: true, ..operation };
        assert_eq!(select_auth(&public, &given).unwrap().values, []);
    }
}

#[test]
fn what_is_missing_is_said_in_the_documents_words() {
    let wants = vec![vec![key_requirement("key", KeyLocation::Header), requirement("login", SecurityScheme::Oauth2)]];
    let chosen = select_auth(&operation(wants.clone()), &SourceCredentials::NotConfigured).unwrap();
    assert_eq!(chosen.missing.as_deref(), Some("`key` (a key in the header `X-key`) and `login` (OAuth 2)"));
    let chosen = select_auth(&operation(wants), &by_scheme([("key", key_auth())])).unwrap();
    assert!(chosen.missing.is_some() && chosen.values.is_empty());
    assert_eq!(select_auth(&operation(vec![vec![]]), &SourceCredentials::NotConfigured).unwrap().missing, None);

    let broken = BTreeMap::from([("b".to_owned(), Err("`${env:T}` cannot be resolved".to_owned()))]);
    let broken = SourceCredentials::ByScheme(broken);
    let error = select_auth(&operation(vec![vec![requirement("b", SecurityScheme::Bearer)]]), &broken).unwrap_err();
    assert_eq!((error.code, error.message.as_str()), (Code::ConfigInvalid, "`${env:T}` cannot be resolved"));
    assert!(select_auth(&operation(vec![vec![requirement("b", SecurityScheme::Bearer)], vec![]]), &broken).is_ok());
}

#[test]
fn a_value_that_would_break_out_is_refused_and_not_repeated() {
    let key = |place, value: &str| AuthValue::ApiKey { name: "k".into(), place, value: value.into() };
    for proof in [
        AuthValue::Bearer("secret\r\nX-Evil: 1".into()),
        key(KeyLocation::Header, "secret\r\nX-Evil: 1"),
        key(KeyLocation::Query, "secret\n"),
        key(KeyLocation::Cookie, "secret\r\n"),
        key(KeyLocation::Cookie, "secret; other=1"),
    ] {
        let error = render_request(&[proof]).unwrap_err();
        assert_eq!(error.code, Code::ConfigInvalid);
        assert!(!error.message.contains("secret") && !error.message.contains("Evil"), "{error}");
    }
}

#[test]
fn cookies_of_all_come_in_one_header() {
    let mut url = Url::parse("http://h/").unwrap();
    let mut headers = HeaderMap::new();
    add_cookies(&mut headers, &["a=1".to_owned(), "b=2".to_owned()]).unwrap();
    let proofs = [AuthValue::ApiKey { name: "sid".into(), place: KeyLocation::Cookie, value: "s".into() }];
    apply_auth(&proofs, &[], &mut url, &mut headers).unwrap();
    assert_eq!(headers.get_all(COOKIE).iter().collect::<Vec<_>>(), ["a=1; b=2; sid=s"]);
}
