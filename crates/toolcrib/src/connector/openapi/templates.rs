//! Templates in a source's own `headers` and `base_url`, filled from its own `variables`. They are filled before
//! references are: what a reference stands for is never read as a template. Nothing of a document or of an agent
//! comes here.

use std::borrow::Cow;
use std::collections::BTreeMap;

use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value};
use toolcrib_core::source::{Kind, OpenApi};
use toolcrib_core::text::shown_short;
use toolcrib_core::{Code, Error, Result};

/// Instructions of one template.
const FUEL: u64 = 10_000;
const LONGEST: usize = 64 * 1024;

/// The same kind with its templates filled.
pub(crate) fn filled(kind: &Kind) -> Result<Cow<'_, Kind>> {
    match kind {
        Kind::OpenApi(openapi) => Ok(Cow::Owned(Kind::OpenApi(filled_openapi(openapi)?))),
        Kind::Stdio(_) | Kind::Http(_) | Kind::Sse(_) | Kind::Workflow(_) | Kind::Builtin(_) => Ok(Cow::Borrowed(kind)),
    }
}

pub(super) fn filled_openapi(openapi: &OpenApi) -> Result<OpenApi> {
    let of = |name: &str, text: &str| {
        fill(text, &openapi.variables).map_err(|error| Error::new(error.code, format!("`{name}`: {}", error.message)))
    };
    let header = |(name, text): (&String, &String)| Ok((name.clone(), of(name, text)?));
    Ok(OpenApi {
        base_url: openapi.base_url.as_deref().map(|text| of("base_url", text)).transpose()?,
        headers: openapi.headers.iter().map(header).collect::<Result<_>>()?,
        ..openapi.clone()
    })
}

/// Text with `{{ name }}` and `{% if … %}` filled from the variables. One that is not there is an error.
pub(super) fn fill(text: &str, variables: &BTreeMap<String, String>) -> Result<String> {
    if !["{{", "{%", "{#"].iter().any(|mark| text.contains(mark)) {
        return Ok(text.to_owned());
    }
    let wrong = |reason: &str| Error::new(Code::ConfigInvalid, format!("a template cannot be filled: {reason}"));
    if text.len() > LONGEST {
        return Err(wrong("it is longer than 64 KiB"));
    }
    // Without functions, filters, tests and other templates.
    let mut environment = Environment::empty();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(32);
    let context = Value::from(variables.clone());
    let filled = environment.render_str(text, context).map_err(|error| {
        let detail = error.detail().map(|detail| format!(" ({})", shown_short(detail, 200))).unwrap_or_default();
        wrong(&format!("{}{detail}; it knows the source's `variables`", error.kind()))
    })?;
    if filled.len() > LONGEST {
        return Err(wrong("it grows beyond 64 KiB"));
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
            assert_eq!(fill(text, &variables()).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn a_template_that_cannot_be_filled_is_a_fault_of_the_configuration() {
        for text in [
            "{{ nothing }}",
            "{{ region",
            "{% include 'x' %}",
            "{{ range(9) }}",
            "{{ region | upper }}",
            "{% for a in 'xxxxxxxxxx' * 100000 %}{{ a }}{% endfor %}",
            "{{ 'x' * 100000 }}",
        ] {
            let error = fill(text, &variables()).unwrap_err();
            assert_eq!(error.code, Code::ConfigInvalid, "{text}");
            assert!(error.message.starts_with("a template cannot be filled: "), "{text}: {error}");
        }
    }
}
