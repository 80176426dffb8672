//! Finds how to request the next page of a list, and how long the list is, in a response, and says so in terms of the
//! tool's arguments: `next page: page=3 (of 120 items)`.
//!
//! A next page is announced by a `Link` header, by `X-Next-Page`, by a link of the OpenAPI document from the operation to
//! itself, or by a member of the body with a well-known name. URLs are never shown, only values of declared arguments:
//! an API may repeat credentials in its links.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderMap;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use toolcrib_connector::redact::Redactor;
use toolcrib_core::execution::{Operation, ParameterLocation};
use toolcrib_core::json::{parse_exact, plain_text};
use toolcrib_core::text::sanitize_truncated;
use toolcrib_schema::{parse_typed, parse_typed_items};
use url::Url;

use super::result::header_pairs;
use super::send::ReceivedResponse;
use crate::expression::{ResponseScope, Scope, evaluate};

/// Bound on the length of a `Link` header.
const MAX_LINK_HEADER_LEN: usize = 16 * 1024;
/// Longer cursors are not reported.
const MAX_VALUE_LEN: usize = 1024;
/// Larger members of a body hold the items of a page, not a cursor.
const MAX_MEMBER_LEN: usize = 4096;
/// Bound on the number of reported arguments.
const MAX_ARGUMENTS: usize = 8;

/// Headers with the number of all items. The first is the most common one, the last is WordPress's.
const TOTAL_HEADERS: [&str; 5] = ["x-total-count", "x-total", "total-count", "x-pagination-total-count", "x-wp-total"];
/// Members of a body with the number of all items.
const TOTAL_POINTERS: [&str; 14] = [
    "/total",
    "/total_count",
    "/totalCount",
    "/total_items",
    "/totalItems",
    "/total_results",
    "/totalResults",
    "/@odata.count",
    "/meta/total",
    "/meta/total_count",
    "/pagination/total",
    "/page/totalElements",
    "/totalElements",
    "/count",
];
/// Members of a body with the URL of the next page.
const NEXT_URL_POINTERS: [&str; 15] = [
    "/next",
    "/links/next",
    "/links/next/href",
    "/_links/next",
    "/_links/next/href",
    "/@odata.nextLink",
    "/nextLink",
    "/next_url",
    "/next_page_url",
    "/paging/next",
    "/pagination/next",
    "/pagination/next_url",
    "/meta/next",
    "/info/next",
    "/next_page",
];
/// Members of a body that a cursor may stand in, beside the body itself.
const CURSOR_PARENTS: [&str; 7] =
    ["", "/meta", "/pagination", "/paging", "/page_info", "/pageInfo", "/response_metadata"];
/// Names of a cursor, and the arguments that may take it, without case and separators.
const CURSORS: [(&str, &[&str]); 14] = [
    ("next_cursor", &["cursor", "nextcursor", "after", "pagecursor"]),
    ("nextCursor", &["cursor", "nextcursor", "after", "pagecursor"]),
    ("next_page_token", &["pagetoken", "nextpagetoken", "token"]),
    ("nextPageToken", &["pagetoken", "nextpagetoken", "token"]),
    ("next_token", &["nexttoken", "token", "pagetoken"]),
    ("nextToken", &["nexttoken", "token", "pagetoken"]),
    ("continuation_token", &["continuationtoken", "continuation"]),
    ("continuationToken", &["continuationtoken", "continuation"]),
    ("end_cursor", &["after", "cursor"]),
    ("endCursor", &["after", "cursor"]),
    ("next_page", &["page", "pagenumber", "nextpage"]),
    ("nextPage", &["page", "pagenumber", "nextpage"]),
    ("next_offset", &["offset", "start", "skip"]),
    ("nextOffset", &["offset", "start", "skip"]),
];

/// Arguments with which the next page can be requested, and what was sent.
#[derive(Debug)]
pub(super) struct PageArguments {
    /// Name in the query, and argument.
    query: Vec<(String, String)>,
    /// Expressions of the document's own links, by argument.
    next_page: BTreeMap<String, String>,
    /// URL of the request, without credentials.
    sent: Url,
    /// For the types of the values.
    input_schema: Box<RawValue>,
    redactor: Arc<Redactor>,
}

/// Position of a response in a list.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Pagination {
    /// Arguments that differ in the call for the next page.
    next: Map<String, Value>,
    /// Parts of the next page's query that no argument sets.
    undeclared: Vec<String>,
    /// The next page has another path, which no argument sets.
    has_other_path: bool,
    total: Option<u64>,
}

impl PageArguments {
    pub(super) fn new(
        operation: &Operation,
        sent: &Url,
        input_schema: &RawValue,
        redactor: Arc<Redactor>,
    ) -> PageArguments {
        let parameters = operation.parameters.iter();
        let query = parameters
            .filter(|parameter| parameter.location == ParameterLocation::Query)
            .map(|parameter| (parameter.name.clone(), parameter.argument.clone()))
            .collect();
        let next_page = operation.next_page.clone();
        PageArguments { query, next_page, sent: sent.clone(), input_schema: input_schema.to_owned(), redactor }
    }

    pub(super) fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// Reads headers and JSON body of a successful response. `None` if they say nothing about pages.
    pub(super) fn find(&self, received: &ReceivedResponse, body: Option<&RawValue>) -> Option<Pagination> {
        let ReceivedResponse { status, headers, url, .. } = received;
        let header_total = total_from_headers(headers);
        let has_arguments = !self.query.is_empty() || !self.next_page.is_empty();
        let members = body.filter(|_| has_arguments).map(small_members).unwrap_or_default();
        let link = next_link(headers).and_then(|link| url.join(&link).ok());
        let next = self
            .next_by_url(link.as_ref())
            .or_else(|| self.next_by_header(headers))
            .or_else(|| self.next_by_document(status.as_u16(), headers, &members))
            .or_else(|| self.next_by_url(next_url(&members).and_then(|link| url.join(link).ok()).as_ref()))
            .or_else(|| self.next_by_cursor(&members))
            .or_else(|| self.next_elsewhere(link.as_ref()));
        match next {
            Some(next) => Some(Pagination { total: header_total.or_else(|| total_from_body(&members)), ..next }),
            // The length in a body is visible there; without a next page it is no news.
            None => header_total.map(|total| Pagination { total: Some(total), ..Pagination::default() }),
        }
    }

    /// Compares the URL of the next page with the one that was sent.
    fn next_by_url(&self, next: Option<&Url>) -> Option<Pagination> {
        let next = next.filter(|next| self.has_same_path(next))?;
        let sent = query_values(&self.sent);
        let mut found = Pagination::default();
        for (name, values) in query_values(next) {
            if sent.get(&name) == Some(&values) {
                continue;
            }
            let argument = self.query.iter().find(|(wire, _)| *wire == name).map(|(_, argument)| argument);
            match (argument, values.as_slice()) {
                (Some(argument), [value]) => self.add_argument(&mut found, argument, value),
                (Some(argument), _) => {
                    found.next.insert(argument.clone(), parse_typed_items(&self.schema(), argument, &values));
                }
                (None, _) => found.undeclared.push(sanitize_truncated(&name, 40)),
            }
        }
        // The value of a repeated argument may hold a secret as well.
        found.next.retain(|_, value| !self.is_secret(&value.to_string()));
        found.undeclared.truncate(MAX_ARGUMENTS);
        (!found.next.is_empty() || !found.undeclared.is_empty()).then_some(found)
    }

    /// A link to a page with a path of its own.
    fn next_elsewhere(&self, next: Option<&Url>) -> Option<Pagination> {
        let has_other_path = next.is_some_and(|next| !next.cannot_be_a_base() && !self.has_same_path(next));
        has_other_path.then(|| Pagination { has_other_path, ..Pagination::default() })
    }

    /// Whether a URL has the path that was sent. The host may be another one behind a proxy, and the path may use an id
    /// instead of a name, as GitHub's does, so the last segment counts.
    fn has_same_path(&self, url: &Url) -> bool {
        let last_segment = |url: &Url| url.path().trim_end_matches('/').rsplit('/').next().map(str::to_owned);
        last_segment(url) == last_segment(&self.sent)
    }

    /// `X-Next-Page`, as of GitLab: a number, empty on the last page.
    fn next_by_header(&self, headers: &HeaderMap) -> Option<Pagination> {
        let page = headers.get("x-next-page")?.to_str().ok()?.trim();
        let argument = self.find_argument(&["page"])?;
        self.single_argument(argument, page)
    }

    /// Links of the document from the operation to itself.
    fn next_by_document(&self, status: u16, headers: &HeaderMap, members: &Value) -> Option<Pagination> {
        if self.next_page.is_empty() {
            return None;
        }
        let headers = header_pairs(headers);
        let response = ResponseScope { status, headers: &headers, body: Some(members) };
        let scope = Scope { response: Some(response), ..Scope::default() };
        let mut found = Pagination::default();
        for (argument, expression) in &self.next_page {
            // A missing value means that there is no next page.
            let value = evaluate(expression, &scope).ok().filter(|value| !value.is_null())?;
            self.add_argument(&mut found, argument, &scalar_text(&value)?);
        }
        (!found.next.is_empty()).then_some(found)
    }

    /// A member with the well-known name of a cursor, if an argument takes it.
    fn next_by_cursor(&self, members: &Value) -> Option<Pagination> {
        let has_more = ["/has_more", "/hasMore", "/pageInfo/hasNextPage", "/page_info/has_next_page"];
        if has_more.iter().any(|pointer| members.pointer(pointer) == Some(&Value::Bool(false))) {
            return None;
        }
        for parent in CURSOR_PARENTS {
            let Some(object) = members.pointer(parent).and_then(Value::as_object) else { continue };
            for (name, arguments) in CURSORS {
                let value = object.get(name).and_then(scalar_text);
                if let (Some(value), Some(argument)) = (value, self.find_argument(arguments)) {
                    return self.single_argument(argument, &value);
                }
            }
        }
        None
    }

    fn single_argument(&self, argument: &str, value: &str) -> Option<Pagination> {
        let mut found = Pagination::default();
        self.add_argument(&mut found, argument, value);
        (!found.next.is_empty()).then_some(found)
    }

    /// Adds an argument with the type of its schema, unless the value is empty, too long, or a secret.
    fn add_argument(&self, found: &mut Pagination, argument: &str, value: &str) {
        let is_reported = !value.is_empty() && value.len() <= MAX_VALUE_LEN && !self.is_secret(value);
        if is_reported && found.next.len() < MAX_ARGUMENTS {
            found.next.insert(argument.to_owned(), self.typed_value(argument, value));
        }
    }

    fn is_secret(&self, value: &str) -> bool {
        self.redactor.redact(value) != value
    }

    /// Value of the type that the schema of the argument asks for.
    fn typed_value(&self, argument: &str, value: &str) -> Value {
        let typed = parse_typed(&self.schema(), argument, value);
        // A cursor may be the text `null`.
        if typed.is_null() { value.into() } else { typed }
    }

    fn schema(&self) -> Value {
        serde_json::from_str(self.input_schema.get()).unwrap_or_default()
    }

    /// Argument of the query with one of these names, compared without case and separators.
    fn find_argument(&self, names: &[&str]) -> Option<&str> {
        let normalize = |name: &str| -> String {
            name.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase()).collect()
        };
        names.iter().find_map(|name| {
            let mut query = self.query.iter();
            query.find(|(wire, _)| normalize(wire) == *name).map(|(_, argument)| argument.as_str())
        })
    }
}

impl Pagination {
    /// Line for the agent: `next page: page=3 (of 120 items)`.
    pub(super) fn to_text(&self) -> String {
        let total = self.total.map(|total| format!(" (of {total} items)")).unwrap_or_default();
        let undeclared: Vec<String> = self.undeclared.iter().map(|name| format!("`{name}`")).collect();
        match (self.next.is_empty(), undeclared.is_empty()) {
            (true, true) if self.has_other_path => {
                format!("there is a next page{total}, but no argument of this tool reaches it")
            }
            (true, true) => format!("{} items in total", self.total.unwrap_or_default()),
            (true, false) => {
                format!(
                    "there is a next page{total}, but the API's {} is no argument of this tool",
                    undeclared.join(", ")
                )
            }
            (false, true) => format!("next page: {}{total}", self.arguments_text()),
            (false, false) => format!(
                "next page: {}{total}; the API also uses {}, which is no argument of this tool",
                self.arguments_text(),
                undeclared.join(", ")
            ),
        }
    }

    fn arguments_text(&self) -> String {
        let arguments = self.next.iter().map(|(argument, value)| match plain_text(value) {
            // Quoted where its end would not be visible, and so that it stays on its line.
            text if value.is_string() && text.contains(|letter: char| needs_quotes(letter)) => {
                format!("{argument}={}", escape_lines(&value.to_string()))
            }
            text => format!("{argument}={text}"),
        });
        arguments.collect::<Vec<_>>().join(", ")
    }

    /// For programs: `{"next": {"page": 3}, "total": 120}`.
    pub(super) fn to_meta(&self) -> Map<String, Value> {
        let mut meta = Map::new();
        if !self.next.is_empty() {
            meta.insert("next".into(), self.next.clone().into());
        }
        if let Some(total) = self.total {
            meta.insert("total".into(), total.into());
        }
        meta
    }
}

/// Whether a character in an unquoted value could be taken for the end of the value.
fn needs_quotes(letter: char) -> bool {
    letter.is_whitespace() || letter.is_control() || matches!(letter, ',' | ';' | '"' | '\\')
}

/// Escapes the line separators that JSON allows in a string.
fn escape_lines(json: &str) -> String {
    json.replace('\u{85}', "\\u0085").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

/// Target of the first link with the relation `next` (RFC 8288).
fn next_link(headers: &HeaderMap) -> Option<String> {
    let values = headers.get_all(http::header::LINK).iter().filter_map(|value| value.to_str().ok());
    values.filter(|value| value.len() <= MAX_LINK_HEADER_LEN).find_map(|value| {
        let mut rest = value;
        // Targets may contain commas and semicolons, so links are found by their angle brackets.
        while let Some((_, after)) = rest.split_once('<') {
            let (target, parameters) = after.split_once('>')?;
            let end = parameters.find('<').unwrap_or(parameters.len());
            if parameters[..end].split(';').any(is_next_relation) {
                return Some(target.trim().to_owned());
            }
            rest = &parameters[end..];
        }
        None
    })
}

/// Whether a parameter of a link is `rel` with the relation `next`, alone or among others.
fn is_next_relation(parameter: &str) -> bool {
    let Some((name, value)) = parameter.split_once('=') else { return false };
    let value = value.trim().trim_end_matches(',').trim().trim_matches('"');
    name.trim().eq_ignore_ascii_case("rel") && value.split_whitespace().any(|word| word.eq_ignore_ascii_case("next"))
}

/// Number of all items, from a header of its own or from `Content-Range: items 0-9/120`.
fn total_from_headers(headers: &HeaderMap) -> Option<u64> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse().ok();
    let range_total = || {
        let (unit, range) = headers.get(http::header::CONTENT_RANGE)?.to_str().ok()?.split_once(' ')?;
        // The size in bytes is not a number of items.
        range.rsplit_once('/').filter(|_| unit != "bytes")?.1.trim().parse().ok()
    };
    TOTAL_HEADERS.iter().find_map(|name| number(name)).or_else(range_total)
}

fn total_from_body(members: &Value) -> Option<u64> {
    TOTAL_POINTERS.iter().find_map(|pointer| members.pointer(pointer)?.as_u64())
}

/// URL of the next page in a body.
fn next_url(members: &Value) -> Option<&str> {
    let looks_like_url = |text: &&str| text.contains('?') && text.len() <= MAX_LINK_HEADER_LEN;
    NEXT_URL_POINTERS.iter().find_map(|pointer| members.pointer(pointer)?.as_str().filter(looks_like_url))
}

/// The members of a body that are small enough to describe a page, as an object. Items are not parsed.
fn small_members(body: &RawValue) -> Value {
    let members: BTreeMap<String, &RawValue> = serde_json::from_str(body.get()).unwrap_or_default();
    let small = members.into_iter().filter(|(_, value)| value.get().len() <= MAX_MEMBER_LEN);
    small.map(|(name, value)| (name, parse_exact::<Value>(value.get()).unwrap_or_default())).collect()
}

/// Text of a scalar that is not empty.
fn scalar_text(value: &Value) -> Option<String> {
    match value {
        Value::String(_) | Value::Number(_) => Some(plain_text(value).into_owned()).filter(|text| !text.is_empty()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Decoded values of a query, by name.
fn query_values(url: &Url) -> BTreeMap<String, Vec<String>> {
    let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in url.query_pairs() {
        values.entry(name.into_owned()).or_default().push(value.into_owned());
    }
    values
}

#[cfg(test)]
mod tests;
