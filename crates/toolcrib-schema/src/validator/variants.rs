//! Errors of a value that matches no member of `anyOf` or `oneOf`: those of the variant that was meant.
//!
//! The variant is the one whose constants the value has (`"kind": "cat"`), or the only one of the value's type. If no
//! variant has the constant, the error lists the constants of all; otherwise only errors that all variants share are
//! reported.

use std::collections::BTreeMap;

use jsonschema::error::{ValidationError, ValidationErrorKind};
use serde_json::Value;

use super::{ArgumentError, describe_error, enum_error, is_unfinished};

/// A property whose value some variants reject by `const` or `enum`.
#[derive(Default)]
struct RejectedValue<'e> {
    /// One error per variant that rejects the value.
    errors: BTreeMap<usize, &'e ValidationError<'static>>,
    /// Whether a variant has a single value, as discriminators do.
    is_constant: bool,
}

/// Describes the errors of the variant that was meant. `parent` is the path of the value, `context` has the errors of
/// each variant. Returns `None` if the variants have nothing in common.
pub(super) fn describe_variant_errors(
    parent: &str,
    context: &[Vec<ValidationError<'static>>],
) -> Option<Vec<ArgumentError>> {
    // An unfinished match may have succeeded, so nothing is known about its variant.
    if context.iter().flatten().any(is_unfinished) {
        return None;
    }
    // Variants for values of another type were not meant.
    let is_other_type = |error: &ValidationError<'static>| {
        matches!(error.kind(), ValidationErrorKind::Type { .. }) && error.instance_path().as_str() == parent
    };
    let of_type = |errors: &&Vec<ValidationError<'static>>| !errors.iter().any(is_other_type);
    let variants: Vec<&Vec<ValidationError<'static>>> = context.iter().filter(of_type).collect();
    if let Some((path, rejected)) = find_discriminator(parent, &variants) {
        let accepts = |(index, _): &(usize, &Vec<ValidationError<'static>>)| !rejected.errors.contains_key(index);
        let accepting: Vec<_> = variants.into_iter().enumerate().filter(accepts).map(|(_, errors)| errors).collect();
        return match accepting[..] {
            [] => Some(vec![list_constants(path, &rejected)]),
            _ => shared_errors(&accepting),
        };
    }
    shared_errors(&variants)
}

/// Finds the property that tells the variants apart: rejected by most of them, constants first.
fn find_discriminator<'e>(
    parent: &str,
    variants: &[&'e Vec<ValidationError<'static>>],
) -> Option<(&'e str, RejectedValue<'e>)> {
    let mut properties: BTreeMap<&str, RejectedValue<'e>> = BTreeMap::new();
    for (index, errors) in variants.iter().enumerate() {
        for error in errors.iter() {
            let Some(choices) = allowed_values(error) else { continue };
            let path = error.instance_path().as_str();
            let is_property = path.strip_prefix(parent).and_then(|rest| rest.strip_prefix('/'));
            if is_property.is_some_and(|name| !name.contains('/')) {
                let rejected = properties.entry(path).or_default();
                rejected.errors.insert(index, error);
                rejected.is_constant |= choices.len() == 1;
            }
        }
    }
    // With a single variant there is nothing to tell apart.
    let candidates = properties.into_iter().filter(|_| variants.len() > 1);
    // Of equal ones the first counts, so the order is reversed.
    candidates.rev().max_by_key(|(_, rejected)| (rejected.errors.len(), rejected.is_constant))
}

/// Returns the values that a `const` or `enum` error allows.
fn allowed_values<'e>(error: &'e ValidationError<'static>) -> Option<Vec<&'e Value>> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "a foreign enum; only two kinds list values")]
    match error.kind() {
        ValidationErrorKind::Constant { expected_value } => Some(vec![expected_value]),
        ValidationErrorKind::Enum { options } => Some(options.as_array()?.iter().collect()),
        _ => None,
    }
}

/// Lists the values that the variants allow for the property.
fn list_constants(path: &str, rejected: &RejectedValue<'_>) -> ArgumentError {
    let mut choices: Vec<&Value> = Vec::new();
    for value in rejected.errors.values().filter_map(|error| allowed_values(error)).flatten() {
        if !choices.contains(&value) {
            choices.push(value);
        }
    }
    let actual = rejected.errors.values().next().map_or(&Value::Null, |error| error.instance());
    enum_error(path, actual, &choices)
}

/// Returns the errors that all variants have, such as the same missing property; of a single variant, all its errors.
fn shared_errors(variants: &[&Vec<ValidationError<'static>>]) -> Option<Vec<ArgumentError>> {
    let mut each = variants.iter().map(|errors| describe_all(errors));
    let mut shared = each.next()?;
    for errors in each {
        shared.retain(|error| errors.contains(error));
    }
    Some(shared).filter(|shared| !shared.is_empty())
}

/// Describes all errors of one variant.
fn describe_all(errors: &[ValidationError<'static>]) -> Vec<ArgumentError> {
    errors.iter().flat_map(describe_error).collect()
}
