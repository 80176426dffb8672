//! Optional semantic search with static word vectors from a local model (`model.safetensors` and `tokenizer.json`).
//! Finds tools whose description is similar in meaning to the query without sharing a word. Callers read the files; this
//! module does no I/O.
//!
//! A text is the sum of the vectors of its pieces, each weighted by its rarity among the tools: unweighted, frequent
//! pieces make all descriptions alike. Of a tool, only its name, its source, its title and the first sentence of its
//! description are compared: a sum over a long description is near to every query. The pieces of the tools are computed
//! once per tool list and model, and kept with its segment. Their rarities, and the length of each tool's vector, belong
//! to the index of a view; the vectors of the tools themselves are not stored. The similarity to a query is the sum over
//! the pieces of a tool, so each vector is multiplied with the query once.

mod model;
mod tensors;
mod tokenizer;

use std::fmt;
use std::sync::OnceLock;

use super::index::SearchIndex;
use super::tokenize::{self, Word};
use crate::{Segment, outline};

pub use model::EmbeddingModel;

/// Weight of one standard deviation of similarity relative to one standard deviation of the term scores. Terms stay the
/// stronger signal.
const SIMILARITY_WEIGHT: f32 = 0.6;
/// Minimum similarity, in standard deviations above the mean, for a tool without any term match.
const MIN_DEVIATIONS_ALONE: f32 = 2.5;
/// Minimum similarity, in standard deviations above the mean, that supports a tool with nothing but a related word.
const MIN_DEVIATIONS_BESIDE_RELATED: f32 = 1.0;
/// Maximum number of pieces per text; the rest of a text is ignored.
const MAX_PIECES: usize = 128;
/// Maximum number of tools that are compared. With more, similarity adds nothing to words, and costs more.
const MAX_COMPARED_TOOLS: usize = 20_000;
/// Number of models for which results are kept: a new configuration may name another one.
const MODEL_SLOTS: usize = 4;

/// A model that is loaded by the first search that needs it.
pub struct LazyModel {
    /// Tells one model from another in digests of views, such as the path of its directory.
    label: String,
    load: Box<dyn Fn() -> Option<EmbeddingModel> + Send + Sync>,
    model: OnceLock<Option<EmbeddingModel>>,
}

impl LazyModel {
    /// Creates a model that `load` reads when it is first needed, once. `load` reports errors itself and returns `None`;
    /// the search goes on by words alone.
    pub fn new(
        label: impl Into<String>,
        load: impl Fn() -> Option<EmbeddingModel> + Send + Sync + 'static,
    ) -> LazyModel {
        LazyModel { label: label.into(), load: Box::new(load), model: OnceLock::new() }
    }

    pub fn label(&self) -> &str {
        &self.label
    }

    /// Returns the model; loads it on first use, which takes a while.
    pub(crate) fn get(&self) -> Option<&EmbeddingModel> {
        self.model.get_or_init(|| (self.load)()).as_ref()
    }
}

impl fmt::Debug for LazyModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LazyModel").field("label", &self.label).finish_non_exhaustive()
    }
}

/// Values by model, each computed on first use.
#[derive(Debug)]
pub(crate) struct ByModel<T>([OnceLock<(u64, T)>; MODEL_SLOTS]);

impl<T> Default for ByModel<T> {
    fn default() -> ByModel<T> {
        ByModel(std::array::from_fn(|_| OnceLock::new()))
    }
}

impl<T> ByModel<T> {
    /// Returns the value of a model; `None` after too many other models.
    pub(crate) fn get_or_init(&self, model: &EmbeddingModel, init: impl Fn() -> T) -> Option<&T> {
        let values = self.0.iter().map(|slot| slot.get_or_init(|| (model.id(), init())));
        values.into_iter().find(|(id, _)| *id == model.id()).map(|(_, value)| value)
    }
}

/// Pieces of the tools of one segment.
#[derive(Debug)]
pub(crate) struct SegmentPieces {
    /// Sorted, distinct rows of the model, tool by tool.
    rows: Vec<u32>,
    /// End of each tool's rows, by the position of the tool.
    ends: Vec<u32>,
}

impl SegmentPieces {
    pub(crate) fn build(segment: &Segment, model: &EmbeddingModel) -> SegmentPieces {
        let mut pieces = SegmentPieces { rows: Vec::new(), ends: Vec::with_capacity(segment.entries().len()) };
        let source_name = split_name(segment.source().as_str());
        for entry in segment.entries() {
            let mut text = split_name(segment.original_name(entry)) + &source_name;
            // A stored tool that cannot be parsed still has its name.
            if let Ok(listing) = segment.tool(entry).map(|tool| tool.listing) {
                let (summary, _) = outline::split_first_sentence(&listing.description);
                text.extend([listing.title.as_deref().unwrap_or_default(), " ", summary]);
            }
            pieces.rows.extend(model.distinct_rows(&text, MAX_PIECES));
            pieces.ends.push(pieces.rows.len() as u32);
        }
        pieces
    }

    /// Rows of the tool at a position.
    fn rows(&self, position: usize) -> &[u32] {
        let end = |position: usize| self.ends.get(position).map_or(self.rows.len(), |end| *end as usize);
        let start = if position == 0 { 0 } else { end(position - 1) };
        self.rows.get(start..end(position)).unwrap_or_default()
    }
}

/// Rarities and lengths of the vectors of all tools of an index.
#[derive(Debug)]
pub(super) struct SemanticIndex {
    /// Rarity of each row among the tools.
    rarities: Vec<f32>,
    /// Rows that any tool has.
    used_rows: Vec<u32>,
    /// Length of each tool's vector, by tool number.
    lengths: Vec<f32>,
}

impl SemanticIndex {
    pub(super) fn build(index: &SearchIndex, model: &EmbeddingModel) -> SemanticIndex {
        let mut counts = vec![0_u32; model.rows()];
        for_each_tool(index, model, |_, rows| rows.iter().for_each(|row| counts[*row as usize] += 1));
        let tool_count = index.len() as f32;
        let rarity = |count: &u32| (1.0 + tool_count / (*count).max(1) as f32).ln();
        let rarities: Vec<f32> = counts.iter().map(rarity).collect();
        let used_rows = (0_u32..).zip(&counts).filter(|(_, count)| **count > 0).map(|(row, _)| row).collect();
        let mut lengths = vec![0.0; index.len()];
        for_each_tool(index, model, |tool, rows| {
            lengths[tool as usize] = length(&weighted_sum(model, rows, &rarities));
        });
        SemanticIndex { rarities, used_rows, lengths }
    }

    /// Similarity of each tool to a query, from -1 to 1; 0 for tools without known pieces. `None` if nothing is known of
    /// the query.
    fn similarities(&self, index: &SearchIndex, model: &EmbeddingModel, text: &str) -> Option<Vec<f32>> {
        let query = weighted_sum(model, &model.distinct_rows(text, MAX_PIECES), &self.rarities);
        let query_length = length(&query);
        if query_length <= f32::EPSILON {
            return None;
        }
        let mut products = vec![0.0_f32; model.rows()];
        for row in &self.used_rows {
            products[*row as usize] = dot_product(model.vector(*row), &query) * self.rarities[*row as usize];
        }
        let mut similarities = vec![0.0; index.len()];
        for_each_tool(index, model, |tool, rows| {
            let sum: f32 = rows.iter().map(|row| products[*row as usize]).sum();
            let length = self.lengths[tool as usize] * query_length;
            similarities[tool as usize] = if length > f32::EPSILON { sum / length } else { 0.0 };
        });
        Some(similarities)
    }
}

/// Similarity of the tools of an index to a query. Without a model, none is similar.
#[derive(Debug, Default)]
pub(super) struct QuerySimilarity {
    /// Similarity by tool number, in standard deviations above the mean; empty if nothing can be compared.
    deviations: Vec<f32>,
}

impl QuerySimilarity {
    pub(super) fn measure(index: &SearchIndex, model: &EmbeddingModel, text: &str) -> QuerySimilarity {
        if index.len() > MAX_COMPARED_TOOLS {
            return QuerySimilarity::default();
        }
        let semantic = index.semantic(model);
        let mut deviations =
            semantic.and_then(|semantic| semantic.similarities(index, model, text)).unwrap_or_default();
        let (mean, deviation) = mean_and_deviation(&deviations);
        if deviation <= f32::EPSILON {
            return QuerySimilarity::default();
        }
        deviations.iter_mut().for_each(|similarity| *similarity = (*similarity - mean) / deviation);
        QuerySimilarity { deviations }
    }

    /// Adds similarity to the term scores, both scaled to standard deviations so that they are comparable.
    pub(super) fn add_scores(&self, scores: &mut [f32]) {
        if self.deviations.is_empty() {
            return;
        }
        // Without any term match the deviation of the scores is 0; similarity alone then decides.
        let unit = Some(mean_and_deviation(scores).1).filter(|unit| *unit > f32::EPSILON).unwrap_or(1.0);
        for (score, deviations) in scores.iter_mut().zip(&self.deviations) {
            if *score > 0.0 {
                // Stays positive, so that a dissimilar tool with a term match is not dropped.
                *score = (*score + SIMILARITY_WEIGHT * unit * deviations).max(f32::MIN_POSITIVE);
            } else if *deviations > MIN_DEVIATIONS_ALONE {
                *score = SIMILARITY_WEIGHT * unit * deviations;
            }
        }
    }

    /// Whether similarity supports a tool that otherwise only a related word explains.
    pub(super) fn supports(&self, tool: u32) -> bool {
        self.deviations.get(tool as usize).is_some_and(|deviations| *deviations >= MIN_DEVIATIONS_BESIDE_RELATED)
    }
}

/// Calls `take` with the number of each tool and its rows.
fn for_each_tool(index: &SearchIndex, model: &EmbeddingModel, mut take: impl FnMut(u32, &[u32])) {
    index.for_each_segment_pieces(model, |tool, position, pieces| take(tool, pieces.rows(position)));
}

/// Sum of the vectors of some rows, weighted by their rarities.
fn weighted_sum(model: &EmbeddingModel, rows: &[u32], rarities: &[f32]) -> Vec<f32> {
    let mut sum = vec![0.0_f32; model.dimensions()];
    for row in rows {
        let rarity = rarities.get(*row as usize).copied().unwrap_or_default();
        sum.iter_mut().zip(model.vector(*row)).for_each(|(sum, value)| *sum += rarity * value);
    }
    sum
}

/// Sum of the products, in several sums side by side: a single one would wait for each addition.
fn dot_product(a: &[f32], b: &[f32]) -> f32 {
    const LANES: usize = 16;
    let (a, a_rest) = a.as_chunks::<LANES>();
    let (b, b_rest) = b.as_chunks::<LANES>();
    let mut sums = [0.0_f32; LANES];
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

fn length(vector: &[f32]) -> f32 {
    dot_product(vector, vector).sqrt()
}

/// Splits an identifier into words separated by spaces.
fn split_name(name: &str) -> String {
    let mut text = String::new();
    tokenize::for_each_word(name, |Word { whole, parts }| {
        let parts = if parts.is_empty() { vec![whole] } else { parts };
        parts.iter().for_each(|part| text.push_str(&format!("{part} ")));
    });
    text
}

/// Returns mean and standard deviation.
fn mean_and_deviation(values: &[f32]) -> (f32, f32) {
    let count = values.len().max(1) as f32;
    let mean = values.iter().sum::<f32>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f32>() / count;
    (mean, variance.sqrt())
}
