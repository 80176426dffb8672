//! Runtime expressions of OpenAPI links and Arazzo: `$response.body#/id`, `$steps.find.outputs.pet`. They are resolved
//! in a [`Scope`]; the error for an unresolvable expression names it.
//!
//! An expression has a root (`$inputs`, `$response.body`, …), names or indices (`.pets[0].name`), and optionally a
//! JSON pointer after `#`. `path` follows the part after the root; `fill` fills templates that contain expressions.
//! Nothing is evaluated beyond that: there are no operators, which conditions of Arazzo add (`arazzo/condition.rs`).

mod fill;
mod path;

use std::borrow::Cow;

use serde_json::{Map, Value};
use toolcrib_core::error::{Code, Error, Result};
use toolcrib_core::text::sanitize_truncated;

pub use fill::{FillBudget, approximate_size, fill_value, fill_within};

/// Values that expressions can refer to. `None` means not available in this context.
#[derive(Debug, Clone, Copy, Default)]
pub struct Scope<'a> {
    pub request: Option<RequestScope<'a>>,
    pub response: Option<ResponseScope<'a>>,
    /// `$inputs`: object by name.
    pub inputs: Option<&'a Value>,
    /// `$outputs`: object by name.
    pub outputs: Option<&'a Value>,
    /// `$steps`: `{"login": {"outputs": {…}}}`
    pub steps: Option<&'a Value>,
    /// `$workflows`: `{"buy": {"inputs": {…}, "outputs": {…}}}`
    pub workflows: Option<&'a Value>,
    /// `$sourceDescriptions`: `{"shop": {"url": …, "type": …}}`
    pub source_descriptions: Option<&'a Value>,
    /// `$components` of the Arazzo document.
    pub components: Option<&'a Value>,
}

/// A request as specified: parameter values by their names in the request, before serialisation. Expressions refer to
/// the values that a step gave, not to their encoding in the URL.
#[derive(Debug, Clone, Copy, Default)]
pub struct RequestScope<'a> {
    pub url: Option<&'a str>,
    pub method: Option<&'a str>,
    pub path: Option<&'a Map<String, Value>>,
    pub query: Option<&'a Map<String, Value>>,
    pub headers: Option<&'a Map<String, Value>>,
    pub body: Option<&'a Value>,
}

/// The response to that request.
#[derive(Debug, Clone, Copy)]
pub struct ResponseScope<'a> {
    pub status: u16,
    pub headers: &'a [(String, String)],
    pub body: Option<&'a Value>,
}

/// Evaluates an expression. The value keeps its JSON type.
pub fn evaluate(expression: &str, scope: &Scope<'_>) -> Result<Value> {
    resolve(expression, scope).map(Cow::into_owned)
}

/// Like [`evaluate`], borrowing from the scope where possible.
///
/// # Errors
/// `TOOL_EXECUTION_FAILED` with the expression and the reason.
pub fn resolve<'a>(expression: &str, scope: &Scope<'a>) -> Result<Cow<'a, Value>> {
    let resolve_error = |reason: Cow<'static, str>| {
        let message = format!("the expression `{}` cannot be resolved: {reason}", sanitize_truncated(expression, 200));
        Error::new(Code::ToolExecutionFailed, message)
    };
    if expression.len() > MAX_EXPRESSION_LEN {
        return Err(resolve_error(format!("it is longer than {MAX_EXPRESSION_LEN} bytes").into()));
    }
    resolve_in_scope(expression.trim(), scope).map_err(resolve_error)
}

/// Whether a text has the form of an expression, resolvable or not. `$5` and `$ref` have not.
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

/// Maximum length of an expression in bytes. Resolving dotted names can take quadratic time.
const MAX_EXPRESSION_LEN: usize = 1024;

/// Value, or the reason why there is none.
type ResolveResult<'a> = Result<Cow<'a, Value>, Cow<'static, str>>;

/// Resolves an expression by its root.
fn resolve_in_scope<'a>(expression: &str, scope: &Scope<'a>) -> ResolveResult<'a> {
    let text_value =
        |value: Option<&'a str>| value.map(|text_value| Cow::Owned(text_value.into())).ok_or(NO_REQUEST.into());
    match expression {
        "$url" => return text_value(scope.request.and_then(|request| request.url)),
        "$method" => return text_value(scope.request.and_then(|request| request.method)),
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
    // The others are JSON objects that a path is followed in.
    let roots = [
        ("$inputs", scope.inputs),
        ("$outputs", scope.outputs),
        ("$steps", scope.steps),
        ("$workflows", scope.workflows),
        ("$sourceDescriptions", scope.source_descriptions),
        ("$components", scope.components),
    ];
    for (root, value) in roots {
        let Some(rest) = expression.strip_prefix(root) else { continue };
        // `$inputsome` begins with a root, but is none.
        if rest.is_empty() || rest.starts_with(['.', '[', '#']) {
            let value = value.ok_or_else(|| format!("`{root}` is not available here"))?;
            return path::follow_path(value, rest).map(Cow::Borrowed).map_err(Into::into);
        }
    }
    Err("it is not a known expression".into())
}

/// Reasons for expressions that are used where no call was made, such as in the parameters of a step.
const NO_REQUEST: &str = "no request is available here";
const NO_RESPONSE: &str = "no response is available here";

/// Resolves what follows `$request.`.
fn resolve_request<'a>(rest: &str, request: &RequestScope<'a>) -> ResolveResult<'a> {
    if let Some(rest) = strip_body(rest) {
        let body = request.body.ok_or("the request has no body")?;
        return path::follow_path(body, rest).map(Cow::Borrowed).map_err(Into::into);
    }
    // The rest is one name, which may contain dots.
    let (location, name) = rest.split_once('.').unwrap_or((rest, ""));
    let find_value = |values: Option<&'a Map<String, Value>>| values.and_then(|values| values.get(name));
    let value = match location {
        "path" => find_value(request.path),
        "query" => find_value(request.query),
        // Header names ignore case, parameters of path and query do not.
        "header" => request
            .headers
            .and_then(|headers| headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)))
            .map(|(_, value)| value),
        _ => return Err("expected `header.`, `query.`, `path.` or `body` after `$request.`".into()),
    };
    value.map(Cow::Borrowed).ok_or_else(|| format!("the request has no {location} parameter of that name").into())
}

/// Resolves what follows `$response.`.
fn resolve_response<'a>(rest: &str, response: &ResponseScope<'a>) -> ResolveResult<'a> {
    if let Some(rest) = strip_body(rest) {
        let body = response.body.ok_or("the response has no body")?;
        return path::follow_path(body, rest).map(Cow::Borrowed).map_err(Into::into);
    }
    // The specification has `header.`; real documents use the plural too.
    let name = rest.strip_prefix("header.").or_else(|| rest.strip_prefix("headers."));
    let name = name.ok_or("expected `header.` or `body` after `$response.`")?;
    let header = response.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
    header.map(|(_, value)| Cow::Owned(value.as_str().into())).ok_or_else(|| "the response has no such header".into())
}

/// Strips `body` if a path or the end follows.
fn strip_body(rest: &str) -> Option<&str> {
    rest.strip_prefix("body").filter(|rest| rest.is_empty() || rest.starts_with(['.', '[', '#']))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(expression: &str, expected: Result<Value, &str>) {
        let object = |value: Value| value.as_object().cloned().unwrap();
        let path = object(json!({"id": 7}));
        let query = object(json!({"a.b": [1]}));
        let headers = object(json!({"X-Key": "k"}));
        let sent = json!({"user": {"uuid": "u"}});
        let body = json!({"id": 5, "a": [{"b": null}], "x/y": {"~": true}});
        let response_headers = [("Location".to_owned(), "/jobs/5".to_owned())];
        let inputs = json!({"name": "rex", "deep": {"er": [10, 20]}, "dotted.name": {"x": 1}});
        let steps = json!({"find.it": {"outputs": {"pets": [{"id": 1}]}}});
        let workflows = json!({"buy": {"inputs": {"a": 1}, "outputs": {"b": {"name": "n"}}}});
        let sources = json!({"shop": {"url": "u.json"}});
        let components = json!({"parameters": {"p": {"value": 3}}});
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
                    format!("the expression `{}` cannot be resolved: {reason}", sanitize_truncated(expression, 200));
                assert_eq!(found, Err(message));
            }
        }
    }

    #[test]
    fn a_value_keeps_its_type() {
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
    fn an_unresolvable_expression_is_reported_with_the_reason() {
        for (expression, reason) in [
            ("$response.body#/nope", "there is no value at `/nope`"),
            ("$response.body.a[9]", "there is no `[9]`"),
            ("$response.header.Nope", "the response has no such header"),
            ("$response.cookie.x", "expected `header.` or `body` after `$response.`"),
            ("$request.query.nope", "the request has no query parameter of that name"),
            ("$inputs.nope", "there is no `nope`"),
            ("$inputs.name.more", "there is no `more`"),
            ("$outputs.x", "`$outputs` is not available here"),
            ("$nonsense.x", "it is not a known expression"),
            ("$", "it is not a known expression"),
            (&format!("$inputs.{}", "a.".repeat(600)), "it is longer than 1024 bytes"),
        ] {
            check(expression, Err(reason));
        }
        let error = evaluate("$statusCode", &Scope::default()).unwrap_err();
        assert_eq!(error.message, "the expression `$statusCode` cannot be resolved: no response is available here");
    }

    #[test]
    fn many_dots_in_a_deep_value_are_resolved_quickly() {
        let deep = (0..120).fold(json!({}), |inner, _| json!({"a": inner}));
        let scope = Scope { inputs: Some(&deep), ..Scope::default() };
        let expressions = vec![format!("$inputs.{}", ["a"; 120].join(".")); 2_000];
        assert_eq!(fill_value(&json!(expressions), &scope).unwrap(), json!(vec![json!({}); 2_000]));
        let dotted = json!({"a.b.c.d": {"e": 1}, "a": {"b": 2}});
        let scope = Scope { inputs: Some(&dotted), ..Scope::default() };
        assert_eq!(evaluate("$inputs.a.b.c.d.e", &scope).unwrap(), json!(1), "the longest matching name wins");
    }

    #[test]
    fn amounts_and_schema_references_are_no_expressions() {
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
