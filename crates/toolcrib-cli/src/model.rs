//! Semantic search with a local model (`--model`): static word embeddings in a folder, as model2vec writes them. Needs
//! the feature `embeddings`; a build without it reports an error for the option.
//!
//! `search` and `eval` share it. [`SearchMode`] is loaded before the store is opened; [`Searcher`] is that mode
//! applied to the tools of one caller.

use std::path::PathBuf;

use clap::Args;
use toolcrib::Result;
use toolcrib::catalog::View;
use toolcrib::catalog::search::{Query, SearchResults};

#[cfg(feature = "embeddings")]
use toolcrib::catalog::search::embeddings::{EmbeddingModel, ToolEmbeddings};

// The option that selects semantic search.
#[derive(Debug, Args)]
pub(crate) struct ModelArguments {
    /// Semantic search with a static embedding: a folder with `model.safetensors` and `tokenizer.json`
    #[arg(long, value_name = "DIR", hide = cfg!(not(feature = "embeddings")))]
    model: Option<PathBuf>,
}

/// How to search a catalogue.
pub(crate) enum SearchMode {
    /// By the words of the query alone.
    Lexical,
    /// By the words and by the similarity of embeddings.
    #[cfg(feature = "embeddings")]
    Semantic(EmbeddingModel),
}

/// A [`SearchMode`] applied to one catalogue view.
pub(crate) enum Searcher {
    /// Searches the index of the catalogue; nothing is prepared.
    Lexical(View),
    /// Has one vector per tool of the view, which must be the view that is searched.
    #[cfg(feature = "embeddings")]
    Semantic(View, ToolEmbeddings),
}

impl ModelArguments {
    /// Loads the model named by `--model`. Called before the store is opened, so that a wrong path changes nothing.
    pub(crate) fn search_mode(&self) -> Result<SearchMode> {
        match &self.model {
            None => Ok(SearchMode::Lexical),
            Some(folder) => load_model(folder),
        }
    }
}

/// Reads the two files of the folder. Fails with `BAD_REQUEST` if one is missing or has another format.
#[cfg(feature = "embeddings")]
fn load_model(folder: &std::path::Path) -> Result<SearchMode> {
    use toolcrib::{Code, Error};

    let unreadable = |path: &std::path::Path, error: std::io::Error| {
        Error::new(Code::BadRequest, format!("cannot read `{}`: {error}", path.display()))
    };
    let model = folder.join("model.safetensors");
    let tokenizer = folder.join("tokenizer.json");
    // Both files are read completely: a static embedding is small.
    let bytes = std::fs::read(&model).map_err(|error| unreadable(&model, error))?;
    let text = std::fs::read_to_string(&tokenizer).map_err(|error| unreadable(&tokenizer, error))?;
    // The message names the folder, because the error only knows the content.
    let model = EmbeddingModel::parse(&bytes, &text).map_err(|mut error| {
        error.message = format!("`{}`: {}", folder.display(), error.message);
        error
    })?;
    Ok(SearchMode::Semantic(model))
}

#[cfg(not(feature = "embeddings"))]
fn load_model(_folder: &std::path::Path) -> Result<SearchMode> {
    let message = "this build of `toolcrib` has no semantic search; build it with `--features embeddings`";
    Err(toolcrib::Error::new(toolcrib::Code::BadRequest, message))
}

impl SearchMode {
    /// Prepares the search of one view; for semantic search this embeds every tool in it.
    pub(crate) fn into_searcher(self, view: View) -> Searcher {
        match self {
            SearchMode::Lexical => Searcher::Lexical(view),
            #[cfg(feature = "embeddings")]
            SearchMode::Semantic(model) => {
                // Once per command: vectors are not stored.
                let embeddings = ToolEmbeddings::build(&view, model.into());
                Searcher::Semantic(view, embeddings)
            }
        }
    }
}

impl Searcher {
    /// Returns the best hits for the query.
    pub(crate) fn search(&self, query: &Query) -> SearchResults {
        match self {
            Searcher::Lexical(view) => view.search(query),
            #[cfg(feature = "embeddings")]
            Searcher::Semantic(view, embeddings) => view.search_with_embeddings(query, embeddings),
        }
    }
}
