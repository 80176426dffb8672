//! Requirements of an OpenAPI source: the servers that requests go to, and the credentials that are not declared.
//!
//! Security requirements of OpenAPI are alternatives of combinations: `[{key}, {token, tenant}]` needs the key, or
//! token and tenant together. An operation is reported only if no alternative is satisfied, and then with everything
//! that any of them lacks.

use std::collections::BTreeMap;

use serde::Serialize;
use toolcrib_catalog::View;
use toolcrib_config::show::mask_url;
use toolcrib_core::SourceId;
use toolcrib_core::execution::{Operation, SecurityRequirement, SecurityScheme};
use toolcrib_core::source::{Auth, KeyLocation, OpenApiSource, SourceKind};

use super::Sources;

/// Requirements of the operations of an API.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ApiRequirements {
    /// Servers that requests go to, the most used first.
    pub servers: Vec<ApiServer>,
    /// Security schemes whose credentials would make more tools usable, ordered by name.
    pub auth_missing: Vec<MissingScheme>,
}

/// A server that requests go to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ApiServer {
    /// Base URL with masked credentials; empty if neither the document nor the source names one.
    pub url: String,
    /// Number of tools that use the server.
    pub tools: usize,
}

/// A security scheme without credentials.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MissingScheme {
    /// Name of the scheme in the document.
    pub scheme: String,
    /// Type of the scheme, e.g. `bearer`.
    pub kind: String,
    /// Number of tools that cannot be used without it, or without an alternative to it.
    pub tools: usize,
}

impl Sources<'_> {
    /// Returns the requirements of an OpenAPI source's known tools; empty for other kinds of sources. Reads the
    /// catalogue; credentials are not resolved, so a reference that cannot be resolved counts as declared.
    pub fn api_requirements(&self, id: &SourceId) -> ApiRequirements {
        let view = View::full(self.registry.unrestricted_catalog());
        let definition = self.effective(id);
        let Some(SourceKind::OpenApi(openapi)) = definition.as_ref().map(|source| &source.kind) else {
            return ApiRequirements::default();
        };
        let tools = view.tools().filter(|tool| tool.source() == id && tool.is_listed());
        let specs: Vec<_> = tools.filter_map(|tool| tool.execution_spec().ok().flatten()).collect();
        api_requirements(openapi, specs.iter().filter_map(|spec| spec.execution.operation()))
    }
}

/// Returns what operations require beyond what the source declares.
pub fn api_requirements<'a>(
    openapi: &OpenApiSource,
    operations: impl IntoIterator<Item = &'a Operation>,
) -> ApiRequirements {
    let mut servers: BTreeMap<String, usize> = BTreeMap::new();
    let mut missing: BTreeMap<&str, MissingScheme> = BTreeMap::new();
    for operation in operations {
        *servers.entry(mask_url(server_url(openapi, operation))).or_default() += 1;
        // A scheme that several alternatives need counts once per tool.
        let mut unmet = unmet_requirements(openapi, operation);
        unmet.sort_by(|a, b| a.scheme.cmp(&b.scheme));
        unmet.dedup_by(|a, b| a.scheme == b.scheme);
        for requirement in unmet {
            let SecurityRequirement { scheme, kind, .. } = requirement;
            let none = || MissingScheme { scheme: scheme.clone(), kind: kind.name().to_owned(), tools: 0 };
            missing.entry(scheme).or_insert_with(none).tools += 1;
        }
    }
    let mut servers: Vec<ApiServer> = servers.into_iter().map(|(url, tools)| ApiServer { url, tools }).collect();
    servers.sort_by_key(|server| std::cmp::Reverse(server.tools));
    ApiRequirements { servers, auth_missing: missing.into_values().collect() }
}

/// Returns the base URL of an operation: the source's own one, or that of the document. The configuration takes
/// precedence. Templates such as `{{ host }}` are returned as written.
pub(super) fn server_url<'a>(openapi: &'a OpenApiSource, operation: &'a Operation) -> &'a str {
    openapi.base_url.as_deref().map_or(&operation.server, |url| url.trim_end_matches('/'))
}

/// Returns the requirements of an operation that have no credentials; empty if one alternative is satisfied.
fn unmet_requirements<'a>(openapi: &OpenApiSource, operation: &'a Operation) -> Vec<&'a SecurityRequirement> {
    let is_met = |requirement: &SecurityRequirement| is_satisfied(openapi, requirement);
    let needs_auth = !operation.public && !operation.security.is_empty();
    if !needs_auth || operation.security.iter().any(|alternative| alternative.iter().all(is_met)) {
        return Vec::new();
    }
    operation.security.iter().flatten().filter(|requirement| !is_met(requirement)).collect()
}

/// Whether the source declares credentials for a requirement.
fn is_satisfied(openapi: &OpenApiSource, requirement: &SecurityRequirement) -> bool {
    // A header that the source declares is sent with every request, so it also serves a scheme that uses this header.
    let header = match &requirement.kind {
        SecurityScheme::Other(_) => return false,
        SecurityScheme::Bearer | SecurityScheme::Basic | SecurityScheme::Oauth2 | SecurityScheme::OpenIdConnect => {
            Some("authorization")
        }
        SecurityScheme::ApiKey { name, location: KeyLocation::Header } => Some(name.as_str()),
        SecurityScheme::ApiKey { location: KeyLocation::Query | KeyLocation::Cookie, .. } => None,
    };
    let has_header = header.is_some_and(|header| openapi.headers.keys().any(|name| name.eq_ignore_ascii_case(header)));
    has_header
        || match &openapi.auth {
            None => false,
            Some(Auth::Schemes(schemes)) => schemes.contains_key(&requirement.scheme),
            // Without a name, the key is one of the document.
            Some(Auth::ApiKey { name, location, .. }) if name.is_empty() => {
                let is_place = |declared: KeyLocation| location.is_none_or(|place| place == declared);
                matches!(requirement.kind, SecurityScheme::ApiKey { location, .. } if is_place(location))
            }
            // Credentials without a scheme name are used for every scheme.
            Some(Auth::Bearer(_) | Auth::Basic { .. } | Auth::ApiKey { .. } | Auth::Oauth2 { .. }) => true,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requirement(scheme: &str, kind: SecurityScheme) -> SecurityRequirement {
        SecurityRequirement { scheme: scheme.to_owned(), kind, scopes: Vec::new() }
    }

    fn operation(server: &str, security: Vec<Vec<SecurityRequirement>>) -> Operation {
        Operation { server: server.to_owned(), security, ..Operation::default() }
    }

    fn key() -> SecurityRequirement {
        requirement("key", SecurityScheme::ApiKey { name: "X-Key".into(), location: KeyLocation::Header })
    }

    fn token() -> SecurityRequirement {
        requirement("token", SecurityScheme::Bearer)
    }

    fn check(openapi: &OpenApiSource, operations: &[Operation], servers: &str, missing: &str) {
        let ApiRequirements { servers: found, auth_missing } = api_requirements(openapi, operations);
        let found: Vec<String> = found.iter().map(|server| format!("{} {}", server.url, server.tools)).collect();
        assert_eq!(found.join(", "), servers);
        let found: Vec<String> = auth_missing.iter().map(|m| format!("{} {} {}", m.scheme, m.kind, m.tools)).collect();
        assert_eq!(found.join(", "), missing);
    }

    #[test]
    fn one_satisfied_alternative_is_enough() {
        let operations = [
            operation("http://a", vec![vec![key()], vec![token()]]),
            operation("http://a", vec![vec![token()], vec![]]),
            operation("http://a", vec![vec![key(), token()]]),
            operation("http://a", vec![vec![requirement("odd", SecurityScheme::Other("mutualTLS".into()))]]),
            operation("http://a", vec![]),
            Operation { public: true, ..operation("http://a", vec![vec![token()]]) },
        ];
        let check = |openapi: &OpenApiSource, missing: &str| check(openapi, &operations, "http://a 6", missing);
        let schemes = |names: &[&str]| {
            let each = names.iter().map(|name| ((*name).to_owned(), Auth::Bearer("t".into())));
            OpenApiSource { auth: Some(Auth::Schemes(each.collect())), ..OpenApiSource::default() }
        };
        check(&OpenApiSource::default(), "key api_key 2, odd mutualTLS 1, token bearer 2");
        check(&schemes(&["key"]), "odd mutualTLS 1, token bearer 1");
        check(&schemes(&["key", "token", "odd"]), "odd mutualTLS 1");
        check(&OpenApiSource { auth: Some(Auth::Bearer("t".into())), ..OpenApiSource::default() }, "odd mutualTLS 1");
        let unnamed = |location| OpenApiSource {
            auth: Some(Auth::ApiKey { name: String::new(), location, value: "v".into() }),
            ..OpenApiSource::default()
        };
        check(&unnamed(None), "odd mutualTLS 1, token bearer 1");
        check(&unnamed(Some(KeyLocation::Query)), "key api_key 2, odd mutualTLS 1, token bearer 2");
        let headers = BTreeMap::from([("x-key".to_owned(), "v".to_owned())]);
        check(&OpenApiSource { headers, ..OpenApiSource::default() }, "odd mutualTLS 1, token bearer 1");
    }

    #[test]
    fn the_base_url_of_the_source_wins_over_the_servers_of_operations() {
        let operations =
            [operation("http://b", vec![]), operation("http://a?k=hunter2", vec![]), operation("http://b", vec![])];
        check(&OpenApiSource::default(), &operations, "http://b 2, http://a?k=*** 1", "");
        let own = OpenApiSource { base_url: Some("{{ host }}/v1/".into()), ..OpenApiSource::default() };
        check(&own, &operations, "{{ host }}/v1 3", "");
        check(&OpenApiSource::default(), &[operation("", vec![])], " 1", "");
    }
}
