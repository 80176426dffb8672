//! `current_time`: returns date and time in a time zone.
//!
//! Models do not know the current date. The result has the time in several forms, so that none has to be computed.

use std::sync::Arc;

use jiff::tz::{self, TimeZone};
use jiff::{Timestamp as JiffTimestamp, Zoned};
use serde::Deserialize;
use serde_json::json;
use toolcrib_core::{Result, Timestamp};

use super::{
    BuiltinDefinition, BuiltinHandler, BuiltinOutput, builtin_handler, execution_failed, invalid_input,
    parse_arguments, sanitize_for_message,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// IANA name; UTC if it is not given.
    timezone: Option<String>,
}

/// Builds the tool. `now` is the clock, so that tests can set it.
pub(super) fn tool(now: Arc<dyn Fn() -> Timestamp + Send + Sync>) -> Result<(BuiltinDefinition, BuiltinHandler)> {
    let definition = BuiltinDefinition::new(
        "current_time",
        "The current date and time. Use it whenever an answer depends on today's date, the time of day, the weekday \
         or a time zone's offset. Gives RFC 3339, Unix seconds, weekday and UTC offset.",
        json!({
            "type": "object",
            "properties": {
                "timezone": {
                    "type": "string",
                    "maxLength": 64,
                    "description": "IANA name, such as `Europe/Berlin`; default `UTC`",
                },
            },
            "additionalProperties": false,
        }),
    )?
    .title("Current time")
    .output_schema(json!({
        "type": "object",
        "properties": {
            "time": { "type": "string", "description": "RFC 3339" },
            "unix": { "type": "integer" },
            "weekday": { "type": "string" },
            "utc_offset": { "type": "string" },
            "timezone": { "type": "string" },
        },
        "required": ["time", "unix", "weekday", "utc_offset", "timezone"],
        "additionalProperties": false,
    }))
    // No `idempotentHint`: each call returns another result.
    .annotations(json!({ "readOnlyHint": true, "openWorldHint": false }));
    let handler = builtin_handler(move |input| {
        let now = now();
        async move { format_time(parse_arguments(input)?, now) }
    });
    Ok((definition, handler))
}

/// Formats the time in the requested time zone.
fn format_time(arguments: Arguments, now: Timestamp) -> Result<BuiltinOutput> {
    let time_zone = find_time_zone(arguments.timezone.as_deref().unwrap_or("UTC"))?;
    let timestamp = JiffTimestamp::from_millisecond(now.0)
        .map_err(|_| execution_failed("the clock of this machine is out of range"))?;
    let local = Zoned::new(timestamp, time_zone);
    Ok(BuiltinOutput::json(json!({
        "time": local.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
        "unix": timestamp.as_second(),
        "weekday": local.strftime("%A").to_string(),
        "utc_offset": local.strftime("%:z").to_string(),
        "timezone": local.time_zone().iana_name().unwrap_or("UTC"),
    })))
}

/// Finds a time zone by IANA name. UTC needs no time zone database.
fn find_time_zone(name: &str) -> Result<TimeZone> {
    if name.eq_ignore_ascii_case("UTC") {
        return Ok(TimeZone::UTC);
    }
    if tz::db().is_definitively_empty() {
        return Err(execution_failed("this machine has no time zone database; install `tzdata`, or ask for `UTC`"));
    }
    let unknown_zone = |_| {
        invalid_input(format!(
            "no time zone named `{}`; give an IANA name such as `Europe/Berlin`",
            sanitize_for_message(name)
        ))
    };
    TimeZone::get(name).map_err(unknown_zone)
}
