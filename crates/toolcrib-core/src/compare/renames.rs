//! A tool that went and one that came at the same time may be one tool under two names.

use std::collections::{BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use super::canonical;
use crate::error::Result;
use crate::fingerprint::Fingerprint;
use crate::manifest::{Packed, PackedTool};
use crate::tool::{Note, Tool};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renamed {
    pub from: String,
    pub to: String,
}

/// Past these it was no renaming but another list, and the work stays small.
const MOST_CANDIDATES: usize = 300;
const MOST_PAIRS: usize = 10_000;
/// How much alike two names must be, from 0 to 1, when only one of schema and description is the same.
const ALIKE: f64 = 0.5;
const LONGEST_NAME: usize = 64;

/// Pairs of one removed and one added tool that are near the same, each tool in one pair at most.
pub fn likely_renames(before: &Packed, after: &Packed, removed: &[String], added: &[String]) -> Result<Vec<Renamed>> {
    let few = |names: &[String]| !names.is_empty() && names.len() <= MOST_CANDIDATES;
    if !few(removed) || !few(added) {
        return Ok(Vec::new());
    }
    let (gone, come) = (traits(before, removed)?, traits(after, added)?);
    let mut by_trait: HashMap<Fingerprint, Vec<usize>> = HashMap::new();
    for (index, new) in come.iter().enumerate() {
        new.schema.into_iter().chain(new.description).for_each(|mark| by_trait.entry(mark).or_default().push(index));
    }
    let mut pairs: Vec<(f64, usize, usize)> = Vec::new();
    let mut looked_at = 0;
    for (from, old) in gone.iter().enumerate() {
        let shared = old.schema.into_iter().chain(old.description).filter_map(|mark| by_trait.get(&mark));
        let candidates: BTreeSet<usize> = shared.flatten().copied().collect();
        for to in candidates {
            looked_at += 1;
            if looked_at > MOST_PAIRS {
                break;
            }
            let new = &come[to];
            let same = |one: Option<Fingerprint>, other| one.is_some() && one == other;
            let both = same(old.schema, new.schema) && same(old.description, new.description);
            let alike = likeness(&old.name, &new.name);
            if both || alike >= ALIKE {
                pairs.push((alike + if both { 1.0 } else { 0.0 }, from, to));
            }
        }
    }
    // The surest first; of equals, those that come first in the lists.
    pairs.sort_by(|one, other| other.0.total_cmp(&one.0).then((one.1, one.2).cmp(&(other.1, other.2))));
    let (mut used_old, mut used_new) = (BTreeSet::new(), BTreeSet::new());
    let mut renames = Vec::new();
    for (_, from, to) in pairs {
        if !used_old.contains(&from) && !used_new.contains(&to) {
            used_old.insert(from);
            used_new.insert(to);
            renames.push(Renamed { from: gone[from].name.clone(), to: come[to].name.clone() });
        }
    }
    renames.sort_by(|one, other| one.from.cmp(&other.from));
    Ok(renames)
}

/// What a tool may be recognised by. What is the same for many tools is no mark.
struct Traits {
    name: String,
    schema: Option<Fingerprint>,
    description: Option<Fingerprint>,
}

fn traits(packed: &Packed, names: &[String]) -> Result<Vec<Traits>> {
    let find = |name: &String| -> Option<&PackedTool> {
        let found = packed.tools.binary_search_by(|tool| tool.name.cmp(name)).ok()?;
        packed.tools.get(found)
    };
    names.iter().filter_map(find).map(|stored| Ok(Traits::of(&packed.tool(stored)?))).collect()
}

impl Traits {
    fn of(tool: &Tool) -> Traits {
        let schema = canonical(Some(&tool.face.input_schema)).filter(|schema| schema.contains("\"properties\":{\""));
        let described = !tool.notes.contains(&Note::NoDescription);
        let mark = |kind: &str, text: &str| Fingerprint::of(format!("{kind} {text}"));
        Traits {
            name: tool.name.clone(),
            schema: schema.map(|schema| mark("schema", &schema)),
            description: described.then(|| mark("description", &tool.face.description)),
        }
    }
}

/// By letters, or by the words that names are made of, whichever is more.
fn likeness(one: &str, other: &str) -> f64 {
    let short = |name: &str| name.chars().take(LONGEST_NAME).collect::<String>();
    let (one, other) = (short(one), short(other));
    let letters = strsim::normalized_damerau_levenshtein(&one.to_lowercase(), &other.to_lowercase());
    let (words, others) = (words(&one), words(&other));
    let common = words.intersection(&others).count();
    let all = words.union(&others).count().max(1);
    letters.max(common as f64 / all as f64)
}

/// `createIssue` and `create-issue` are two words each.
fn words(name: &str) -> BTreeSet<String> {
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
