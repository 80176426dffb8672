//! Search by meaning, for whoever names a model: static word vectors in a folder, as model2vec writes them. Compiled in
//! with the feature `embeddings`; without it the option says so.

use std::path::PathBuf;

use clap::Args;
use toolcrib::Result;
use toolcrib::core::catalog::View;
use toolcrib::core::search::{Query, SearchResults};

#[cfg(feature = "embeddings")]
use toolcrib::core::search::embeddings::{EmbeddingModel, ToolEmbeddings};

#[derive(Debug, Args)]
pub(crate) struct ModelArguments {
    /// Search by meaning too, with a static embedding: a folder with `model.safetensors` and `tokenizer.json`
    #[arg(long, value_name = "DIR", hide = cfg!(not(feature = "embeddings")))]
    model: Option<PathBuf>,
}

/// How a catalogue will be searched.
pub(crate) enum SearchMode {
    Lexical,
    #[cfg(feature = "embeddings")]
    Semantic(EmbeddingModel),
}

/// Searches one catalogue.
pub(crate) enum Searcher {
    Lexical(View),
    #[cfg(feature = "embeddings")]
    Semantic(View, ToolEmbeddings),
}

impl ModelArguments {
    /// Reads the model that was named, before anything else is done.
    pub(crate) fn search_mode(&self) -> Result<SearchMode> {
        match &self.model {
            None => Ok(SearchMode::Lexical),
            Some(folder) => load_model(folder),
        }
    }
}

#[cfg(feature = "embeddings")]
fn load_model(folder: &std::path::Path) -> Result<SearchMode> {
    use toolcrib::{Code, Error};

    let unreadable = |path: &std::path::Path, error: std::io::Error| {
        Error::new(Code::BadRequest, format!("cannot read `{}`: {error}", path.display()))
    };
    let (model, tokenizer) = (folder.join("model.safetensors"), folder.join("tokenizer.json"));
    let bytes = std::fs::read(&model).map_err(|error| unreadable(&model, error))?;
    let text = std::fs::read_to_string(&tokenizer).map_err(|error| unreadable(&tokenizer, error))?;
    let vectors = EmbeddingModel::parse(&bytes, &text).map_err(|mut error| {
        error.message = format!("`{}`: {}", folder.display(), error.message);
        error
    })?;
    Ok(SearchMode::Semantic(vectors))
}

#[cfg(not(feature = "embeddings"))]
fn load_model(_folder: &std::path::Path) -> Result<SearchMode> {
    let message = "this `toolcrib` cannot search by meaning; build it with `--features embeddings`";
    Err(toolcrib::Error::new(toolcrib::Code::BadRequest, message))
}

impl SearchMode {
    pub(crate) fn into_searcher(self, view: View) -> Searcher {
        match self {
            SearchMode::Lexical => Searcher::Lexical(view),
            #[cfg(feature = "embeddings")]
            SearchMode::Semantic(vectors) => {
                let meanings = ToolEmbeddings::build(&view, vectors.into());
                Searcher::Semantic(view, meanings)
            }
        }
    }
}

impl Searcher {
    pub(crate) fn search(&self, query: &Query) -> SearchResults {
        match self {
            Searcher::Lexical(view) => view.search(query),
            #[cfg(feature = "embeddings")]
            Searcher::Semantic(view, meanings) => view.search_with_embeddings(query, meanings),
        }
    }
}
