//! Fills templates in `headers` and `base_url` of an OpenAPI source from its `variables`. Runs before references are
//! resolved, so that a resolved value is never parsed as a template. Documents and agents cannot supply templates.
//!
//! Example: `base_url: "https://{{ region }}.example.com"` with `variables: { region: eu }`. The engine is `minijinja`
//! without functions, filters and includes, with limits on steps and size, because a project's file may be written by
//! others. The result may contain references such as `${env:TOKEN}`; those are resolved afterwards.

use std::borrow::Cow;
use std::collections::BTreeMap;

use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value};
use toolcrib_core::source::{OpenApiSource, SourceKind};
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Code, Error, Result};

/// Limit on the instructions of one template. A template that exceeds it, e.g. by a loop, fails.
const MAX_TEMPLATE_INSTRUCTIONS: u64 = 10_000;
/// Limit on the size of a template and of its result.
const MAX_TEMPLATE_BYTES: usize = 64 * 1024;

/// Fills the templates of a source. Borrowed if there are none. Fails with `CONFIG_INVALID`, naming the header or
/// `base_url`.
pub(crate) fn fill_kind(kind: &SourceKind) -> Result<Cow<'_, SourceKind>> {
    match kind {
        SourceKind::OpenApi(openapi) if openapi.headers.values().chain(&openapi.base_url).any(is_template) => {
            Ok(Cow::Owned(SourceKind::OpenApi(fill_openapi(openapi)?)))
        }
        SourceKind::OpenApi(_)
        | SourceKind::Stdio(_)
        | SourceKind::Http(_)
        | SourceKind::Sse(_)
        | SourceKind::Workflow(_)
        | SourceKind::Builtin(_) => Ok(Cow::Borrowed(kind)),
    }
}

/// Fills the templates of an OpenAPI source.
pub(crate) fn fill_openapi(openapi: &OpenApiSource) -> Result<OpenApiSource> {
    let fill = |name: &str, text: &str| {
        fill_template(text, &openapi.variables)
            .map_err(|error| Error::new(error.code, format!("`{name}`: {}", error.message)))
    };
    let header = |(name, text): (&String, &String)| Ok((name.clone(), fill(name, text)?));
    Ok(OpenApiSource {
        base_url: openapi.base_url.as_deref().map(|text| fill("base_url", text)).transpose()?,
        headers: openapi.headers.iter().map(header).collect::<Result<_>>()?,
        ..openapi.clone()
    })
}

/// Whether a text contains a delimiter of templates.
fn is_template(text: impl AsRef<str>) -> bool {
    ["{{", "{%", "{#"].iter().any(|delimiter| text.as_ref().contains(delimiter))
}

/// Replaces `{{ name }}` and evaluates `{% if … %}` with the variables. An unknown variable is an error.
fn fill_template(text: &str, variables: &BTreeMap<String, String>) -> Result<String> {
    if !is_template(text) {
        return Ok(text.to_owned());
    }
    let invalid = |reason: &str| Error::new(Code::ConfigInvalid, format!("a template cannot be filled: {reason}"));
    if text.len() > MAX_TEMPLATE_BYTES {
        return Err(invalid("it is longer than 64 KiB"));
    }
    // Values go into headers and addresses, not into HTML, so nothing is escaped. An empty environment: no functions,
    // filters, tests or includes.
    let mut environment = Environment::empty();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    // Bounds loops.
    environment.set_fuel(Some(MAX_TEMPLATE_INSTRUCTIONS));
    environment.set_recursion_limit(32);
    let context = Value::from(variables.clone());
    let filled = environment.render_str(text, context).map_err(|error| {
        let detail = error.detail().map(|detail| format!(" ({})", sanitize_truncated(detail, 200))).unwrap_or_default();
        invalid(&format!("{}{detail}; only the source's `variables` can be used", error.kind()))
    })?;
    if filled.len() > MAX_TEMPLATE_BYTES {
        return Err(invalid("it grows beyond 64 KiB"));
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables() -> BTreeMap<String, String> {
        let variables = [("region", "eu"), ("token", "${env:TOKEN}"), ("evil", "{{ region }}"), ("html", "<&>")];
        variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    }

    #[test]
    fn templates_are_filled_once_from_the_variables() {
        for (text, expected) in [
            ("plain {text}", "plain {text}"),
            ("https://{{ region }}.example.com", "https://eu.example.com"),
            ("Bearer {{ token }}", "Bearer ${env:TOKEN}"),
            ("${env:{{ region }}}", "${env:eu}"),
            ("{{ evil }}", "{{ region }}"),
            ("{{ html }}", "<&>"),
            ("{% if region == 'eu' %}a{% else %}b{% endif %}", "a"),
        ] {
            assert_eq!(fill_template(text, &variables()).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn a_template_that_cannot_be_filled_is_a_config_error() {
        for text in [
            "{{ nothing }}",
            "{{ region",
            "{% include 'x' %}",
            "{{ range(9) }}",
            "{{ region | upper }}",
            "{% for a in 'xxxxxxxxxx' * 100000 %}{{ a }}{% endfor %}",
            "{{ 'x' * 100000 }}",
        ] {
            let error = fill_template(text, &variables()).unwrap_err();
            assert_eq!(error.code, Code::ConfigInvalid, "{text}");
            assert!(error.message.starts_with("a template cannot be filled: "), "{text}: {error}");
        }
    }
}
