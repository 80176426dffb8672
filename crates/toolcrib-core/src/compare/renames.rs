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
/// How many tools of a list are looked at to learn what many of them share.
const MOST_OTHERS: usize = 2_000;
/// What more tools of one list have than these is no mark of one.
const MOST_SHARING: usize = 2;
/// How much alike two names must be, from 0 to 1, when only one of schema and description is the same.
const ALIKE: f64 = 0.6;
const LONGEST_NAME: usize = 64;

/// Pairs of one removed and one added tool that are near the same, each tool in one pair at most.
pub fn likely_renames(before: &Packed, after: &Packed, removed: &[String], added: &[String]) -> Result<Vec<Renamed>> {
    let few = |names: &[String]| !names.is_empty() && names.len() <= MOST_CANDIDATES;
    if !few(removed) || !few(added) {
        return Ok(Vec::new());
    }
    let (mut gone, mut come) = (traits(before, removed)?, traits(after, added)?);
    let (common_before, common_after) = (Common::of(before, &gone)?, Common::of(after, &come)?);
    for tool in gone.iter_mut().chain(&mut come) {
        tool.forget(|mark| common_before.has(mark) || common_after.has(mark));
    }
    let mut by_mark: HashMap<Fingerprint, Vec<usize>> = HashMap::new();
    for (index, new) in come.iter().enumerate() {
        new.marks().for_each(|mark| by_mark.entry(mark).or_default().push(index));
    }
    let mut pairs: Vec<(f64, usize, usize)> = Vec::new();
    let mut looked_at = 0;
    for (from, old) in gone.iter().enumerate() {
        let candidates: BTreeSet<usize> =
            old.marks().filter_map(|mark| by_mark.get(&mark)).flatten().copied().collect();
        for to in candidates {
            looked_at += 1;
            if looked_at > MOST_PAIRS {
                break;
            }
            let (new, alike) = (&come[to], likeness(&old.name, &come[to].name));
            let both = old.whole.is_some() && old.whole == new.whole;
            // Names are of no account only where no other tool was, or is, the same.
            let sure =
                both && old.whole.is_some_and(|whole| common_before.is_one(&whole) && common_after.is_one(&whole));
            if sure || alike >= ALIKE {
                pairs.push((alike + if both { 1.0 } else { 0.0 }, from, to));
            }
        }
    }
    Ok(paired(pairs, &gone, &come))
}

/// The surest first; of equals, those that come first in the lists.
fn paired(mut pairs: Vec<(f64, usize, usize)>, gone: &[Traits], come: &[Traits]) -> Vec<Renamed> {
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
    renames
}

/// What a tool may be recognised by.
struct Traits {
    name: String,
    schema: Option<Fingerprint>,
    description: Option<Fingerprint>,
    /// Both, where it has both.
    whole: Option<Fingerprint>,
}

fn find<'a>(packed: &'a Packed, name: &String) -> Option<&'a PackedTool> {
    let found = packed.tools.binary_search_by(|tool| tool.name.cmp(name)).ok()?;
    packed.tools.get(found)
}

fn traits(packed: &Packed, names: &[String]) -> Result<Vec<Traits>> {
    let found = names.iter().filter_map(|name| find(packed, name));
    found.map(|stored| Ok(Traits::of(&packed.tool(stored)?))).collect()
}

impl Traits {
    fn of(tool: &Tool) -> Traits {
        let schema = canonical(Some(&tool.face.input_schema)).filter(|schema| schema.contains("\"properties\":{\""));
        let described = !tool.notes.contains(&Note::NoDescription);
        let mark = |kind: &str, text: &str| Fingerprint::of(format!("{kind} {text}"));
        let schema = schema.map(|schema| mark("schema", &schema));
        let description = described.then(|| mark("description", &tool.face.description));
        let whole = schema.zip(description).map(|(schema, said)| mark("both", &format!("{schema} {said}")));
        Traits { name: tool.name.clone(), schema, description, whole }
    }

    fn marks(&self) -> impl Iterator<Item = Fingerprint> {
        [self.schema, self.description, self.whole].into_iter().flatten()
    }

    /// What is the same for many tools is no mark.
    fn forget(&mut self, common: impl Fn(&Fingerprint) -> bool) {
        for mark in [&mut self.schema, &mut self.description, &mut self.whole] {
            *mark = mark.filter(|mark| !common(mark));
        }
    }
}

/// How many tools of a list have each mark.
struct Common(HashMap<Fingerprint, usize>);

impl Common {
    /// Only what one of these has is of interest.
    fn of(packed: &Packed, candidates: &[Traits]) -> Result<Common> {
        let mut counts: HashMap<Fingerprint, usize> =
            candidates.iter().flat_map(Traits::marks).map(|mark| (mark, 0)).collect();
        for stored in packed.tools.iter().take(MOST_OTHERS) {
            for mark in Traits::of(&packed.tool(stored)?).marks() {
                counts.entry(mark).and_modify(|count| *count += 1);
            }
        }
        Ok(Common(counts))
    }

    fn is_one(&self, mark: &Fingerprint) -> bool {
        self.0.get(mark).is_none_or(|count| *count <= 1)
    }

    fn has(&self, mark: &Fingerprint) -> bool {
        self.0.get(mark).is_some_and(|count| *count > MOST_SHARING)
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
