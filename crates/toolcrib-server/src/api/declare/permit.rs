//! Who may declare what reaches into this machine: programs, files, and values that only this process knows.

use std::convert::Infallible;

use toolcrib::builtin::DANGEROUS;
use toolcrib::core::reference::{Piece, pieces};
use toolcrib::core::source::Kind;
use toolcrib::{Code, Error, Result, Source};

use crate::access::{Role, Visitor};
use crate::house::House;

/// Such a source is for who is on this machine and manages it, unless the configuration says otherwise: a token that
/// manages over the network is not a shell here, nor a key to the secrets that lie here.
pub(super) fn permit(house: &House, visitor: &Visitor, source: &Source) -> Result<()> {
    let Some(would) = reaches_in(&source.kind) else { return Ok(()) };
    let here = visitor.here && visitor.role == Role::Admin;
    if here || house.found.load().config.allow_commands {
        return Ok(());
    }
    let message = format!(
        "`{}` would {would} on the server, which requests over HTTP may not; `allow_commands: true` in the \
         configuration permits it, or `toolcrib add` declares it there",
        source.id
    );
    Err(Error::new(Code::Forbidden, message))
}

/// What a source would do on this machine that is not everybody's to ask for.
fn reaches_in(kind: &Kind) -> Option<&'static str> {
    let does = match kind {
        Kind::Stdio(_) => Some("start programs"),
        Kind::Builtin(builtin) if builtin.tools.iter().any(|tool| DANGEROUS.contains(&tool.as_str())) => {
            Some("start programs or change files")
        }
        Kind::Builtin(builtin) => (!builtin.roots.is_empty()).then_some("read files"),
        Kind::OpenApi(openapi) => {
            let mut places = openapi.allow_refs.iter().chain([&openapi.document]);
            places.any(|place| !is_address(place)).then_some("read files")
        }
        Kind::Workflow(_) => Some("read files"),
        Kind::Http(_) | Kind::Sse(_) => None,
    };
    does.or_else(|| has_references(kind).then_some("use variables or files"))
}

fn is_address(place: &str) -> bool {
    let scheme = place.split_once("://").map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https"))
}

fn has_references(kind: &Kind) -> bool {
    let mut found = false;
    let looked = kind.try_map(|text| {
        found |= pieces(text).iter().any(|piece| matches!(piece, Piece::Reference(_)));
        Ok::<_, Infallible>(String::new())
    });
    drop(looked);
    found
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use toolcrib::core::config::declare;

    use super::*;

    #[test]
    fn what_reaches_into_this_machine_is_known() {
        let reaches =
            |keys: &Value| reaches_in(&declare("a", keys, std::path::Path::new("/p")).unwrap().kind).is_some();
        for name in DANGEROUS {
            assert!(reaches(&json!({ "builtin": ["calculate", name] })), "{name}");
        }
        for keys in [
            json!({ "command": "x" }),
            json!({ "builtin": "all", "roots": ["."] }),
            json!({ "openapi": "./x.yaml" }),
            json!({ "openapi": "http://x/y.yaml", "allow_refs": ["./refs"] }),
            json!({ "workflow": "./x.yaml" }),
            json!({ "url": "http://x", "headers": { "X-Key": "a ${env:HOME}" } }),
            json!({ "url": "http://x", "headers": { "X-Key": "${HOME}" } }),
            json!({ "url": "http://x/${file:/etc/passwd}" }),
            json!({ "url": "http://x", "auth": { "bearer": "${file:/etc/passwd}" } }),
            json!({ "openapi": "http://x/y.yaml", "variables": { "a": "${env:HOME}" } }),
        ] {
            assert!(reaches(&keys), "{keys}");
        }
        for keys in [
            json!({ "url": "http://x", "headers": { "X-Key": "a" } }),
            json!({ "url": "http://x", "transport": "sse" }),
            json!({ "openapi": "https://x/y.yaml", "allow_refs": ["https://y/"] }),
            json!({ "builtin": "all" }),
            json!({ "builtin": ["calculate"] }),
        ] {
            assert!(!reaches(&keys), "{keys}");
        }
    }
}
