//! Runtime expressions, as OpenAPI and Arazzo have them: `$response.body#/id`, `$steps.find.outputs.pet`.
//! What is known lies in a [`Scope`]; an expression that leads nowhere is an error that names it.

mod fill;
mod path;

use std::borrow::Cow;

use serde_json::{Map, Value};

pub(crate) use fill::{FillBudget, approximate_size, fill_within};
pub use fill::{fill_text, fill_value};

use crate::error::{Code, Error, Result};
use crate::text::sanitize_truncated;

/// What expressions can be about. Whatever is not known yet is left out.
#[derive(Debug, Clone, Copy, Default)]
pub struct Scope<'a> {
    pub request: Option<RequestScope<'a>>,
    pub response: Option<ResponseScope<'a>>,
    /// An object by name.
    pub inputs: Option<&'a Value>,
    /// An object by name.
    pub outputs: Option<&'a Value>,
    /// `{"login": {"outputs": {…}}}`
    pub steps: Option<&'a Value>,
    /// `{"buy": {"inputs": {…}, "outputs": {…}}}`
    pub workflows: Option<&'a Value>,
    /// `{"shop": {"url": …, "type": …}}`
    pub source_descriptions: Option<&'a Value>,
    pub components: Option<&'a Value>,
}

/// A request as it was asked for: values by their names on the wire, not yet written as text.
#[derive(Debug, Clone, Copy, Default)]
pub struct RequestScope<'a> {
    pub url: Option<&'a str>,
    pub method: Option<&'a str>,
    pub path: Option<&'a Map<String, Value>>,
    pub query: Option<&'a Map<String, Value>>,
    pub headers: Option<&'a Map<String, Value>>,
    pub body: Option<&'a Value>,
}

#[derive(Debug, Clone, Copy)]
pub struct ResponseScope<'a> {
    pub status: u16,
    pub headers: &'a [(String, String)],
    pub body: Option<&'a Value>,
}

/// The value that an expression leads to, of the type it has there.
pub fn evaluate(expression: &str, scope: &Scope<'_>) -> Result<Value> {
    resolve(expression, scope).map(Cow::into_owned)
}

/// The same, without a copy of what the scope holds.
pub fn resolve<'a>(expression: &str, scope: &Scope<'a>) -> Result<Cow<'a, Value>> {
    let nowhere = |reason: Cow<'static, str>| {
        let message = format!("the expression `{}` leads nowhere: {reason}", sanitize_truncated(expression, 200));
        Error::new(Code::ToolExecutionFailed, message)
    };
    if expression.len() > MAX_EXPRESSION_LEN {
        return Err(nowhere(format!("it is longer than {MAX_EXPRESSION_LEN} characters").into()));
    }
    resolve_in_scope(expression.trim(), scope).map_err(nowhere)
}

/// Whether a text is an expression, be it one that leads somewhere or not. `$5` and `$ref` are none.
pub fn is_expression(text: &str) -> bool {
    let Some(rest) = text.trim().strip_prefix('$') else { return false };
    let root = rest.split(['.', '#', '[']).next().unwrap_or_default();
    match root {
        "url" | "method" | "statusCode" => root.len() == rest.len(),
        "request" | "response" => rest.len() > root.len(),
        "inputs" | "outputs" | "steps" | "workflows" | "sourceDescriptions" | "components" => true,
        _ => false,
    }
}

/// No expression that means something is longer; finding a way through dotted names costs the square of its length.
const MAX_EXPRESSION_LEN: usize = 1024;

type ResolveResult<'a> = Result<Cow<'a, Value>, Cow<'static, str>>;

fn resolve_in_scope<'a>(expression: &str, scope: &Scope<'a>) -> ResolveResult<'a> {
    let text = |known: Option<&'a str>| known.map(|text| Cow::Owned(text.into())).ok_or(NO_REQUEST.into());
    match expression {
        "$url" => return text(scope.request.and_then(|request| request.url)),
        "$method" => return text(scope.request.and_then(|request| request.method)),
        "$statusCode" => {
            return scope.response.map(|response| Cow::Owned(response.status.into())).ok_or(NO_RESPONSE.into());
        }
        _ => {}
    }
    if let Some(rest) = expression.strip_prefix("$request.") {
        return resolve_request(rest, &scope.request.ok_or(NO_REQUEST)?);
    }
    if let Some(rest) = expression.strip_prefix("$response.") {
        return resolve_response(rest, &scope.response.ok_or(NO_RESPONSE)?);
    }
    let roots = [
        ("$inputs", scope.inputs),
        ("$outputs", scope.outputs),
        ("$steps", scope.steps),
        ("$workflows", scope.workflows),
        ("$sourceDescriptions", scope.source_descriptions),
        ("$components", scope.components),
    ];
    for (root, known) in roots {
        let Some(rest) = expression.strip_prefix(root) else { continue };
        if rest.is_empty() || rest.starts_with(['.', '[', '#']) {
            let known = known.ok_or_else(|| format!("nothing is known of `{root}` here"))?;
            return path::follow_path(known, rest).map(Cow::Borrowed).map_err(Into::into);
        }
    }
    Err("there is no such expression".into())
}

const NO_REQUEST: &str = "there is no request here";
const NO_RESPONSE: &str = "there is no response here";

fn resolve_request<'a>(rest: &str, request: &RequestScope<'a>) -> ResolveResult<'a> {
    if let Some(rest) = strip_body(rest) {
        let body = request.body.ok_or("the request has no body")?;
        return path::follow_path(body, rest).map(Cow::Borrowed).map_err(Into::into);
    }
    let (place, name) = rest.split_once('.').unwrap_or((rest, ""));
    let named = |values: Option<&'a Map<String, Value>>| values.and_then(|values| values.get(name));
    let value = match place {
        "path" => named(request.path),
        "query" => named(request.query),
        "header" => request
            .headers
            .and_then(|headers| headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)))
            .map(|(_, value)| value),
        _ => return Err("after `$request.` stands `header.`, `query.`, `path.` or `body`".into()),
    };
    value.map(Cow::Borrowed).ok_or_else(|| format!("the request has no {place} parameter of that name").into())
}

fn resolve_response<'a>(rest: &str, response: &ResponseScope<'a>) -> ResolveResult<'a> {
    if let Some(rest) = strip_body(rest) {
        let body = response.body.ok_or("the response has no body")?;
        return path::follow_path(body, rest).map(Cow::Borrowed).map_err(Into::into);
    }
    // Documents also write the plural.
    let name = rest.strip_prefix("header.").or_else(|| rest.strip_prefix("headers."));
    let name = name.ok_or("after `$response.` stands `header.` or `body`")?;
    let header = response.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
    header.map(|(_, value)| Cow::Owned(value.as_str().into())).ok_or_else(|| "the response has no such header".into())
}

fn strip_body(rest: &str) -> Option<&str> {
    rest.strip_prefix("body").filter(|rest| rest.is_empty() || rest.starts_with(['.', '[', '#']))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(expression: &str, expected: Result<Value, &str>) {
        let object = |value: Value| value.as_object().cloned().unwrap();
        let (path, query) = (object(json!({"id": 7})), object(json!({"a.b": [1]})));
        let headers = object(json!({"X-Key": "k"}));
        let (sent, body) = (json!({"user": {"uuid": "u"}}), json!({"id": 5, "a": [{"b": null}], "x/y": {"~": true}}));
        let response_headers = [("Location".to_owned(), "/jobs/5".to_owned())];
        let inputs = json!({"name": "rex", "deep": {"er": [10, 20]}, "dotted.name": {"x": 1}});
        let steps = json!({"find.it": {"outputs": {"pets": [{"id": 1}]}}});
        let workflows = json!({"buy": {"inputs": {"a": 1}, "outputs": {"b": {"name": "n"}}}});
        let (sources, components) = (json!({"shop": {"url": "u.json"}}), json!({"parameters": {"p": {"value": 3}}}));
        let scope = Scope {
            request: Some(RequestScope {
                url: Some("http://h/x?a=1"),
                method: Some("POST"),
                path: Some(&path),
                query: Some(&query),
                headers: Some(&headers),
                body: Some(&sent),
            }),
            response: Some(ResponseScope { status: 202, headers: &response_headers, body: Some(&body) }),
            inputs: Some(&inputs),
            outputs: None,
            steps: Some(&steps),
            workflows: Some(&workflows),
            source_descriptions: Some(&sources),
            components: Some(&components),
        };
        let found = evaluate(expression, &scope).map_err(|error| error.message);
        match expected {
            Ok(value) => assert_eq!(found, Ok(value), "{expression}"),
            Err(reason) => {
                let message =
                    format!("the expression `{}` leads nowhere: {reason}", sanitize_truncated(expression, 200));
                assert_eq!(found, Err(message));
            }
        }
    }

    #[test]
    fn an_expression_leads_to_a_value_of_its_type() {
        for (expression, value) in [
            ("$url", json!("http://h/x?a=1")),
            ("$method", json!("POST")),
            ("$statusCode", json!(202)),
            ("$request.path.id", json!(7)),
            ("$request.query.a.b", json!([1])),
            ("$request.header.x-key", json!("k")),
            ("$request.body#/user/uuid", json!("u")),
            ("$response.header.LOCATION", json!("/jobs/5")),
            ("$response.body#/id", json!(5)),
            ("$response.body#/a/0/b", json!(null)),
            ("$response.body#/x~1y/~0", json!(true)),
            ("$response.body.a[0].b", json!(null)),
            ("$response.body#", json!({"id": 5, "a": [{"b": null}], "x/y": {"~": true}})),
            ("$inputs.name", json!("rex")),
            ("$inputs.deep.er[1]", json!(20)),
            ("$inputs.deep#/er/0", json!(10)),
            ("$inputs.dotted.name.x", json!(1)),
            ("$steps.find.it.outputs.pets#/0/id", json!(1)),
            ("$steps.find.it.outputs.pets[0].id", json!(1)),
            ("$workflows.buy.inputs.a", json!(1)),
            ("$workflows.buy.outputs.b#/name", json!("n")),
            ("$sourceDescriptions.shop.url", json!("u.json")),
            ("$components.parameters.p.value", json!(3)),
        ] {
            check(expression, Ok(value));
        }
    }

    #[test]
    fn an_expression_that_leads_nowhere_is_named_with_the_reason() {
        for (expression, reason) in [
            ("$response.body#/nope", "there is nothing at `/nope`"),
            ("$response.body.a[9]", "there is no `[9]`"),
            ("$response.header.Nope", "the response has no such header"),
            ("$response.cookie.x", "after `$response.` stands `header.` or `body`"),
            ("$request.query.nope", "the request has no query parameter of that name"),
            ("$inputs.nope", "there is no `nope`"),
            ("$inputs.name.more", "there is no `more`"),
            ("$outputs.x", "nothing is known of `$outputs` here"),
            ("$nonsense.x", "there is no such expression"),
            ("$", "there is no such expression"),
            (&format!("$inputs.{}", "a.".repeat(600)), "it is longer than 1024 characters"),
        ] {
            check(expression, Err(reason));
        }
        let error = evaluate("$statusCode", &Scope::default()).unwrap_err();
        assert_eq!(error.message, "the expression `$statusCode` leads nowhere: there is no response here");
    }

    #[test]
    fn a_way_of_many_dots_through_a_deep_value_is_short() {
        let deep = (0..120).fold(json!({}), |inner, _| json!({"a": inner}));
        let scope = Scope { inputs: Some(&deep), ..Scope::default() };
        let expressions = vec![format!("$inputs.{}", ["a"; 120].join(".")); 2_000];
        assert_eq!(fill_value(&json!(expressions), &scope).unwrap(), json!(vec![json!({}); 2_000]));
        let dotted = json!({"a.b.c.d": {"e": 1}, "a": {"b": 2}});
        let scope = Scope { inputs: Some(&dotted), ..Scope::default() };
        assert_eq!(evaluate("$inputs.a.b.c.d.e", &scope).unwrap(), json!(1), "the longest name is meant");
    }

    #[test]
    fn money_and_references_are_no_expressions() {
        for (text, expected) in [
            ("$inputs.a", true),
            ("$steps", true),
            ("$statusCode", true),
            ("$response.body", true),
            ("$5", false),
            ("$ref", false),
            ("$url.x", false),
            ("$inputsome", false),
            ("Bearer $inputs.a", false),
            ("", false),
        ] {
            assert_eq!(is_expression(text), expected, "{text}");
        }
    }
}
