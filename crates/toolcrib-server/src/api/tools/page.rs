//! Which tools a page of the list has, and where the next one begins.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use toolcrib::core::catalog::{State, ToolRef, View};
use toolcrib::core::render::{Format, Page};
use toolcrib::core::text::shown_short;
use toolcrib::{Code, Error, Registry, Result, SourceId};

use super::gone;
use crate::api::asked::Asked;
use crate::api::kept::Made;

pub(super) const MOST: u64 = 1_000;
const USUAL: usize = 100;
pub(super) const STATES: [&str; 4] = ["active", "disabled", "deprecated", "held"];

#[derive(Debug)]
pub(super) struct Wanted {
    source: Option<SourceId>,
    format: Format,
    state: Option<Stage>,
    /// The name before the first.
    after: Option<String>,
    limit: Option<usize>,
    /// The query without a cursor, for the address of the next page.
    address: String,
}

/// What can be asked for; of these, a catalogue has the first two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Active,
    Disabled,
    Deprecated,
    Held,
}

impl Wanted {
    pub(super) fn read(registry: &Registry, asked: &Asked) -> Result<Wanted> {
        asked.no_group()?;
        let text = |name: &str| asked.text(name).map(|value| (name.to_owned(), value.to_owned()));
        let kept = ["source", "format", "state", "limit"].into_iter().filter_map(text);
        let address = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(kept).finish();
        Ok(Wanted {
            source: asked.source(registry)?,
            format: Format::parse(asked.text("format").unwrap_or("json"))?,
            state: asked.text("state").map(Stage::parse).transpose()?,
            after: asked.text("cursor").map(read_cursor).transpose()?,
            limit: asked.number("limit", 1..=MOST)?.map(|limit| limit as usize),
            address,
        })
    }

    pub(super) fn written(&self, registry: &Registry, view: &View) -> Result<Made> {
        let limit = self.limit.unwrap_or(if self.format == Format::Json { USUAL } else { usize::MAX });
        let page = match (self.state, self.format) {
            (Some(Stage::Deprecated), Format::Json) => {
                gone::page(registry, self.source.as_ref(), self.after.as_deref(), limit)?
            }
            _ => view.render_page(self.format, |tool| self.picks(tool), self.after.as_deref(), limit)?,
        };
        let next = page.last.as_ref().map(|last| BASE64.encode(format!("after {last}")));
        if self.format != Format::Json {
            let separator = if self.address.is_empty() { "" } else { "&" };
            let link = |next| format!("</api/tools?{}{separator}cursor={next}>; rel=\"next\"", self.address);
            return Ok(Made { body: page.array.into(), link: next.map(link) });
        }
        Ok(Made { body: framed(&page, &view.catalog.hash().to_string(), next).into(), link: None })
    }

    fn picks(&self, tool: &ToolRef<'_>) -> bool {
        let state = match self.state {
            None => true,
            Some(Stage::Active) => tool.state() == State::Active,
            Some(Stage::Disabled) => tool.state() == State::Disabled,
            Some(Stage::Deprecated | Stage::Held) => false,
        };
        state && self.source.as_ref().is_none_or(|source| source == tool.source())
    }
}

impl Stage {
    fn parse(text: &str) -> Result<Stage> {
        match text {
            "active" => Ok(Stage::Active),
            "disabled" => Ok(Stage::Disabled),
            "deprecated" => Ok(Stage::Deprecated),
            "held" => Ok(Stage::Held),
            other => {
                let message = format!("`state` is one of {}, not `{}`", STATES.join(", "), shown_short(other, 40));
                Err(Error::new(Code::BadRequest, message))
            }
        }
    }
}

/// Hexadecimal digits and base64 need no escaping.
fn framed(page: &Page, hash: &str, next: Option<String>) -> String {
    let next = next.map_or_else(|| "null".to_owned(), |next| format!("\"{next}\""));
    format!("{{\"tools\":{},\"inventory_hash\":\"{hash}\",\"next_cursor\":{next}}}", page.array)
}

fn read_cursor(cursor: &str) -> Result<String> {
    let decoded = BASE64.decode(cursor).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let name = decoded.as_deref().and_then(|text| text.strip_prefix("after ")).map(str::to_owned);
    name.ok_or_else(|| Error::new(Code::BadRequest, "no page has this `cursor`; begin without one"))
}
