//! Texts of the OpenAPI document that belong to no single route: the description of each operation, and of each tag.
//!
//! An operation without a text of its own is described by its summary and by who may call it.

use crate::auth::Permission;

/// Returns the description of an operation: what its summary leaves out, and who may call it.
pub(super) fn describe_operation(
    operation_id: &str,
    summary: &str,
    required: Permission,
    required_with_rules: Option<Permission>,
) -> String {
    let details = match operation_id {
        "list_sources" => "Sources are in the order of their ids; secrets are shown as references.",
        "get_source" => "Its `ETag` covers the declaration and whether it is enabled, for `If-Match`.",
        "add_source" => "The body has the keys of a configuration file and the name. The discovery is awaited.",
        "change_source" => "Of a source of the configuration, only `enabled` can be changed, to true or false.",
        "remove_source" => "Sources of the configuration cannot be removed. The history of the source stays.",
        "refresh" => "Waits until every discovery has ended. The status is 200 whatever the outcomes are.",
        "refresh_source" => {
            "Waits until the discovery has ended. A source that is being discovered is not contacted again."
        }
        "enable_source" | "disable_source" | "enable_tool" | "disable_tool" => {
            "Idempotent: `changed` says whether the request made a difference."
        }
        "invalidate_source" => "Nothing is contacted by this request.",
        "list_tools" => "`next_cursor` continues a list. The `ETag` covers inventory, view and query.",
        "get_tool" => "With `at`, the definition of the tool at that time.",
        "call_tool" => "A result with `is_error` is that of the tool itself, with status 200.",
        "search_tools" | "search" => "Finds tools by what they do; an exact name comes first.",
        "list_history" => {
            "With `format=cloudevents` the body is a JSON array of CloudEvents 1.0, and `Link` has the next page."
        }
        "get_tool_history" => "Definitions that are not current any more are read from the store.",
        "watch_events" => {
            "Records come without gaps and have ids; `Last-Event-ID` continues after one. Measurements have no id and may \
             be lost. The schema `Event` describes the data of each event, by its name."
        }
        "create_token" => "The secret cannot be read again later.",
        "change_token" => "Applies to requests from now on, also to open streams.",
        "revoke_token" => "Open streams and console sessions of the token end.",
        "list_groups" | "get_group" => "Denied, hidden and disabled tools are among the members.",
        "define_group" | "define_access_rule" | "define_policy" => {
            "The body has the keys of a configuration file. A name that stands in the file is refused. Applies at once, also \
             to open streams."
        }
        "remove_group" | "remove_access_rule" | "remove_policy" => {
            "Only what was defined at run time can be removed. Applies at once, also to open streams."
        }
        "explain_access" => {
            "Without `token` and `claims` it is about the client itself. Only the role `admin` may ask about others."
        }
        _ => "",
    };
    let who = match required {
        Permission::Public => "Needs no token.",
        Permission::Read => "Needs the role `viewer`, or no token from a local process of the same user.",
        Permission::Use => "Needs the role `agent`, or no token from a local process of the same user.",
        Permission::Manage => "Needs the role `admin`.",
    };
    let who_with_rules = match required_with_rules {
        Some(Permission::Manage) => "Needs the role `admin` while access rules exist.",
        Some(Permission::Public | Permission::Read | Permission::Use) | None => "",
    };
    let parts = [summary, details, who, who_with_rules];
    let sentences = parts.iter().filter(|part| !part.is_empty()).map(|part| {
        let part = part.trim_end_matches('.');
        format!("{part}.")
    });
    sentences.collect::<Vec<_>>().join(" ")
}

/// Returns the description of a tag.
pub(super) fn describe_tag(tag: &str) -> &'static str {
    match tag {
        "sources" => "Where tools come from: MCP servers, OpenAPI documents, workflows, built-in tools",
        "refresh" => "Discovery of all sources",
        "tools" => "The catalogue of tools, and calls",
        "search" => "Search over the tools",
        "context" => "Summary of the tools for a system prompt",
        "history" => "The journal: what changed, when, and by whom",
        "diff" => "Comparison of the catalogue with a lockfile or an earlier time",
        "events" => "Live stream of changes and measurements",
        "stats" => "Counts of calls and cache lookups",
        "config" => "The merged configuration",
        "tokens" => "Access tokens",
        "groups" => "Groups of tools",
        "access" => "Access rules, which give groups to callers",
        "policies" => "Policies, which give verdicts on tools",
        "explain" => "Why a caller may or may not use a tool",
        "whoami" => "The client of the request",
        "operations" => "Health, readiness and metrics",
        _ => "Further operations",
    }
}
