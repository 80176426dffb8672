//! Errors of a value that matches no member of `anyOf` or `oneOf`: those of the variant that was meant.
//!
//! The variant is the one whose constants the value has (`"kind": "cat"`), or the only one of the value's type. If no
//! variant has the constant, the error lists the constants of all; otherwise only errors that all variants share are
//! reported.

use std::collections::{BTreeMap, HashMap, HashSet};

use jsonschema::error::{ValidationError, ValidationErrorKind};
use serde_json::Value;

use super::{ArgumentError, describe_error, enum_error, is_unfinished};

/// Maximum nesting of variants that are read as variants of the outermost list.
const MAX_VARIANT_NESTING: usize = 4;
/// Maximum number of variants, including nested ones.
const MAX_VARIANTS: usize = 500;
/// Maximum number of errors of all variants together. Errors beside nested variants belong to each of these.
const MAX_VARIANT_ERRORS: usize = 5_000;

/// Errors of one variant.
type VariantErrors<'e> = Vec<&'e ValidationError<'static>>;

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
    let mut variants = Vec::new();
    for errors in context {
        flatten_variants(parent, errors.iter().collect(), 0, &mut variants);
    }
    // Variants for values of another type were not meant. A variant that excludes the value as a whole (`not`) is for
    // values that select none of the others.
    let is_other = |error: &&ValidationError<'static>| {
        matches!(error.kind(), ValidationErrorKind::Type { .. } | ValidationErrorKind::Not { .. })
            && error.instance_path().as_str() == parent
    };
    variants.retain(|errors| !errors.iter().any(is_other));
    if let Some((path, rejected)) = find_discriminator(parent, &variants) {
        let accepts = |(index, _): &(usize, VariantErrors<'_>)| !rejected.errors.contains_key(index);
        let accepting: Vec<_> = variants.into_iter().enumerate().filter(accepts).map(|(_, errors)| errors).collect();
        return match accepting[..] {
            [] => Some(vec![list_constants(path, &rejected)]),
            _ => shared_errors(&accepting),
        };
    }
    shared_errors(&variants)
}

/// Adds the variants of a value. One that has variants of its own counts as these.
fn flatten_variants<'e>(
    parent: &str,
    errors: VariantErrors<'e>,
    nesting: usize,
    variants: &mut Vec<VariantErrors<'e>>,
) {
    let nested = errors.iter().enumerate().find_map(|(index, error)| {
        let context = variant_context(error).filter(|_| error.instance_path().as_str() == parent)?;
        Some((index, context))
    });
    match nested {
        Some((index, context))
            if nesting < MAX_VARIANT_NESTING
                && variants.len() + context.len() <= MAX_VARIANTS
                && count_errors(variants) + context.len() * errors.len() <= MAX_VARIANT_ERRORS =>
        {
            for member in context {
                let others = errors.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, error)| *error);
                flatten_variants(parent, member.iter().chain(others).collect(), nesting + 1, variants);
            }
        }
        _ => variants.push(errors),
    }
}

/// Returns the number of errors of all variants.
fn count_errors(variants: &[VariantErrors<'_>]) -> usize {
    variants.iter().map(Vec::len).sum()
}

/// Returns the errors of each member of an `anyOf` or `oneOf` that a value does not match.
fn variant_context<'e>(error: &'e ValidationError<'static>) -> Option<&'e Vec<Vec<ValidationError<'static>>>> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "a foreign enum; only two kinds have variants")]
    match error.kind() {
        ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => Some(context),
        _ => None,
    }
}

/// Finds the property that tells the variants apart: rejected by most of them, constants first.
fn find_discriminator<'e>(parent: &str, variants: &[VariantErrors<'e>]) -> Option<(&'e str, RejectedValue<'e>)> {
    let mut properties: BTreeMap<&str, RejectedValue<'e>> = BTreeMap::new();
    for (index, errors) in variants.iter().enumerate() {
        for error in errors.iter().copied() {
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
fn allowed_values<'e>(error: &'e ValidationError<'static>) -> Option<&'e [Value]> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "a foreign enum; only two kinds list values")]
    match error.kind() {
        ValidationErrorKind::Constant { expected_value } => Some(std::slice::from_ref(expected_value)),
        ValidationErrorKind::Enum { options } => options.as_array().map(Vec::as_slice),
        _ => None,
    }
}

/// Lists the values that the variants allow for the property.
fn list_constants(path: &str, rejected: &RejectedValue<'_>) -> ArgumentError {
    // An error beside nested variants is in each of them.
    let mut read: HashSet<*const ValidationError<'static>> = HashSet::new();
    let errors = rejected.errors.values().filter(|error| read.insert(std::ptr::from_ref(**error)));
    let mut seen: HashSet<String> = HashSet::new();
    let choices = errors.filter_map(|error| allowed_values(error)).flatten();
    let choices: Vec<&Value> = choices.filter(|value| seen.insert(value.to_string())).collect();
    let actual = rejected.errors.values().next().map_or(&Value::Null, |error| error.instance());
    enum_error(path, actual, &choices)
}

/// Returns the errors that all variants have, such as the same missing property; of a single variant, all its errors.
fn shared_errors(variants: &[VariantErrors<'_>]) -> Option<Vec<ArgumentError>> {
    // Each error is described once, however many variants have it: describing one may describe variants inside it.
    let mut described: HashMap<*const ValidationError<'static>, Vec<ArgumentError>> = HashMap::new();
    for error in variants.iter().flatten().copied() {
        described.entry(std::ptr::from_ref(error)).or_insert_with(|| describe_error(error));
    }
    let mut each = variants.iter().map(|errors| {
        let errors = errors.iter().filter_map(|error| described.get(&std::ptr::from_ref(*error)));
        errors.flatten().collect::<Vec<&ArgumentError>>()
    });
    let mut shared = each.next()?;
    for errors in each {
        let errors: HashSet<&ArgumentError> = errors.into_iter().collect();
        shared.retain(|error| errors.contains(error));
    }
    Some(shared.into_iter().cloned().collect()).filter(|shared: &Vec<ArgumentError>| !shared.is_empty())
}
