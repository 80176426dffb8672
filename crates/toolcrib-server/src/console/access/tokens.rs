//! `/access/tokens`: creates tokens, and changes and revokes them. The secret of a new token is shown once.

use axum::extract::RawQuery;
use axum::http::header;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use serde_json::{Map, Value, json};
use toolcrib::core::access::{AccessToken, Role};
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::core::inventory::{Inventory, TokenChange};
use toolcrib::core::text::sanitize_truncated;
use toolcrib::core::time::parse_long_duration;
use toolcrib::registry::{CreatedToken, Precondition, TokenRequest, TokenView};
use toolcrib::{Code, Error};

use super::callers;
use super::draft::DraftError;
use super::fields::FieldRenderer;
use super::rule_form::group_options;
use crate::auth::AuthorizedRequest;
use crate::console::csrf_field;
use crate::console::form_data::FormData;
use crate::console::history::render_code_spans;
use crate::console::page::{NavItem, PageContext};
use crate::console::text::{Tone, format_count, state_badge, time_ago, time_ago_or};
use crate::console::tool::render_blocking;
use crate::rest::ApiError;

/// Renders the list of tokens, for the Access page.
pub(super) fn render_section(context: &PageContext<'_>) -> Markup {
    let tokens = context.app.registry.tokens().list();
    html! {
        section id="tokens" aria-labelledby="tokens-title" {
            div.row { h2 id="tokens-title" { "Tokens" } a href="/access/tokens" { "Create a token" } }
            @if tokens.is_empty() {
                p.empty { "No tokens. Clients on other machines need one, and conditions can refer to it." }
            } @else {
                table.list.rules {
                    caption.unseen { "Tokens with their roles and groups" }
                    thead { tr {
                        th scope="col" { "Token" } th scope="col" { "Role" } th scope="col" { "Created" } th scope="col" { "Expires" }
                        th scope="col" { "Last used" } th scope="col" { span.unseen { "Actions" } }
                    } }
                    tbody { @for token in &tokens { (render_row(context, token)) } }
                }
            }
        }
    }
}

fn render_row(context: &PageContext<'_>, token: &TokenView) -> Markup {
    let url = format!("/access/tokens?id={}", token.id);
    let claims = token.claims.as_map().len();
    html! {
        tr id=(format!("token-{}", token.id)) {
            th scope="row" {
                a href=(url) { (token.name) }
                span.under {
                    @if token.groups.is_empty() { "no groups of its own" }
                    @else { "only " @for (index, group) in token.groups.iter().enumerate() { @if index > 0 { ", " } code { (group) } } }
                    @if claims > 0 { " · " (format_count(claims, "claim")) }
                }
            }
            td data-label="Role" { (token.role) }
            td data-label="Created" { (time_ago(token.created_at)) }
            td data-label="Expires" {
                @match token.expires_at {
                    _ if token.expired => { (state_badge(Tone::Bad, "expired")) }
                    Some(at) => { time datetime=(at) title=(at) { (at.to_string().get(..10).unwrap_or_default()) } }
                    None => { span.faint { "never" } }
                }
            }
            td data-label="Last used" { (time_ago_or(token.last_used, "never")) }
            td.actions {
                div.actions {
                    a href=(callers::token_url(&token.id)) { "Preview" span.unseen { " as " (token.name) } }
                    a href=(url) { "Edit" span.unseen { " " (token.name) } }
                    details.sure id=(format!("sure-{}", token.id)) name="sure" {
                        summary { "Revoke…" span.unseen { " " (token.name) } }
                        div {
                            p { "Requests with this token are rejected from then on. This cannot be undone." }
                            form method="post" action="/access/tokens" data-act {
                                (csrf_field(context.client))
                                input type="hidden" name="id" value=(token.id);
                                input type="hidden" name="step" value="revoke";
                                button { "Revoke permanently" span.unseen { " " (token.name) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Fields of the form as they were typed.
#[derive(Debug, Default)]
struct TokenForm {
    /// Id of the token that is changed; `None` for a new one.
    id: Option<String>,
    /// Digest of that token when the form was opened.
    original_digest: String,
    name: String,
    role: String,
    groups: Vec<String>,
    claims: String,
    expires: String,
}

/// Renders the form of a new token or of the one that the query names.
pub(super) async fn show(
    AuthorizedRequest { app, client, .. }: AuthorizedRequest,
    RawQuery(query): RawQuery,
) -> Result<Markup, ApiError> {
    let query = FormData::parse(query.as_deref().unwrap_or_default());
    let form = match query.get_text("id") {
        Some(id) => {
            let known = app.registry.tokens().get(id)?;
            let inventory = app.registry.inventory();
            let revoked = || Error::new(Code::NotFound, "the token was revoked");
            TokenForm::from_token(inventory.token(&known.id).ok_or_else(revoked)?)
        }
        None => TokenForm { role: Role::Agent.as_str().to_owned(), ..TokenForm::default() },
    };
    render_blocking(app, client, move |context| render_editor(context, &form, &[])).await
}

/// Handles the form.
pub(super) async fn submit(
    AuthorizedRequest { app, client, .. }: AuthorizedRequest,
    form_data: FormData,
) -> Result<Response, ApiError> {
    let tokens = app.registry.tokens();
    let form = TokenForm::from_form(&form_data);
    if form_data.get("step") == Some("revoke") {
        tokens.revoke(form.id.as_deref().unwrap_or_default(), client.actor()).await?;
        return Ok(Redirect::to("/access#tokens").into_response());
    }
    let result = match (form.parse(), form.id.clone()) {
        (Err(errors), _) => Err(errors),
        (Ok(request), Some(id)) => {
            let is_current = |inventory: &Inventory| form.check_current(inventory, &id);
            let TokenRequest { name, role, groups, claims, .. } = request;
            let (name, role) = (Some(name), Some(role));
            let change = TokenChange { id: id.clone(), name, role, groups: Some(groups), claims: Some(claims) };
            let changed = tokens.only_if(Precondition::new(&is_current)).change(change, client.actor()).await;
            changed.map(|_| None).map_err(describe_error)
        }
        (Ok(request), None) => tokens.create_from(request, client.actor()).await.map(Some).map_err(describe_error),
    };
    match result {
        Ok(Some(created)) => {
            let page = render_blocking(app, client, move |context| render_created(context, &created)).await?;
            Ok(([(header::CACHE_CONTROL, "no-store")], page).into_response())
        }
        Ok(None) => Ok(Redirect::to("/access#tokens").into_response()),
        Err(errors) => {
            let page = render_blocking(app, client, move |context| render_editor(context, &form, &errors));
            Ok(page.await?.into_response())
        }
    }
}

fn describe_error(error: Error) -> Vec<DraftError> {
    vec![DraftError::general(error.message_without_next_step())]
}

/// Digest of all that the form changes.
fn token_digest(token: &AccessToken) -> String {
    let content = json!([token.name(), token.role(), token.groups(), token.claims()]);
    Fingerprint::digest(content.to_string()).to_string()
}

impl TokenForm {
    fn from_token(token: &AccessToken) -> TokenForm {
        TokenForm {
            id: Some(token.id.clone()),
            original_digest: token_digest(token),
            name: token.name().to_owned(),
            role: token.role().as_str().to_owned(),
            groups: token.groups().to_vec(),
            claims: write_claims(token.claims().as_map()),
            expires: String::new(),
        }
    }

    fn from_form(form_data: &FormData) -> TokenForm {
        let text = |key: &str| form_data.get(key).map(str::trim).unwrap_or_default().to_owned();
        TokenForm {
            id: form_data.get_text("id").map(str::to_owned),
            original_digest: text("original_digest"),
            name: text("name"),
            role: text("role"),
            groups: form_data.get_all("groups").map(str::to_owned).collect(),
            claims: text("claims"),
            expires: text("expires"),
        }
    }

    /// Fails with `CONFLICT` if the token is no longer as it was when the form was opened.
    fn check_current(&self, inventory: &Inventory, id: &str) -> toolcrib::Result<()> {
        match inventory.token(id) {
            Some(token) if token_digest(token) != self.original_digest => {
                let name = token.name();
                let message =
                    format!("the token `{name}` has changed since you opened this form; open it again from the list");
                Err(Error::new(Code::Conflict, message).with_retryable(false))
            }
            // A revoked one is refused by the change itself.
            _ => Ok(()),
        }
    }

    fn parse(&self) -> Result<TokenRequest, Vec<DraftError>> {
        let mut errors = Vec::new();
        let mut report = |field: &str, message: String| {
            errors.push(DraftError { field: field.to_owned(), ..DraftError::general(message) });
        };
        if self.name.is_empty() {
            report("name", "enter a name".to_owned());
        }
        let role = Role::parse(&self.role).unwrap_or_else(|| {
            report("role", "choose a role".to_owned());
            Role::Viewer
        });
        let claims = read_claims(&self.claims).unwrap_or_else(|message| {
            report("claims", message);
            Map::new()
        });
        let expires = (!self.expires.is_empty()).then(|| parse_long_duration(&self.expires));
        if expires == Some(None) {
            let text = sanitize_truncated(&self.expires, 40);
            report("expires", format!("write a duration such as `12h` or `30d`, not `{text}`"));
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let (name, groups, expires) = (self.name.clone(), self.groups.clone(), expires.flatten());
        Ok(TokenRequest { name, role, expires, groups, claims })
    }
}

/// Reads claims, one per line: `KEY=VALUE` is text, `KEY:=JSON` any value. Errors do not repeat values.
fn read_claims(text: &str) -> Result<Map<String, Value>, String> {
    let mut claims = Map::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let number = index + 1;
        let Some((key, value)) = line.split_once('=') else {
            return Err(format!("line {number}: write `KEY=VALUE`, or `KEY:=JSON`"));
        };
        let (key, value) = match key.trim().strip_suffix(':') {
            Some(key) => {
                (key, serde_json::from_str(value).map_err(|_| format!("line {number}: the value is not JSON"))?)
            }
            None => (key.trim(), json!(value.trim())),
        };
        if claims.insert(key.trim().to_owned(), value).is_some() {
            return Err(format!("line {number}: the claim is given twice; a list is `KEY:=[…]`"));
        }
    }
    Ok(claims)
}

/// Writes claims as [`read_claims`] reads them.
fn write_claims(claims: &Map<String, Value>) -> String {
    let is_plain = |text: &&str| text.trim() == *text && !text.contains(['\n', '\r']);
    let line = |(key, value): (&String, &Value)| match value.as_str().filter(is_plain) {
        Some(text) => format!("{key}={text}"),
        None => format!("{key}:={value}"),
    };
    claims.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn render_editor(context: &PageContext<'_>, form: &TokenForm, errors: &[DraftError]) -> Markup {
    let fields = FieldRenderer { errors };
    let title = if form.id.is_some() { format!("Token {}", form.name) } else { "New token".to_owned() };
    let roles = [
        (Role::Viewer, "viewer: reads"),
        (Role::Agent, "agent: reads and calls"),
        (Role::Admin, "admin: changes everything"),
    ];
    let roles = roles.map(|(role, label)| (role.as_str().to_owned(), label.to_owned()));
    let groups = group_options(context);
    let checked: Vec<&str> = form.groups.iter().map(String::as_str).collect();
    let content = html! {
        (render_trail(form.id.as_ref().map_or("new", |_| &form.name)))
        header.head { h1 { (title) } }
        form.stack.card.narrow method="post" action="/access/tokens" data-static {
            (csrf_field(context.client))
            @for error in errors.iter().filter(|error| error.field.is_empty()) {
                p.message role="alert" { (render_code_spans(&error.message)) }
            }
            @if let Some(id) = &form.id {
                input type="hidden" name="id" value=(id);
                input type="hidden" name="original_digest" value=(form.original_digest);
            }
            (fields.text("name", "Name", &form.name, "ci", "For lists and the history"))
            (fields.select("role", "Role", &form.role, &roles, "What its holder may do"))
            @if !groups.is_empty() || !checked.is_empty() {
                (fields.checkboxes("groups", "Only these groups", &checked, &groups, "None: access rules decide"))
            }
            (fields.multiline("claims", "Claims", &form.claims, "team=desk", "Facts for conditions, one per line: KEY=VALUE, or KEY:=JSON"))
            @if form.id.is_none() {
                (fields.text("expires", "Expires after", &form.expires, "30d", "Such as 12h, 30d or 8w; empty: never"))
            }
            p.buttons {
                button.primary { @if form.id.is_some() { "Save" } @else { "Create" } }
                a href="/access#tokens" { "Cancel" }
            }
        }
    };
    context.render_page(NavItem::Access, &title, content)
}

/// Renders the new token with its secret.
fn render_created(context: &PageContext<'_>, created: &CreatedToken) -> Markup {
    let content = html! {
        (render_trail(&created.view.name))
        header.head { h1 { "Token " (created.view.name) } }
        section.card data-static aria-labelledby="secret-title" {
            h2 id="secret-title" { "Copy it now" }
            p { "Only its hash is stored: the token is shown this once." }
            div.copied {
                pre tabindex="0" { code id="secret" { (created.token) } }
                button.copy type="button" data-copy="secret" hidden { "Copy" }
            }
            p { a href="/access#tokens" { "All tokens" } }
        }
    };
    context.render_page(NavItem::Access, "Token created", content)
}

fn render_trail(name: &str) -> Markup {
    html! {
        nav.trail aria-label="Breadcrumb" {
            a href="/access" { "Access" } " / " a href="/access#tokens" { "Tokens" } " / " span { (name) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_read_back_and_never_quoted() {
        let text = "team=desk\nregions:=[\"eu\",\"uk\"]\nspace:=\" a\"";
        let claims = read_claims(text).unwrap();
        assert_eq!(Value::Object(claims.clone()), json!({ "team": "desk", "regions": ["eu", "uk"], "space": " a" }));
        assert_eq!(write_claims(&claims), text);
        for invalid in ["hunter2", "a:=hunter2", "a=hunter2\na=hunter2"] {
            let message = read_claims(invalid).unwrap_err();
            assert!(!message.contains("hunter2"), "{message}");
        }
    }
}
