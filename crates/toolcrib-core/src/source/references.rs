//! Maps every text of a source that may contain references, for resolving and rewriting them.
//!
//! The only list of these texts. A text that is missing here is never resolved, and a reference in it would reach the
//! server as `${env:…}`.

use super::{Auth, SourceKind};

impl SourceKind {
    /// Returns a copy in which `change` has replaced every text that may contain references.
    /// Stops at the first error of `change`.
    pub fn try_map_texts<E>(&self, mut change: impl FnMut(&str) -> Result<String, E>) -> Result<SourceKind, E> {
        let mut changed = self.clone();
        for text in changed.texts_mut() {
            *text = change(text)?;
        }
        Ok(changed)
    }

    /// Returns every text that may contain references. Names of headers and variables, globs, methods, tags, scopes and
    /// polling settings are literal.
    fn texts_mut(&mut self) -> Vec<&mut String> {
        match self {
            SourceKind::Stdio(stdio) => {
                let texts = std::iter::once(&mut stdio.command).chain(&mut stdio.args);
                texts.chain(stdio.env.values_mut()).chain(&mut stdio.cwd).collect()
            }
            SourceKind::Http(remote) | SourceKind::Sse(remote) => {
                let auth = remote.auth.iter_mut().flat_map(Auth::texts_mut);
                auth.chain([&mut remote.url]).chain(remote.headers.values_mut()).collect()
            }
            SourceKind::OpenApi(openapi) => {
                let texts = std::iter::once(&mut openapi.document).chain(&mut openapi.base_url);
                let texts = texts.chain(openapi.headers.values_mut());
                let texts = texts.chain(openapi.auth.iter_mut().flat_map(Auth::texts_mut));
                texts.chain(&mut openapi.allow_refs).chain(openapi.variables.values_mut()).collect()
            }
            SourceKind::Workflow(workflow) => vec![&mut workflow.document],
            SourceKind::Builtin(builtin) => builtin.roots.iter_mut().collect(),
        }
    }
}

impl Auth {
    fn texts_mut(&mut self) -> Vec<&mut String> {
        match self {
            Auth::Bearer(token) => vec![token],
            Auth::Basic { user, password } => vec![user, password],
            Auth::ApiKey { value, .. } => vec![value],
            Auth::Oauth2 { token_url, client_id, client_secret, .. } => vec![token_url, client_id, client_secret],
            Auth::Schemes(schemes) => schemes.values_mut().flat_map(Auth::texts_mut).collect(),
        }
    }
}
