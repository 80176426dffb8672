//! Describes the request of an operation for people: headers, query and body as they will be sent, with `{name}` for
//! arguments and references for credentials. Resolves no reference and contains no secret: literals are masked.

use std::collections::BTreeMap;

use toolcrib_config::show::{mask_literals, mask_url};
use toolcrib_core::Result;
use toolcrib_core::execution::{BodyEncoding, BodyOutline, BodySpec, Operation, ParameterLocation, RequestOutline};
use toolcrib_core::source::{Auth, KeyLocation, OpenApiSource};
use url::Url;

use super::content_encoding::ACCEPTED_ENCODINGS;
use super::credentials::{AuthValue, SelectedAuth, absolute_token_url, select_auth};
use super::http_clients::USER_AGENT;
use super::resolved_source::{SourceCredentials, check_credentials_allowed, check_token_url_allowed};
use crate::request::{accept_header, body_content_type, is_connection_header};

/// Describes the request of an operation. `openapi` is the declaration with its references.
pub fn outline_request(openapi: &OpenApiSource, operation: &Operation) -> RequestOutline {
    let mut outline = RequestOutline::default();
    let mut cookies: Vec<String> = Vec::new();
    outline.set_header("Accept", &accept_header(&operation.accept));
    outline.set_header("Accept-Encoding", ACCEPTED_ENCODINGS);
    outline.set_header("User-Agent", USER_AGENT);
    if let Some(login) = openapi.base_url.as_deref().and_then(url_login) {
        outline.set_header("Authorization", &format!("Basic base64({})", mask_literals(login)));
    }
    for parameter in &operation.parameters {
        let value = format!("{{{}}}", parameter.argument);
        match parameter.location {
            ParameterLocation::Header if is_connection_header(&parameter.name) => {}
            ParameterLocation::Header => outline.set_header(&parameter.name, &value),
            ParameterLocation::Cookie => cookies.push(format!("{}={value}", parameter.name)),
            ParameterLocation::Query | ParameterLocation::Querystring => {
                outline.query.insert(parameter.name.clone(), value.into());
            }
            ParameterLocation::Path => {}
        }
    }
    if let Some(body) = &operation.body {
        let alternatives = operation.body_choice.iter().flat_map(|choice| &choice.alternatives);
        let alternatives = alternatives.map(|alternative| alternative.body.media_type.clone()).collect();
        let content_type = body_content_type(body);
        outline.set_header("Content-Type", &content_type);
        outline.body = Some(BodyOutline {
            template: body_template(body),
            content_type,
            encoding: body.content,
            required: body.required,
            alternatives,
        });
    }
    // As in a request: the configuration overrides arguments, except that cookies are joined.
    for (name, value) in &openapi.headers {
        if name.eq_ignore_ascii_case("cookie") {
            cookies.push(mask_literals(value));
        } else {
            outline.set_header(name, &mask_literals(value));
        }
    }
    add_credentials(&mut outline, openapi, operation, &mut cookies);
    if !cookies.is_empty() {
        outline.set_header("Cookie", &cookies.join("; "));
    }
    outline
}

/// Adds the credentials that a call would select.
fn add_credentials(
    outline: &mut RequestOutline,
    openapi: &OpenApiSource,
    operation: &Operation,
    cookies: &mut Vec<String>,
) {
    let credentials = match openapi.auth.as_ref().map(mask_auth) {
        None => SourceCredentials::NotConfigured,
        Some(Auth::Schemes(schemes)) => {
            SourceCredentials::ByScheme(schemes.into_iter().map(|(name, auth)| (name, Ok(auth))).collect())
        }
        Some(auth) => SourceCredentials::Always(auth),
    };
    let server = RequestServer::find(openapi, operation);
    let selected = select_auth(operation, &credentials).and_then(|selected| {
        server.as_ref().map_or(Ok(()), |server| server.check_auth(&selected, !openapi.headers.is_empty()))?;
        Ok(selected)
    });
    let selected = match selected {
        Ok(selected) => selected,
        Err(error) => {
            outline.auth_error = Some(error.message);
            return;
        }
    };
    for value in selected.values {
        match value {
            AuthValue::Bearer(token) => outline.set_header("Authorization", &format!("Bearer {token}")),
            AuthValue::Basic { user, password } => {
                outline.set_header("Authorization", &format!("Basic base64({user}:{password})"));
            }
            AuthValue::Oauth2(grant) => {
                let server = server.as_ref().filter(|_| grant.is_document_url);
                let absolute = server.and_then(|server| absolute_token_url(&grant.token_url, &server.url));
                let token_url = absolute.map_or(grant.token_url, String::from);
                let text = format!("Bearer {{access token from {}}}", mask_url(&token_url));
                outline.set_header("Authorization", &text);
            }
            AuthValue::ApiKey { name, location: KeyLocation::Header, value } => outline.set_header(&name, &value),
            AuthValue::ApiKey { name, location: KeyLocation::Query, value } => {
                outline.query.insert(name, value.into());
            }
            AuthValue::ApiKey { name, location: KeyLocation::Cookie, value } => {
                cookies.push(format!("{name}={value}"));
            }
        }
    }
}

/// Server of a request, as far as it is known without resolving references.
struct RequestServer {
    url: Url,
    /// URL of the document, if it has one.
    document: Option<Url>,
    /// The configuration names the server, not the document.
    has_base_url: bool,
}

impl RequestServer {
    fn find(openapi: &OpenApiSource, operation: &Operation) -> Option<RequestServer> {
        let document = Url::parse(&openapi.document).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let url = match (&openapi.base_url, &document) {
            (Some(base_url), _) => Url::parse(base_url).ok()?,
            (None, Some(document)) => document.join(&operation.server).ok()?,
            (None, None) => Url::parse(&operation.server).ok()?,
        };
        Some(RequestServer { url, document, has_base_url: openapi.base_url.is_some() })
    }

    /// Fails as a call would, if credentials must not be sent to this server, or a client secret to its token URL.
    fn check_auth(&self, selected: &SelectedAuth, has_headers: bool) -> Result<()> {
        let document = self.document.as_ref();
        for value in &selected.values {
            if let AuthValue::Oauth2(grant) = value
                && grant.is_document_url
                && let Some(token_url) = absolute_token_url(&grant.token_url, &self.url)
            {
                check_token_url_allowed(document, self.has_base_url, &token_url, &self.url)?;
            }
        }
        if selected.values.is_empty() && !has_headers {
            return Ok(());
        }
        check_credentials_allowed(document, self.has_base_url, &self.url)
    }
}

/// User and password in a URL, with references in them.
fn url_login(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    authority.rsplit_once('@').map(|(login, _)| login)
}

/// Masks the literals of credentials; references stay.
fn mask_auth(auth: &Auth) -> Auth {
    match auth {
        Auth::Bearer(token) => Auth::Bearer(mask_literals(token)),
        Auth::Basic { user, password } => Auth::Basic { user: mask_literals(user), password: mask_literals(password) },
        Auth::ApiKey { name, location, value } => {
            Auth::ApiKey { name: name.clone(), location: *location, value: mask_literals(value) }
        }
        Auth::Oauth2 { token_url, client_id, client_secret, scopes } => Auth::Oauth2 {
            token_url: token_url.clone(),
            client_id: mask_literals(client_id),
            client_secret: mask_literals(client_secret),
            scopes: scopes.clone(),
        },
        Auth::Schemes(schemes) => {
            let schemes: BTreeMap<String, Auth> =
                schemes.iter().map(|(name, auth)| (name.clone(), mask_auth(auth))).collect();
            Auth::Schemes(schemes)
        }
    }
}

/// Describes the content of a body.
fn body_template(body: &BodySpec) -> String {
    let argument = &body.argument;
    match body.content {
        BodyEncoding::Json | BodyEncoding::Text => format!("{{{argument}}}"),
        BodyEncoding::JsonLines => format!("each item of {{{argument}}} as a line of JSON"),
        BodyEncoding::Binary => format!("the bytes of {{{argument}}}"),
        BodyEncoding::Urlencoded => format!("the fields of {{{argument}}} as name=value pairs"),
        BodyEncoding::Multipart => {
            let files = body.fields.iter().filter(|(_, field)| field.binary).map(|(name, _)| format!("`{name}`"));
            let files: Vec<String> = files.collect();
            let note = if files.is_empty() { String::new() } else { format!("; files: {}", files.join(", ")) };
            format!("the fields of {{{argument}}} as parts{note}")
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use toolcrib_core::execution::{
        OperationParameter, ParameterStyle, SecurityRequirement, SecurityScheme, Serialization,
    };

    use super::*;

    fn parameter(name: &str, location: ParameterLocation) -> OperationParameter {
        let form = Serialization::Style { style: ParameterStyle::Simple, explode: false, allow_reserved: false };
        OperationParameter { argument: name.into(), name: name.into(), location, required: false, serialization: form }
    }

    #[test]
    fn credentials_are_shown_as_references_and_literals_are_masked() {
        let key = |name: &str, location| SecurityRequirement {
            scheme: name.into(),
            kind: SecurityScheme::ApiKey { name: name.into(), location },
            scopes: Vec::new(),
        };
        let operation = Operation {
            parameters: vec![
                parameter("X-Trace", ParameterLocation::Header),
                parameter("q", ParameterLocation::Query),
                parameter("lang", ParameterLocation::Cookie),
            ],
            body: Some(BodySpec {
                argument: "body".into(),
                required: true,
                media_type: "application/json".into(),
                content: BodyEncoding::Json,
                fields: BTreeMap::new(),
            }),
            security: vec![vec![key("key", KeyLocation::Query), key("sid", KeyLocation::Cookie)]],
            ..Operation::default()
        };
        let schemes = BTreeMap::from([
            ("key".to_owned(), Auth::Bearer("${env:KEY}".into())),
            ("sid".to_owned(), Auth::Bearer("hunter2".into())),
        ]);
        let headers = BTreeMap::from([("X-Trace".to_owned(), "hunter2".to_owned())]);
        let openapi = OpenApiSource { auth: Some(Auth::Schemes(schemes)), headers, ..OpenApiSource::default() };
        let outline = serde_json::to_value(outline_request(&openapi, &operation)).unwrap();
        assert_eq!(
            outline,
            json!({
                "headers": {
                    "Accept": "application/json, */*;q=0.1", "Accept-Encoding": "gzip, deflate", "User-Agent": USER_AGENT,
                    "X-Trace": "***", "Content-Type": "application/json",
                    "Cookie": "lang={lang}; sid=***",
                },
                "query": { "q": "{q}", "key": "${env:KEY}" },
                "body": { "template": "{body}", "content_type": "application/json", "encoding": "json", "required": true },
                "auth_error": null,
            })
        );
        let authorization = |auth: Auth| {
            let openapi = OpenApiSource { auth: Some(auth), ..OpenApiSource::default() };
            outline_request(&openapi, &operation).headers["Authorization"].clone()
        };
        assert_eq!(authorization(Auth::Bearer("${env:SHOP_TOKEN}".into())), "Bearer ${env:SHOP_TOKEN}");
        let basic = Auth::Basic { user: "${env:USER}".into(), password: "hunter2".into() };
        assert_eq!(authorization(basic), "Basic base64(${env:USER}:***)");
        let secret = || "${env:SECRET}".to_owned();
        let oauth =
            Auth::Oauth2 { token_url: String::new(), client_id: "me".into(), client_secret: secret(), scopes: vec![] };
        let openapi = OpenApiSource { auth: Some(oauth), ..OpenApiSource::default() };
        let scheme = SecurityRequirement { scheme: "o".into(), kind: SecurityScheme::Oauth2, scopes: Vec::new() };
        let operation = Operation {
            server: "https://api.example/v1".into(),
            security: vec![vec![scheme]],
            token_urls: BTreeMap::from([("o".into(), "oauth/token".into())]),
            ..Operation::default()
        };
        assert_eq!(
            outline_request(&openapi, &operation).headers["Authorization"],
            "Bearer {access token from https://api.example/v1/oauth/token}"
        );
        // As in a call, a document from a URL names token endpoints only on its own host and that of the API.
        let foreign = Operation {
            token_urls: BTreeMap::from([("o".into(), "https://elsewhere.example/token".into())]),
            ..operation
        };
        let remote = OpenApiSource { document: "https://docs.example/api.json".into(), ..openapi };
        let outline = outline_request(&remote, &foreign);
        let reason = "the document from `https://docs.example` names a token URL on `https://elsewhere.example`; no \
                      client secret goes there unless `token_url` is set under `oauth2`";
        assert_eq!((outline.auth_error.as_deref(), outline.headers.get("Authorization")), (Some(reason), None));
    }

    #[test]
    fn a_login_in_the_base_url_is_shown_without_its_literals() {
        let authorization = |base_url: &str, auth: Option<Auth>| {
            let openapi = OpenApiSource { base_url: Some(base_url.into()), auth, ..OpenApiSource::default() };
            outline_request(&openapi, &Operation::default()).headers.get("Authorization").cloned()
        };
        assert_eq!(authorization("http://me:pw@h/v1", None), Some(json!("Basic base64(***)")));
        assert_eq!(authorization("http://${env:LOGIN}@h/v1", None), Some(json!("Basic base64(${env:LOGIN})")));
        let bearer = Auth::Bearer("${env:TOKEN}".into());
        assert_eq!(authorization("http://me:pw@h/v1", Some(bearer)), Some(json!("Bearer ${env:TOKEN}")));
        assert_eq!(authorization("http://h/v1?a=@b", None), None);
    }
}
