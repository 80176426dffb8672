//! Tokens for those who come over the network. A token itself is in the answer to its making, and nowhere else.

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, patch, post};
use serde::Deserialize;
use serde_json::{Value, json};
use toolcrib::core::access::Role;
use toolcrib::core::text::shown_short;
use toolcrib::core::time::parse_long_duration;
use toolcrib::{Code, Error};

use super::asked::Named;
use super::body::Json;
use super::fault::Fault;
use super::reply;
use super::route::{Route, reference};
use super::shape::{nullable, object, one_of, partial};
use crate::access::Visitor;
use crate::house::House;

pub(super) fn routes() -> Vec<Route> {
    let one = |route: Route| route.path("id", json!({ "type": "string", "minLength": 1 }), "A token's id, or its name");
    vec![
        Route::new("GET", "/api/tokens", "list_tokens", get(list))
            .about("The tokens there are, without what they are")
            .answers(200, "Tokens", "In the order of their names"),
        Route::new("POST", "/api/tokens", "create_token", post(create))
            .about("Make a token; it is told in this answer and never again")
            .takes("NewToken")
            .answers(201, "CreatedToken", "The token")
            .refuses(&[400, 409, 413, 415, 503]),
        one(Route::new("GET", "/api/tokens/{id}", "get_token", get(show)))
            .about("A token, without what it is")
            .answers(200, "Token", "The token")
            .refuses(&[400, 404]),
        one(Route::new("PATCH", "/api/tokens/{id}", "change_token", patch(change)))
            .about("Give a token another name or role")
            .may_take("TokenChange")
            .answers(200, "Token", "The token as it is now")
            .refuses(&[400, 404, 409, 413, 415, 503]),
        one(Route::new("DELETE", "/api/tokens/{id}", "revoke_token", delete(revoke)))
            .about("Revoke a token: from now on it opens nothing")
            .answer(204, json!({ "description": "It is gone" }))
            .refuses(&[400, 404, 503]),
    ]
}

pub(super) fn schemas() -> Vec<(&'static str, Value)> {
    let (text, role) = (json!({ "type": "string" }), one_of(&["viewer", "agent", "admin"]));
    let moment = json!({ "type": "string", "format": "date-time" });
    let fields = [
        ("id", text.clone()),
        ("name", text.clone()),
        ("role", role.clone()),
        ("created_at", moment.clone()),
        ("expires_at", nullable(moment)),
        ("expired", json!({ "type": "boolean" })),
    ];
    let created: Vec<(&str, Value)> = fields.iter().cloned().chain([("token", text)]).collect();
    let name = json!({ "type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$" });
    let expires = json!({ "type": ["string", "null"], "description": "Such as `12h`, `30d` or `8w`; never otherwise" });
    let mut new = object(&[("name", name.clone()), ("role", role.clone())]);
    new["properties"]["expires"] = expires;
    new["additionalProperties"] = json!(false);
    let mut change = partial(&[("name", nullable(name)), ("role", nullable(role))]);
    change["additionalProperties"] = json!(false);
    let tokens = object(&[("tokens", json!({ "type": "array", "items": reference("Token") }))]);
    vec![
        ("Token", object(&fields)),
        ("Tokens", tokens),
        ("CreatedToken", object(&created)),
        ("NewToken", new),
        ("TokenChange", change),
    ]
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct New {
    name: String,
    role: Role,
    expires: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    name: Option<String>,
    role: Option<Role>,
}

async fn list(State(house): State<House>) -> Result<Response, Fault> {
    Ok(reply::json(StatusCode::OK, &json!({ "tokens": house.registry.tokens() }))?)
}

async fn show(State(house): State<House>, Named(name): Named) -> Result<Response, Fault> {
    Ok(reply::json(StatusCode::OK, &house.registry.token(&name)?)?)
}

async fn create(
    State(house): State<House>,
    Extension(visitor): Extension<Visitor>,
    Json(new): Json<New>,
) -> Result<Response, Fault> {
    let wrong = |text: &str| {
        let message = format!("`expires` is a length of time such as `12h` or `30d`, not `{}`", shown_short(text, 40));
        Error::new(Code::BadRequest, message)
    };
    let expires =
        new.expires.as_deref().map(|text| parse_long_duration(text).ok_or_else(|| wrong(text))).transpose()?;
    let created = house.registry.create_token(&new.name, new.role, expires, visitor.actor()).await?;
    let mut response = reply::json(StatusCode::CREATED, &created)?;
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // An id is made of hexadecimal digits.
    if let Ok(location) = HeaderValue::from_str(&format!("/api/tokens/{}", created.view.id)) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

async fn change(
    State(house): State<House>,
    Extension(visitor): Extension<Visitor>,
    Named(name): Named,
    Json(change): Json<Change>,
) -> Result<Response, Fault> {
    let changed = house.registry.change_token(&name, change.name, change.role, visitor.actor()).await?;
    Ok(reply::json(StatusCode::OK, &changed)?)
}

async fn revoke(
    State(house): State<House>,
    Extension(visitor): Extension<Visitor>,
    Named(name): Named,
) -> Result<Response, Fault> {
    house.registry.revoke_token(&name, visitor.actor()).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
