//! Options with which a command reads as another caller does: `--token NAME` and `--claims JSON`.
//!
//! Commands on the store act as an administrator. With one of these options they print what the caller would get as an
//! agent, over MCP: without denied and hidden tools, whatever its role.

use clap::Args;
use serde_json::{Map, Value};
use toolcrib::core::access_rules::RuleKind;
use toolcrib::core::principal::ViewNarrowing;
use toolcrib::registry::PreviewCaller;
use toolcrib::{Code, Error, Principal, Registry, Result};

use crate::input::read_option_text;
use crate::session::CliSession;

/// Options that select the caller.
#[derive(Debug, Clone, Args)]
pub(crate) struct PreviewArguments {
    /// Preview what the holder of this token gets as an agent; its name or id
    #[arg(long, value_name = "NAME", conflicts_with = "claims")]
    token: Option<String>,
    /// Preview what a caller with these claims gets as an agent: a JSON object, or `@FILE`
    #[arg(long, value_name = "JSON|@FILE")]
    claims: Option<String>,
}

impl PreviewArguments {
    /// Whether a caller is selected.
    pub(crate) fn is_given(&self) -> bool {
        self.token.is_some() || self.claims.is_some()
    }

    /// Returns the selected caller; `None` without one of the options.
    pub(crate) fn caller(&self, registry: &Registry) -> Result<Option<Principal>> {
        let caller = match (&self.token, &self.claims) {
            (Some(token), _) => PreviewCaller::Token(token.clone()),
            (None, Some(claims)) => PreviewCaller::Claims(parse_claims(&read_option_text(claims)?)?),
            (None, None) => return Ok(None),
        };
        registry.rules().preview_principal(&caller).map(Some)
    }

    /// Returns the principal as which a command reads tools: the selected caller as an agent, or else an administrator;
    /// narrowed to a group if one is given.
    pub(crate) fn reader(&self, session: &CliSession, group: Option<&str>) -> Result<Principal> {
        let registry = &session.registry;
        let caller = self.caller(registry)?;
        let as_agent = caller.is_some();
        let principal = caller.unwrap_or_else(CliSession::caller);
        if let Some(name) = group {
            let rules = registry.rules().in_force();
            let Some(group) = rules.group(name) else {
                return Err(registry.rules().unknown_error(RuleKind::Group, name));
            };
            if !registry.scope(&principal).allows_endpoint(group) {
                let message = format!("the group `{name}` is not among those that this caller sees");
                return Err(Error::new(Code::NotFound, message));
            }
        }
        Ok(principal.narrowed(ViewNarrowing { as_agent, group: group.map(str::to_owned), only: Vec::new() }))
    }
}

/// Parses the value of `--claims`. The error has the place and no part of the text: claims may be personal data.
fn parse_claims(text: &str) -> Result<Map<String, Value>> {
    serde_json::from_str(text).map_err(|error| {
        let place = format!("line {}, column {}", error.line(), error.column());
        let message = format!("`--claims` must be a JSON object, such as `{{\"team\":\"support\"}}` ({place})");
        Error::new(Code::BadRequest, message)
    })
}
