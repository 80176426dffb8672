//! Fills templates in `headers` and `base_url` of an OpenAPI source from its `variables`. Runs before references are
//! resolved, so that a resolved value is never parsed as a template. Documents and agents cannot supply templates.
//!
//! Example: `base_url: "https://{{ region }}.example.com"` with `variables: { region: eu }`. There are no conditions,
//! loops, functions or filters. The result may contain references such as `${env:TOKEN}`; those are resolved afterwards.

use std::borrow::Cow;
use std::collections::BTreeMap;

use toolcrib_core::source::{OpenApiSource, SourceKind};
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Code, Error, Result};

/// Limit on the size of a filled template.
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
pub fn fill_openapi(openapi: &OpenApiSource) -> Result<OpenApiSource> {
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

/// Whether a text contains a template. `{%` and `{#` are delimiters of larger template languages: a text with one of
/// them is refused, not sent as it is.
fn is_template(text: impl AsRef<str>) -> bool {
    ["{{", "{%", "{#"].iter().any(|delimiter| text.as_ref().contains(delimiter))
}

/// Replaces each `{{ name }}` by the variable of that name, once: values are not searched for further templates.
fn fill_template(text: &str, variables: &BTreeMap<String, String>) -> Result<String> {
    let invalid = |reason: String| Error::new(Code::ConfigInvalid, format!("a template cannot be filled: {reason}"));
    if text.contains("{%") || text.contains("{#") {
        return Err(invalid("only `{{ name }}` is supported, not `{%` or `{#`".to_owned()));
    }
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, template)) = rest.split_once("{{") {
        let (name, after) = template.split_once("}}").ok_or_else(|| invalid("`{{` has no `}}`".to_owned()))?;
        let name = name.trim();
        let value = variables.get(name).ok_or_else(|| {
            let name = sanitize_truncated(name, 80);
            invalid(format!("`{name}` is none of the source's `variables`"))
        })?;
        filled.push_str(before);
        filled.push_str(value);
        rest = after;
        if filled.len() > MAX_TEMPLATE_BYTES {
            return Err(invalid("it grows beyond 64 KiB".to_owned()));
        }
    }
    filled.push_str(rest);
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
            ("{{region}}-{{ region }}", "eu-eu"),
        ] {
            assert_eq!(fill_template(text, &variables()).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn a_template_that_cannot_be_filled_is_a_config_error() {
        let long = "{{ region }}".repeat(40_000);
        for text in
            ["{{ nothing }}", "{{ region", "{{ region | upper }}", "{% if region %}a{% endif %}", "{# a #}", &long]
        {
            let error = fill_template(text, &variables()).unwrap_err();
            assert_eq!(error.code, Code::ConfigInvalid, "{text}");
            assert!(error.message.starts_with("a template cannot be filled: "), "{error}");
        }
    }
}
