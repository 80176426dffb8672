//! `/access/groups`, `/access/rules`, `/access/policies`: one group, access rule or policy, to create, change or remove.
//!
//! A GET shows the form, empty or filled in from the query: `?name=` is the rule to change, `&active=` switches an access
//! rule, `&remove` asks for a confirmation, other fields fill in a new one. A POST with the field `step` previews,
//! saves or removes. Saving needs the digest of the definition that was previewed, so that a user has seen the effect of
//! exactly this change, and the digest of the rule as it was when the form was opened, so that no change of
//! another administrator is overwritten. The script posts the form while it is edited, and shows the preview of the answer.

use axum::extract::{Path, RawQuery};
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use serde_json::{Value, json};
use toolcrib::core::access_rules::{AccessRules, NamedRule, RuleKind};
use toolcrib::core::inventory::{Inventory, Origin};
use toolcrib::core::text::sanitize_truncated;
use toolcrib::registry::{Precondition, RuleChange};
use toolcrib::{Code, Error, Registry, Result};

use super::draft::{DraftBody, DraftError, OriginalRule, RuleDraft, rule_digest, to_keys};
use super::rule_form::{render_form, render_original};
use super::rule_preview::{matching_tools, preview_change, render_effect, render_matches};
use super::section_path;
use super::yaml::write_yaml;
use crate::auth::AuthorizedRequest;
use crate::console::csrf_field;
use crate::console::form_data::FormData;
use crate::console::history::render_code_spans;
use crate::console::page::{NavItem, PageContext};
use crate::console::tool::render_blocking;
use crate::rest::ApiError;

/// Renders the form of a new rule or of the one that the query names.
pub(super) async fn show(
    AuthorizedRequest { app, client, .. }: AuthorizedRequest,
    Path(section): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Markup, ApiError> {
    let kind = parse_section(&section)?;
    let query = FormData::parse(query.as_deref().unwrap_or_default());
    Ok(render_blocking(app, client, move |context| render_page(context, kind, &query)).await??)
}

/// Previews look at every tool, so pages are rendered on a blocking thread.
fn render_page(context: &PageContext<'_>, kind: RuleKind, query: &FormData) -> Result<Markup> {
    let rules = context.rules().in_force();
    let Some(name) = query.get_text("name") else {
        if query.get("verdict").is_none() {
            return Ok(render_editor(context, &RuleDraft::empty(kind), &Outcome::Untouched));
        }
        let mut draft = RuleDraft::from_form(kind, query);
        if draft.name.is_empty() {
            draft.name = propose_name(&rules, &draft);
        }
        return Ok(render_evaluated(context, &draft, PreviewReason::Edited));
    };
    let (rule, origin) = rules.find(kind, name).ok_or_else(|| context.rules().unknown_error(kind, name))?;
    if origin != Origin::Runtime {
        return Ok(render_configured(context, &rule));
    }
    if query.get("remove").is_some() {
        return Ok(render_removal(context, &rule, None));
    }
    let mut draft = RuleDraft::from_rule(&rule);
    if let (Some(active), DraftBody::Fields(keys)) = (query.get("active"), &mut draft.body) {
        keys.insert("active".to_owned(), json!(active == "true"));
    }
    Ok(render_evaluated(context, &draft, PreviewReason::Edited))
}

/// Handles the form.
pub(super) async fn submit(
    AuthorizedRequest { app, client, .. }: AuthorizedRequest,
    Path(section): Path<String>,
    form_data: FormData,
) -> Result<Response, ApiError> {
    let kind = parse_section(&section)?;
    let (definitions, actor) = (app.registry.rules(), client.actor());
    let submission = render_blocking(app.clone(), client.clone(), move |context| {
        Submission::read(context, RuleDraft::from_form(kind, &form_data), &form_data)
    });
    match submission.await? {
        Submission::Show(page) => Ok(page.into_response()),
        Submission::Save(draft, rule) => {
            let is_current = |inventory: &Inventory| check_current(inventory, &draft);
            let Err(error) = definitions.only_if(Precondition::new(&is_current)).define(*rule, actor).await else {
                return Ok(Redirect::to(&list_url(kind)).into_response());
            };
            let outcome = Outcome::Invalid(vec![DraftError::general(error.message_without_next_step())]);
            Ok(render_blocking(app, client, move |context| render_editor(context, &draft, &outcome))
                .await?
                .into_response())
        }
        Submission::Remove(draft) => {
            let name = draft.name.clone();
            let (rule, _) =
                definitions.in_force().find(kind, &name).ok_or_else(|| definitions.unknown_error(kind, &name))?;
            let is_current = |inventory: &Inventory| check_current(inventory, &draft);
            let Err(error) = definitions.only_if(Precondition::new(&is_current)).remove(kind, &name, actor).await
            else {
                return Ok(Redirect::to(&list_url(kind)).into_response());
            };
            let page = render_blocking(app, client, move |context| render_removal(context, &rule, Some(&error)));
            Ok(page.await?.into_response())
        }
    }
}

/// Change that a submitted form asks for, or the page that answers it.
enum Submission {
    Save(RuleDraft, Box<NamedRule>),
    Remove(RuleDraft),
    Show(Markup),
}

impl Submission {
    fn read(context: &PageContext<'_>, draft: RuleDraft, form_data: &FormData) -> Submission {
        match form_data.get("step").unwrap_or("preview") {
            "save" => match check(&context.app.registry, &draft) {
                Ok(rule) if form_data.get("previewed") == Some(rule_digest(&rule).as_str()) => {
                    Submission::Save(draft, Box::new(rule))
                }
                _ => Submission::Show(render_evaluated(context, &draft, PreviewReason::Unconfirmed)),
            },
            "remove" => Submission::Remove(draft),
            "yaml" => Submission::Show(render_evaluated(context, &draft.into_yaml(), PreviewReason::Edited)),
            "fields" => Submission::Show(match draft.to_fields() {
                Ok(draft) => render_evaluated(context, &draft, PreviewReason::Edited),
                Err(errors) => render_editor(context, &draft, &Outcome::Invalid(errors)),
            }),
            _ => Submission::Show(render_evaluated(context, &draft, PreviewReason::Edited)),
        }
    }
}

/// Renders the form of a draft with its preview.
fn render_evaluated(context: &PageContext<'_>, draft: &RuleDraft, reason: PreviewReason) -> Markup {
    render_editor(context, draft, &evaluate(context, draft, reason))
}

/// Why a preview is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PreviewReason {
    Edited,
    /// The user wants to save something else than was previewed.
    Unconfirmed,
}

/// State of a draft.
pub(super) enum Outcome {
    /// Nothing was filled in yet.
    Untouched,
    Invalid(Vec<DraftError>),
    Valid {
        preview: Markup,
        /// Digest of the definition that was previewed.
        digest: String,
        reason: PreviewReason,
    },
}

/// Parses a draft, and refuses a new rule with the name of another one.
fn check(registry: &Registry, draft: &RuleDraft) -> std::result::Result<NamedRule, Vec<DraftError>> {
    let rule = draft.parse()?;
    let is_taken = registry.rules().in_force().origin(draft.kind, &draft.name).is_some();
    if draft.original.is_none() && is_taken {
        let message = format!("there is another {} `{}`; choose another name", draft.kind.noun(), draft.name);
        return Err(vec![DraftError::about_name(message)]);
    }
    Ok(rule)
}

/// Fails with `CONFLICT` if the rule is no longer as it was when the form was opened.
fn check_current(inventory: &Inventory, draft: &RuleDraft) -> Result<()> {
    let known = inventory.rules().find(draft.kind, &draft.name).map(|(rule, _)| rule_digest(&rule));
    if known.as_ref() == draft.original.as_ref().map(|original| &original.digest) {
        return Ok(());
    }
    let (noun, name) = (draft.kind.noun(), &draft.name);
    let message = format!("the {noun} `{name}` has changed since you opened this form; open it again from the list");
    Err(Error::new(Code::Conflict, message).with_retryable(false))
}

/// Finds out what a draft would do.
fn evaluate(context: &PageContext<'_>, draft: &RuleDraft, reason: PreviewReason) -> Outcome {
    let rule = match check(&context.app.registry, draft) {
        Ok(rule) => rule,
        Err(errors) => return Outcome::Invalid(errors),
    };
    let matches = matching_tools(&context.rules(), &rule);
    let digest = rule_digest(&rule);
    match preview_change(context, &RuleChange::Define(Box::new(rule))) {
        Ok(preview) => {
            let preview = html! {
                @if let Some(found) = &matches { (render_matches(found)) }
                (render_effect(&preview))
            };
            Outcome::Valid { preview, digest, reason }
        }
        Err(error) => Outcome::Invalid(vec![DraftError::general(error.message_without_next_step())]),
    }
}

/// Renders the page with the form and the preview beside it.
fn render_editor(context: &PageContext<'_>, draft: &RuleDraft, outcome: &Outcome) -> Markup {
    let title = match &draft.original {
        Some(original) => format!("{} {}", capitalize(draft.kind.noun()), original.name),
        None => format!("New {}", draft.kind.noun()),
    };
    let content = html! {
        (render_trail(draft.kind, draft.original.as_ref().map_or("new", |original| &original.name)))
        header.head { h1 { (title) } }
        (render_form(context, draft, outcome))
    };
    context.render_page(NavItem::Access, &title, content)
}

/// Renders a rule of the configuration, which can be changed only there.
fn render_configured(context: &PageContext<'_>, rule: &NamedRule) -> Markup {
    let (kind, name) = (rule.kind(), rule.name());
    let title = format!("{} {name}", capitalize(kind.noun()));
    let content = html! {
        (render_trail(kind, name))
        header.head { h1 { (title) } }
        p.notice {
            @match context.app.registry.rules().configured_at(kind, name) {
                Some(origin) => { "Defined in " code { (origin.file) } " line " (origin.line) "; change it there." }
                None => { "Defined in the configuration of another process; change it there." }
            }
        }
        section aria-labelledby="definition-title" {
            h2 id="definition-title" { "Definition" }
            pre tabindex="0" { code { (write_yaml(&to_keys(rule))) } }
        }
        @if let Some(found) = matching_tools(&context.rules(), rule) {
            section.card aria-labelledby="members-title" { h2 id="members-title" { "Tools" } (render_matches(&found)) }
        }
    };
    context.render_page(NavItem::Access, &title, content)
}

/// Renders the question whether a rule is to be removed, with the effect.
fn render_removal(context: &PageContext<'_>, rule: &NamedRule, error: Option<&Error>) -> Markup {
    let (kind, name) = (rule.kind(), rule.name());
    let title = format!("Remove {} {name}", kind.noun());
    let preview = preview_change(context, &RuleChange::Remove(kind, name.to_owned()));
    let error = error.or(preview.as_ref().err());
    let content = html! {
        (render_trail(kind, name))
        header.head { h1 { (title) } }
        section.card data-static aria-label="Effect" {
            @if let Some(error) = &error { p.message role="alert" { (render_code_spans(&error.message)) } }
            @if let Ok(preview) = &preview {
                (render_effect(preview))
                form method="post" action=(section_path(kind)) {
                    (csrf_field(context.client))
                    (render_original(&OriginalRule::new(rule)))
                    p.buttons {
                        button.danger name="step" value="remove" { "Remove permanently" }
                        a href=(list_url(kind)) { "Cancel" }
                    }
                }
            }
        }
    };
    context.render_page(NavItem::Access, &title, content)
}

fn render_trail(kind: RuleKind, name: &str) -> Markup {
    let section = match kind {
        RuleKind::Group => "Groups",
        RuleKind::Access => "Access rules",
        RuleKind::Policy => "Policies",
    };
    html! {
        nav.trail aria-label="Breadcrumb" {
            a href="/access" { "Access" } " / " a href=(list_url(kind)) { (section) } " / " span { (name) }
        }
    }
}

/// Returns the address of the list that has the rules of a kind.
fn list_url(kind: RuleKind) -> String {
    section_path(kind).replacen("/access/", "/access#", 1)
}

/// An unknown section is an unknown path, hence `NOT_FOUND`.
fn parse_section(section: &str) -> Result<RuleKind> {
    let path = format!("/access/{section}");
    RuleKind::ALL.into_iter().find(|kind| section_path(*kind) == path).ok_or_else(|| {
        let section = sanitize_truncated(section, 40);
        Error::new(Code::NotFound, format!("unknown page `{section}`"))
    })
}

/// Proposes a free name for a policy, such as `ask-destructive`.
fn propose_name(rules: &AccessRules, draft: &RuleDraft) -> String {
    let DraftBody::Fields(keys) = &draft.body else { return String::new() };
    let mut words = vec![keys.get("verdict").and_then(Value::as_str).unwrap_or("policy").to_owned()];
    let conditions = keys.get("match").and_then(Value::as_object).into_iter().flat_map(|keys| keys.values());
    for value in conditions {
        match value {
            Value::String(text) => words.push(text.clone()),
            Value::Array(items) => words.extend(items.iter().filter_map(Value::as_str).map(str::to_owned)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {}
        }
    }
    if words.len() == 1 {
        words.push("all".to_owned());
    }
    let text = words.join("-").to_lowercase();
    let allowed: String = text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let pieces: Vec<&str> = allowed.split('-').filter(|piece| !piece.is_empty()).collect();
    // Leaves room for a number.
    let base: String = pieces.join("-").chars().take(56).collect();
    let numbered = (2..).map(|number| format!("{base}-{number}"));
    let mut names = std::iter::once(base.clone()).chain(numbered);
    names.find(|name| rules.origin(draft.kind, name).is_none()).unwrap_or(base)
}

fn capitalize(text: &str) -> String {
    let mut characters = text.chars();
    let first: String = characters.next().into_iter().flat_map(char::to_uppercase).collect();
    format!("{first}{}", characters.as_str())
}
