//! Maps every text of a source that may contain references, for resolving and rewriting them.
//!
//! The only list of these texts. A text that is missing here is never resolved, and a reference in it would reach the
//! server as `${env:…}`.

use super::{Auth, SourceKind};

/// Meaning of a text in the configuration of a source. It decides how a value that is a relative path is resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextRole {
    /// Used as it is.
    Plain,
    /// Path of a file or directory, or a URL where a document may have one.
    Path,
    /// Program: a path, or a bare name that is looked up in `PATH`.
    Program,
}

impl SourceKind {
    /// Returns a copy in which `change` has replaced every text that may contain references.
    /// Stops at the first error of `change`.
    pub fn try_map_texts<E>(&self, mut change: impl FnMut(&str) -> Result<String, E>) -> Result<SourceKind, E> {
        self.try_map_texts_by_role(|_, text| change(text))
    }

    /// Like [`SourceKind::try_map_texts`], for changes that depend on the meaning of a text.
    pub fn try_map_texts_by_role<E>(
        &self,
        mut change: impl FnMut(TextRole, &str) -> Result<String, E>,
    ) -> Result<SourceKind, E> {
        let mut changed = self.clone();
        for (role, text) in changed.texts_mut() {
            *text = change(role, text)?;
        }
        Ok(changed)
    }

    /// Returns every text that may contain references. Names of headers and variables, globs, methods, tags, scopes and
    /// polling settings are literal.
    fn texts_mut(&mut self) -> Vec<(TextRole, &mut String)> {
        let plain = |text| (TextRole::Plain, text);
        let path = |text| (TextRole::Path, text);
        match self {
            SourceKind::Stdio(stdio) => {
                let values = stdio.args.iter_mut().chain(stdio.env.values_mut()).map(plain);
                let texts = std::iter::once((TextRole::Program, &mut stdio.command)).chain(values);
                texts.chain(stdio.cwd.iter_mut().map(path)).collect()
            }
            SourceKind::Http(remote) | SourceKind::Sse(remote) => {
                let auth = remote.auth.iter_mut().flat_map(Auth::texts_mut);
                auth.chain([&mut remote.url]).chain(remote.headers.values_mut()).map(plain).collect()
            }
            SourceKind::OpenApi(openapi) => {
                let texts = openapi.base_url.iter_mut().chain(openapi.headers.values_mut());
                let texts = texts.chain(openapi.auth.iter_mut().flat_map(Auth::texts_mut));
                let texts = texts.chain(openapi.variables.values_mut()).map(plain);
                let paths = std::iter::once(&mut openapi.document).chain(&mut openapi.allow_refs);
                paths.map(path).chain(texts).collect()
            }
            SourceKind::Workflow(workflow) => vec![path(&mut workflow.document)],
            SourceKind::Builtin(builtin) => builtin.roots.iter_mut().map(path).collect(),
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
