//! What the operations of an API ask for: the servers that requests go to, and credentials that nobody has declared.

use std::collections::BTreeMap;

use serde::Serialize;
use toolcrib_core::SourceId;
use toolcrib_core::config::show::mask_url;
use toolcrib_core::execution::{Operation, SecurityRequirement, SecurityScheme};
use toolcrib_core::source::{Auth, KeyLocation, OpenApiSource, SourceKind};

use super::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ApiRequirements {
    /// Where requests go, the one that most tools use first.
    pub servers: Vec<ApiServer>,
    /// The schemes that would let more tools be used, in the order of their names.
    pub auth_missing: Vec<MissingScheme>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ApiServer {
    /// Empty where the document names none, and neither does the source.
    pub url: String,
    pub tools: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MissingScheme {
    /// The document's name for it.
    pub scheme: String,
    pub kind: String,
    /// How many tools cannot be used without it, or without another that would do.
    pub tools: usize,
}

impl Registry {
    /// What the tools of an API ask for, as far as they are known. Nothing for other kinds of sources.
    pub fn api_requirements(&self, id: &SourceId) -> ApiRequirements {
        let (catalog, definition) = (self.catalog(), self.effective_source(id));
        let Some(SourceKind::OpenApi(openapi)) = definition.as_ref().map(|source| &source.kind) else {
            return ApiRequirements::default();
        };
        let tools = catalog.tools().filter(|tool| tool.source() == id && tool.is_listed());
        let backings: Vec<_> = tools.filter_map(|tool| tool.execution_spec().ok().flatten()).collect();
        api_requirements(openapi, backings.iter().filter_map(|backing| backing.execution.operation()))
    }
}

/// What these operations ask for beyond what the source is declared with.
pub fn api_requirements<'a>(
    openapi: &OpenApiSource,
    operations: impl IntoIterator<Item = &'a Operation>,
) -> ApiRequirements {
    let mut servers: BTreeMap<String, usize> = BTreeMap::new();
    let mut missing: BTreeMap<&str, MissingScheme> = BTreeMap::new();
    for operation in operations {
        *servers.entry(mask_url(server_url(openapi, operation))).or_default() += 1;
        let mut unmet = unmet_requirements(openapi, operation);
        unmet.sort_by(|a, b| a.scheme.cmp(&b.scheme));
        unmet.dedup_by(|a, b| a.scheme == b.scheme);
        for needed in unmet {
            let SecurityRequirement { scheme, kind, .. } = needed;
            let none = || MissingScheme { scheme: scheme.clone(), kind: kind.name().to_owned(), tools: 0 };
            missing.entry(scheme).or_insert_with(none).tools += 1;
        }
    }
    let mut servers: Vec<ApiServer> = servers.into_iter().map(|(url, tools)| ApiServer { url, tools }).collect();
    servers.sort_by_key(|server| std::cmp::Reverse(server.tools));
    ApiRequirements { servers, auth_missing: missing.into_values().collect() }
}

/// Where a request goes: what the source says, whatever the document does.
pub(super) fn server_url<'a>(openapi: &'a OpenApiSource, operation: &'a Operation) -> &'a str {
    openapi.base_url.as_deref().map_or(&operation.server, |url| url.trim_end_matches('/'))
}

/// The schemes that an operation wants and does not get; none where one alternative is satisfied.
fn unmet_requirements<'a>(openapi: &OpenApiSource, operation: &'a Operation) -> Vec<&'a SecurityRequirement> {
    let is_met = |needed: &SecurityRequirement| is_satisfied(openapi, needed);
    let asks = !operation.public && !operation.security.is_empty();
    if !asks || operation.security.iter().any(|alternative| alternative.iter().all(is_met)) {
        return Vec::new();
    }
    operation.security.iter().flatten().filter(|needed| !is_met(needed)).collect()
}

fn is_satisfied(openapi: &OpenApiSource, needed: &SecurityRequirement) -> bool {
    // A header that stands on the source goes with every request, whatever it is for.
    let header = match &needed.kind {
        SecurityScheme::Other(_) => return false,
        SecurityScheme::Bearer | SecurityScheme::Basic | SecurityScheme::Oauth2 | SecurityScheme::OpenIdConnect => {
            Some("authorization")
        }
        SecurityScheme::ApiKey { name, place: KeyLocation::Header } => Some(name.as_str()),
        SecurityScheme::ApiKey { place: KeyLocation::Query | KeyLocation::Cookie, .. } => None,
    };
    let has_header = header.is_some_and(|header| openapi.headers.keys().any(|name| name.eq_ignore_ascii_case(header)));
    has_header
        || match &openapi.auth {
            None => false,
            Some(Auth::Schemes(schemes)) => schemes.contains_key(&needed.scheme),
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
        requirement("key", SecurityScheme::ApiKey { name: "X-Key".into(), place: KeyLocation::Header })
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
    fn one_alternative_that_is_satisfied_will_do() {
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
        let headers = BTreeMap::from([("x-key".to_owned(), "v".to_owned())]);
        check(&OpenApiSource { headers, ..OpenApiSource::default() }, "odd mutualTLS 1, token bearer 1");
    }

    #[test]
    fn the_source_says_where_requests_go_and_else_each_operation_does() {
        let operations =
            [operation("http://b", vec![]), operation("http://a?k=hunter2", vec![]), operation("http://b", vec![])];
        check(&OpenApiSource::default(), &operations, "http://b 2, http://a?k=*** 1", "");
        let own = OpenApiSource { base_url: Some("{{ host }}/v1/".into()), ..OpenApiSource::default() };
        check(&own, &operations, "{{ host }}/v1 3", "");
        check(&OpenApiSource::default(), &[operation("", vec![])], " 1", "");
    }
}
