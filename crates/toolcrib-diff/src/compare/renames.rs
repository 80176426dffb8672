//! Finds likely renames: a removed and an added tool of one list that are nearly the same.
//!
//! A pair must share its input schema or its description, by fingerprint, and either have similar names or share both.
//! A wrong pair would hide a removal behind a rename, so traits that several tools of a list share are ignored. The
//! result is advice: the tools stay in the lists of removed and added ones.

use std::collections::{BTreeSet, HashMap};

use toolcrib_core::delta::ToolRename;
use toolcrib_core::error::Result;
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::manifest::PackedManifest;
use toolcrib_core::tool::{Tool, ToolNote};

use super::canonical_json;

/// Maximum number of removed and of added tools, and of pairs to compare. Larger lists were replaced, not renamed.
const MAX_CANDIDATES: usize = 300;
const MAX_COMPARED_PAIRS: usize = 10_000;
/// Maximum number of tools of a list that are read to count how common a trait is. Each tool that is read has to be
/// parsed from the packed list.
const MAX_SAMPLED_TOOLS: usize = 2_000;
/// Maximum number of tools that may share a trait. A trait of more tools identifies none of them.
const MAX_TOOLS_PER_TRAIT: usize = 2;
/// Minimum similarity of two names, from 0 to 1, if only the schema or only the description is the same.
const MIN_NAME_SIMILARITY: f64 = 0.6;
/// Maximum number of characters of a name to compare; the edit distance takes quadratic time.
const MAX_COMPARED_NAME_LEN: usize = 64;

/// Returns pairs of one removed and one added tool that are nearly the same. Each tool is in at most one pair.
pub fn likely_renames(
    before: &PackedManifest,
    after: &PackedManifest,
    removed: &[String],
    added: &[String],
) -> Result<Vec<ToolRename>> {
    // The common case: nothing was removed, or nothing added.
    let is_comparable = |names: &[String]| !names.is_empty() && names.len() <= MAX_CANDIDATES;
    if !is_comparable(removed) || !is_comparable(added) {
        return Ok(Vec::new());
    }
    // Drop traits that identify no tool, since several tools of a list share them.
    let mut removed_tools = collect_traits(before, removed)?;
    let mut added_tools = collect_traits(after, added)?;
    let common_before = TraitCounts::count(before, &removed_tools)?;
    let common_after = TraitCounts::count(after, &added_tools)?;
    for tool in removed_tools.iter_mut().chain(&mut added_tools) {
        tool.remove_common(|fingerprint| common_before.is_common(fingerprint) || common_after.is_common(fingerprint));
    }
    // Only tools with a trait in common are compared.
    let mut by_fingerprint: HashMap<Fingerprint, Vec<usize>> = HashMap::new();
    for (index, new) in added_tools.iter().enumerate() {
        new.fingerprints().for_each(|fingerprint| by_fingerprint.entry(fingerprint).or_default().push(index));
    }
    let mut pairs: Vec<(f64, usize, usize)> = Vec::new();
    let mut compared = 0;
    for (from, old) in removed_tools.iter().enumerate() {
        let candidates: BTreeSet<usize> =
            old.fingerprints().filter_map(|fingerprint| by_fingerprint.get(&fingerprint)).flatten().copied().collect();
        for to in candidates {
            compared += 1;
            if compared > MAX_COMPARED_PAIRS {
                break;
            }
            let new = &added_tools[to];
            let similarity = name_similarity(&old.name, &new.name);
            let shared = old.combined.filter(|combined| new.combined == Some(*combined));
            // If schema and description are the same, names need not be similar, unless another tool has both too.
            let is_certain = shared.is_some_and(|both| common_before.is_unique(&both) && common_after.is_unique(&both));
            if is_certain || similarity >= MIN_NAME_SIMILARITY {
                // A pair that shares schema and description ranks before every pair that shares one of them.
                pairs.push((similarity + if shared.is_some() { 1.0 } else { 0.0 }, from, to));
            }
        }
    }
    Ok(select_pairs(pairs, &removed_tools, &added_tools))
}

/// Selects the most certain pairs first; of equals, those first in the lists.
fn select_pairs(
    mut pairs: Vec<(f64, usize, usize)>,
    removed_tools: &[ToolTraits],
    added_tools: &[ToolTraits],
) -> Vec<ToolRename> {
    pairs.sort_by(|a, b| b.0.total_cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
    let mut used_old = BTreeSet::new();
    let mut used_new = BTreeSet::new();
    let mut renames = Vec::new();
    for (_, from, to) in pairs {
        let is_free = !used_old.contains(&from) && !used_new.contains(&to);
        if is_free && used_old.insert(from) && used_new.insert(to) {
            renames.push(ToolRename { from: removed_tools[from].name.clone(), to: added_tools[to].name.clone() });
        }
    }
    renames.sort_by(|a, b| a.from.cmp(&b.from));
    renames
}

/// Fingerprints of what identifies a tool under another name.
struct ToolTraits {
    name: String,
    /// `None` without arguments: such a schema is common.
    schema: Option<Fingerprint>,
    /// `None` if the source sent none.
    description: Option<Fingerprint>,
    /// Fingerprint of schema and description together, if the tool has both.
    combined: Option<Fingerprint>,
}

/// Returns the traits of the tools with these names.
fn collect_traits(packed: &PackedManifest, names: &[String]) -> Result<Vec<ToolTraits>> {
    // Tools of a list are sorted by name.
    let positions = names.iter().filter_map(|name| packed.tools.binary_search_by(|tool| tool.name.cmp(name)).ok());
    positions.map(|position| Ok(ToolTraits::from_tool(&packed.tool(&packed.tools[position])?))).collect()
}

impl ToolTraits {
    fn from_tool(tool: &Tool) -> ToolTraits {
        // A schema without properties is common and identifies no tool.
        let schema =
            canonical_json(Some(&tool.listing.input_schema)).filter(|schema| schema.contains("\"properties\":{\""));
        let has_description = !tool.notes.contains(&ToolNote::NoDescription);
        // The kind keeps equal texts of different kinds apart.
        let fingerprint = |kind: &str, text: &str| Fingerprint::digest(format!("{kind} {text}"));
        let schema = schema.map(|schema| fingerprint("schema", &schema));
        let description = has_description.then(|| fingerprint("description", &tool.listing.description));
        let combined = schema
            .zip(description)
            .map(|(schema, description)| fingerprint("both", &format!("{schema} {description}")));
        ToolTraits { name: tool.name.clone(), schema, description, combined }
    }

    /// Returns all traits of the tool.
    fn fingerprints(&self) -> impl Iterator<Item = Fingerprint> {
        [self.schema, self.description, self.combined].into_iter().flatten()
    }

    /// Removes the traits that too many tools share.
    fn remove_common(&mut self, common: impl Fn(&Fingerprint) -> bool) {
        for fingerprint in [&mut self.schema, &mut self.description, &mut self.combined] {
            *fingerprint = fingerprint.filter(|fingerprint| !common(fingerprint));
        }
    }
}

/// Number of tools of a list that have each trait.
struct TraitCounts(HashMap<Fingerprint, usize>);

impl TraitCounts {
    /// Counts the traits that one of `candidates` has.
    fn count(packed: &PackedManifest, candidates: &[ToolTraits]) -> Result<TraitCounts> {
        // Only traits of candidates are counted, which bounds the map.
        let mut counts: HashMap<Fingerprint, usize> =
            candidates.iter().flat_map(ToolTraits::fingerprints).map(|fingerprint| (fingerprint, 0)).collect();
        for stored in packed.tools.iter().take(MAX_SAMPLED_TOOLS) {
            for fingerprint in ToolTraits::from_tool(&packed.tool(stored)?).fingerprints() {
                counts.entry(fingerprint).and_modify(|count| *count += 1);
            }
        }
        Ok(TraitCounts(counts))
    }

    /// Returns whether at most one tool has a trait.
    fn is_unique(&self, fingerprint: &Fingerprint) -> bool {
        self.0.get(fingerprint).is_none_or(|count| *count <= 1)
    }

    /// Returns whether too many tools share a trait for it to identify one.
    fn is_common(&self, fingerprint: &Fingerprint) -> bool {
        self.0.get(fingerprint).is_some_and(|count| *count > MAX_TOOLS_PER_TRAIT)
    }
}

/// Returns the similarity of two names, from 0 to 1: by edit distance or by common words, whichever is higher.
fn name_similarity(a: &str, b: &str) -> f64 {
    let truncate = |name: &str| name.chars().take(MAX_COMPARED_NAME_LEN).collect::<String>();
    let a = truncate(a);
    let b = truncate(b);
    // Ignores case, so that `createIssue` and `createissue` are close.
    let by_edit_distance = strsim::normalized_damerau_levenshtein(&a.to_lowercase(), &b.to_lowercase());
    let words = split_words(&a);
    let others = split_words(&b);
    let common = words.intersection(&others).count();
    let all = words.union(&others).count().max(1);
    by_edit_distance.max(common as f64 / all as f64)
}

/// Splits a name at separators and before capitals: `createIssue` and `create-issue` are two words each.
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
