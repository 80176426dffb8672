//! Cost of access rules: lists, calls and changed rules with 1,000 callers of whom each sees other tools.
//!
//! Each caller has a token, an access rule on a claim of that token, and a group of its own that leaves out a few of the
//! 10,000 tools. So a caller's list is about as long as the unfiltered one, and no two callers share one.

use std::hint::black_box;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use tokio::runtime::Runtime;
use toolcrib::catalog::render::Format;
use toolcrib::core::access::Role;
use toolcrib::core::access_rules::NamedRule;
use toolcrib::core::inventory::Actor;
use toolcrib::core::principal::{Claims, PrincipalIdentity};
use toolcrib::registry::TokenRequest;
use toolcrib::{BuiltinDefinition, BuiltinOutput, Principal, Registry, builtin_handler};

use crate::Result;
use crate::http::{RawHttpClient, TOOLS, ToolcribServer, build_runtime, open_registry};
use crate::measure::{measure_time, median, ratio};
use crate::report::{BenchReport, RatioRow, Threshold, format_duration};

/// Number of callers, each with a view of its own.
const CALLERS: usize = 1_000;
/// Number of policies on tools of single callers.
const POLICIES: usize = 100;
/// Number of lists that are rendered with and without rules, in turn.
const LISTS: usize = 40;
/// Number of calls in a block. Blocks with and without rules alternate.
const BLOCK_SIZE: usize = 200;
/// Number of blocks of each kind.
const BLOCKS: usize = 41;
/// Number of requests for pages of each kind.
const PAGES: usize = 2_000;
/// Maximum cost of a caller's list relative to the unfiltered one.
const MAX_LIST_RATIO: f64 = 1.3;
/// Maximum time that rules add to a call.
const MAX_CALL_OVERHEAD: Duration = Duration::from_micros(5);
/// Maximum cost of all views after one policy changed, relative to the first views.
const MAX_CHANGE_RATIO: f64 = 0.1;
/// Name of the tool that is called.
const CALLED_TOOL: &str = "nothing";

/// Compares a catalogue with rules and one without.
pub(crate) fn run(report: &mut BenchReport) -> Result<()> {
    let runtime = build_runtime()?;
    let (open, open_config) = runtime.block_on(open_registry(&Map::new()))?;
    let (ruled, ruled_config) = runtime.block_on(open_registry(&rules()))?;
    let callers: Vec<Principal> = (0..CALLERS).map(create_caller).collect::<Result<_>>()?;

    let (first_views, ()) = measure_time(|| read_views(&ruled, &callers));
    measure_lists(report, &open, &ruled, &callers)?;
    measure_change(report, &runtime, &ruled, &callers, first_views)?;
    measure_calls(report, &runtime, [&open, &ruled], &callers)?;

    let tokens = runtime.block_on(create_tokens(&ruled))?;
    let open = ToolcribServer::start(&runtime, (open, open_config))?;
    let ruled = ToolcribServer::start(&runtime, (ruled, ruled_config))?;
    measure_pages(report, &open, &ruled, &tokens)
}

/// Rules of the configuration: a group and an access rule for each caller, policies on the tools of some, and limits.
fn rules() -> Map<String, Value> {
    let group = |number: usize| {
        // The bench renames the tools, so that each name ends with its number.
        let left_out = format!("*_{number}");
        (
            format!("group_{number}"),
            json!({"select": [{"source": "source_*"}, {"name": CALLED_TOOL}], "exclude": [left_out]}),
        )
    };
    let access = |number: usize| {
        let conditions = json!([{"claim": "team", "equals": number}]);
        json!({"name": format!("access_{number}"), "when": conditions, "groups": [format!("group_{number}")]})
    };
    let policy = |number: usize| {
        let matches = json!({"name": format!("*_{}", CALLERS + number), "when": [{"claim": "team", "equals": number}]});
        json!({"name": format!("policy_{number}"), "match": matches, "verdict": "ask"})
    };
    let groups: Map<String, Value> = (0..CALLERS).map(group).collect();
    let access: Vec<Value> = (0..CALLERS).map(access).collect();
    let policies: Vec<Value> = (0..POLICIES).map(policy).collect();
    let limits = json!({"calls_per_minute": 1_000_000, "concurrent_calls": 64});
    [("groups", Value::Object(groups)), ("access", access.into()), ("policies", policies.into()), ("limits", limits)]
        .map(|(key, value)| (key.to_owned(), value))
        .into_iter()
        .collect()
}

fn claims(number: usize) -> Map<String, Value> {
    Map::from_iter([("team".to_owned(), json!(number))])
}

/// Caller with the claim that one access rule reads.
fn create_caller(number: usize) -> Result<Principal> {
    let identity = PrincipalIdentity::Jwt { issuer: "https://id.example".into(), sub: number.to_string().into() };
    Ok(Principal::new(identity, "caller", Role::Agent).with_claims(Claims::new(claims(number))?))
}

/// Creates a token for each caller.
async fn create_tokens(registry: &Registry) -> Result<Vec<String>> {
    let mut tokens = Vec::new();
    for number in 0..CALLERS {
        let (name, claims) = (format!("caller_{number}"), claims(number));
        let request = TokenRequest { name, role: Role::Agent, expires: None, groups: Vec::new(), claims };
        tokens.push(registry.tokens().create_from(request, Actor::new("bench")).await?.token);
    }
    Ok(tokens)
}

/// Reads the view of every caller.
fn read_views(registry: &Registry, callers: &[Principal]) {
    for caller in callers {
        black_box(registry.view(caller));
    }
}

/// Compares the whole list of a caller with the unfiltered one; each caller's in turn.
fn measure_lists(report: &mut BenchReport, open: &Registry, ruled: &Registry, callers: &[Principal]) -> Result<()> {
    let unfiltered = Principal::local("bench");
    let mut with_rules = Vec::new();
    let mut without = Vec::new();
    let mut left_out = 0;
    for caller in callers.iter().take(LISTS) {
        let (time, list) = measure_time(|| ruled.view(caller).render(Format::Json));
        with_rules.push(time);
        let (time, all) = measure_time(|| open.view(&unfiltered).render(Format::Json));
        without.push(time);
        left_out += usize::from(list?.len() < all?.len());
    }
    // A list without a rule's effect would be fast, but wrong.
    if left_out != LISTS {
        return Err(format!("only {left_out} of {LISTS} lists left out a tool").into());
    }
    let (with_rules, without) = (median(with_rules), median(without));
    report.add_row(RatioRow {
        bench: "access",
        measured: format!("all {TOOLS} tools for one of {CALLERS} callers, median: {}", format_duration(with_rules)),
        baseline: format!("without rules: {}", format_duration(without)),
        ratio: ratio(with_rules, without),
        threshold: Threshold::AtMost(MAX_LIST_RATIO, "the unfiltered list".into()),
    });
    Ok(())
}

/// Adds a policy on one caller, and compares the views of all callers after it with their first ones.
fn measure_change(
    report: &mut BenchReport,
    runtime: &Runtime,
    registry: &Registry,
    callers: &[Principal],
    first_views: Duration,
) -> Result<()> {
    let before = registry.unrestricted_catalog();
    let matches = json!({"source": "source_00*", "when": [{"claim": "team", "equals": 7}]});
    let policy = serde_json::from_value(json!({"match": matches, "verdict": "deny"}))?;
    let policy = NamedRule::Policy("added".to_owned(), policy);
    let began = Instant::now();
    runtime.block_on(registry.rules().define(policy, Actor::new("bench")))?;
    read_views(registry, callers);
    let changed = began.elapsed();
    let after = registry.unrestricted_catalog();
    let rebuilt = before.sources().zip(after.sources()).filter(|(old, new)| !std::sync::Arc::ptr_eq(old, new)).count();
    report.add_row(RatioRow {
        bench: "access",
        measured: format!(
            "a policy on one caller added, then the views of all {CALLERS} callers: {}; sources rebuilt: {rebuilt}",
            format_duration(changed)
        ),
        baseline: format!("their first views: {}", format_duration(first_views)),
        ratio: ratio(changed, first_views),
        threshold: Threshold::Condition(
            rebuilt == 0 && ratio(changed, first_views) <= MAX_CHANGE_RATIO,
            format!("at most {MAX_CHANGE_RATIO}, no source rebuilt"),
        ),
    });
    Ok(())
}

/// Compares calls of a tool that does nothing, with and without rules and limits. A caller in turn for each call.
fn measure_calls(
    report: &mut BenchReport,
    runtime: &Runtime,
    registries: [&Registry; 2],
    callers: &[Principal],
) -> Result<()> {
    for registry in registries {
        let definition = BuiltinDefinition::new(CALLED_TOOL, "Does nothing", json!({"type": "object"}))?;
        let handler = builtin_handler(|_| async { Ok(BuiltinOutput::text("done")) });
        registry.register_builtin(definition, Some(handler))?;
    }
    let mut times = [Vec::new(), Vec::new()];
    // The first two blocks are a warm-up and not counted: they resolve what each caller may do.
    let warm_up = 2 * CALLERS.div_ceil(BLOCK_SIZE);
    let mut turns = callers.iter().cycle();
    for block in 0..warm_up + BLOCKS {
        let callers: Vec<&Principal> = turns.by_ref().take(BLOCK_SIZE).collect();
        for (registry, times) in registries.iter().zip(&mut times) {
            let time = runtime.block_on(time_calls(registry, &callers))?;
            if block >= warm_up {
                times.push(time / BLOCK_SIZE as u32);
            }
        }
    }
    let [without, with_rules] = times.map(median);
    let added = with_rules.saturating_sub(without);
    report.add_row(RatioRow {
        bench: "access",
        measured: format!(
            "a call with {CALLERS} access rules, {POLICIES} policies and limits, median: {}; added: {}",
            format_duration(with_rules),
            format_duration(added)
        ),
        baseline: format!("without them: {}", format_duration(without)),
        ratio: ratio(added, MAX_CALL_OVERHEAD),
        threshold: Threshold::AtMost(1.0, format!("{} more", format_duration(MAX_CALL_OVERHEAD))),
    });
    Ok(())
}

/// Returns the time of a call for each caller, one after the other.
async fn time_calls(registry: &Registry, callers: &[&Principal]) -> Result<Duration> {
    let began = Instant::now();
    for caller in callers {
        registry.call(CALLED_TOOL, json!({})).caller((*caller).clone()).await?;
    }
    Ok(began.elapsed())
}

/// Compares pages of the list over REST: of one caller again and again, and of each in turn, with the unfiltered page.
fn measure_pages(
    report: &mut BenchReport,
    open: &ToolcribServer,
    ruled: &ToolcribServer,
    tokens: &[String],
) -> Result<()> {
    let path = "/api/tools?limit=100";
    let headers: Vec<String> = tokens.iter().map(|token| format!("Authorization: Bearer {token}\r\n")).collect();
    let mut open_client = RawHttpClient::connect(&open.address)?;
    let mut ruled_client = RawHttpClient::connect(&ruled.address)?;
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    let last = headers.last().ok_or("there are no callers")?;
    // One request of each caller first, which is not counted.
    for (index, headers) in headers.iter().chain(headers.iter().cycle().take(PAGES)).enumerate() {
        let requests = [(&mut open_client, ""), (&mut ruled_client, last.as_str())];
        for ((client, headers), times) in requests.into_iter().zip(&mut times) {
            let (time, response) = measure_time(|| client.get(path, headers));
            response?;
            times.push(time);
        }
        let (time, response) = measure_time(|| ruled_client.get(path, headers));
        response?;
        if index >= CALLERS {
            times[2].push(time);
        }
    }
    let [without, same, turns] = times.map(median);
    for (label, time, threshold) in [
        (
            "of one of the callers, again and again",
            same,
            Threshold::AtMost(MAX_LIST_RATIO, "the unfiltered page".into()),
        ),
        ("of each caller in turn", turns, Threshold::None),
    ] {
        report.add_row(RatioRow {
            bench: "access",
            measured: format!("a page of 100 tools over REST {label}, median: {}", format_duration(time)),
            baseline: format!("without rules: {}", format_duration(without)),
            ratio: ratio(time, without),
            threshold,
        });
    }
    Ok(())
}
