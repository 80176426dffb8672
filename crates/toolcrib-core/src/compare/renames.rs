//! A tool that went and one that came at the same time may be one tool under two names.

use std::collections::{BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use super::canonical_json;
use crate::error::Result;
use crate::fingerprint::Fingerprint;
use crate::manifest::{PackedManifest, PackedTool};
use crate::tool::{Tool, ToolNote};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolRename {
    pub from: String,
    pub to: String,
}

/// Past these it was no renaming but another list, and the work stays small.
const MAX_CANDIDATES: usize = 300;
const MAX_COMPARED_PAIRS: usize = 10_000;
/// How many tools of a list are looked at to learn what many of them share.
const MAX_SAMPLED_TOOLS: usize = 2_000;
/// What more tools of one list have than these is no mark of one.
const MAX_TOOLS_PER_TRAIT: usize = 2;
/// How much alike two names must be, from 0 to 1, when only one of schema and description is the same.
const MIN_NAME_SIMILARITY: f64 = 0.6;
const MAX_COMPARED_NAME_LEN: usize = 64;

/// Pairs of one removed and one added tool that are near the same, each tool in one pair at most.
pub fn likely_renames(
    before: &PackedManifest,
    after: &PackedManifest,
    removed: &[String],
    added: &[String],
) -> Result<Vec<ToolRename>> {
    let few = |names: &[String]| !names.is_empty() && names.len() <= MAX_CANDIDATES;
    if !few(removed) || !few(added) {
        return Ok(Vec::new());
    }
    let (mut gone, mut come) = (collect_traits(before, removed)?, collect_traits(after, added)?);
    let (common_before, common_after) = (TraitCounts::count(before, &gone)?, TraitCounts::count(after, &come)?);
    for tool in gone.iter_mut().chain(&mut come) {
        tool.remove_common(|mark| common_before.is_common(mark) || common_after.is_common(mark));
    }
    let mut by_mark: HashMap<Fingerprint, Vec<usize>> = HashMap::new();
    for (index, new) in come.iter().enumerate() {
        new.fingerprints().for_each(|mark| by_mark.entry(mark).or_default().push(index));
    }
    let mut pairs: Vec<(f64, usize, usize)> = Vec::new();
    let mut looked_at = 0;
    for (from, old) in gone.iter().enumerate() {
        let candidates: BTreeSet<usize> =
            old.fingerprints().filter_map(|mark| by_mark.get(&mark)).flatten().copied().collect();
        for to in candidates {
            looked_at += 1;
            if looked_at > MAX_COMPARED_PAIRS {
                break;
            }
            let (new, alike) = (&come[to], name_similarity(&old.name, &come[to].name));
            let both = old.combined.is_some() && old.combined == new.combined;
            // Names are of no account only where no other tool was, or is, the same.
            let sure = both
                && old.combined.is_some_and(|whole| common_before.is_unique(&whole) && common_after.is_unique(&whole));
            if sure || alike >= MIN_NAME_SIMILARITY {
                pairs.push((alike + if both { 1.0 } else { 0.0 }, from, to));
            }
        }
    }
    Ok(select_pairs(pairs, &gone, &come))
}

/// The surest first; of equals, those that come first in the lists.
fn select_pairs(mut pairs: Vec<(f64, usize, usize)>, gone: &[ToolTraits], come: &[ToolTraits]) -> Vec<ToolRename> {
    pairs.sort_by(|one, other| other.0.total_cmp(&one.0).then((one.1, one.2).cmp(&(other.1, other.2))));
    let (mut used_old, mut used_new) = (BTreeSet::new(), BTreeSet::new());
    let mut renames = Vec::new();
    for (_, from, to) in pairs {
        if !used_old.contains(&from) && !used_new.contains(&to) {
            used_old.insert(from);
            used_new.insert(to);
            renames.push(ToolRename { from: gone[from].name.clone(), to: come[to].name.clone() });
        }
    }
    renames.sort_by(|one, other| one.from.cmp(&other.from));
    renames
}

/// What a tool may be recognised by.
struct ToolTraits {
    name: String,
    schema: Option<Fingerprint>,
    description: Option<Fingerprint>,
    /// Both, where it has both.
    combined: Option<Fingerprint>,
}

fn find_tool<'a>(packed: &'a PackedManifest, name: &String) -> Option<&'a PackedTool> {
    let found = packed.tools.binary_search_by(|tool| tool.name.cmp(name)).ok()?;
    packed.tools.get(found)
}

fn collect_traits(packed: &PackedManifest, names: &[String]) -> Result<Vec<ToolTraits>> {
    let found = names.iter().filter_map(|name| find_tool(packed, name));
    found.map(|stored| Ok(ToolTraits::from_tool(&packed.tool(stored)?))).collect()
}

impl ToolTraits {
    fn from_tool(tool: &Tool) -> ToolTraits {
        let schema =
            canonical_json(Some(&tool.listing.input_schema)).filter(|schema| schema.contains("\"properties\":{\""));
        let described = !tool.notes.contains(&ToolNote::NoDescription);
        let mark = |kind: &str, text: &str| Fingerprint::digest(format!("{kind} {text}"));
        let schema = schema.map(|schema| mark("schema", &schema));
        let description = described.then(|| mark("description", &tool.listing.description));
        let whole = schema.zip(description).map(|(schema, said)| mark("both", &format!("{schema} {said}")));
        ToolTraits { name: tool.name.clone(), schema, description, combined: whole }
    }

    fn fingerprints(&self) -> impl Iterator<Item = Fingerprint> {
        [self.schema, self.description, self.combined].into_iter().flatten()
    }

    /// What is the same for many tools is no mark.
    fn remove_common(&mut self, common: impl Fn(&Fingerprint) -> bool) {
        for mark in [&mut self.schema, &mut self.description, &mut self.combined] {
            *mark = mark.filter(|mark| !common(mark));
        }
    }
}

/// How many tools of a list have each mark.
struct TraitCounts(HashMap<Fingerprint, usize>);

impl TraitCounts {
    /// Only what one of these has is of interest.
    fn count(packed: &PackedManifest, candidates: &[ToolTraits]) -> Result<TraitCounts> {
        let mut counts: HashMap<Fingerprint, usize> =
            candidates.iter().flat_map(ToolTraits::fingerprints).map(|mark| (mark, 0)).collect();
        for stored in packed.tools.iter().take(MAX_SAMPLED_TOOLS) {
            for mark in ToolTraits::from_tool(&packed.tool(stored)?).fingerprints() {
                counts.entry(mark).and_modify(|count| *count += 1);
            }
        }
        Ok(TraitCounts(counts))
    }

    fn is_unique(&self, mark: &Fingerprint) -> bool {
        self.0.get(mark).is_none_or(|count| *count <= 1)
    }

    fn is_common(&self, mark: &Fingerprint) -> bool {
        self.0.get(mark).is_some_and(|count| *count > MAX_TOOLS_PER_TRAIT)
    }
}

/// By letters, or by the words that names are made of, whichever is more.
fn name_similarity(one: &str, other: &str) -> f64 {
    let short = |name: &str| name.chars().take(MAX_COMPARED_NAME_LEN).collect::<String>();
    let (one, other) = (short(one), short(other));
    let letters = strsim::normalized_damerau_levenshtein(&one.to_lowercase(), &other.to_lowercase());
    let (words, others) = (split_words(&one), split_words(&other));
    let common = words.intersection(&others).count();
    let all = words.union(&others).count().max(1);
    letters.max(common as f64 / all as f64)
}

/// `createIssue` and `create-issue` are two words each.
fn split_words(name: &str) -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    let mut word = String::new();
    for letter in name.chars() {
        if !letter.is_alphanumeric() || (letter.is_uppercase() && word.chars().last().is_some_and(char::is_lowercase)) {
            words.insert(std::mem::take(&mut word));
        }
        word.extend(letter.to_lowercase().filter(|letter| letter.is_alphanumeric()));
    }
    words.insert(word);
    words.remove("");
    words
}
