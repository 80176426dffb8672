//! Maps every text of a source that may contain references, for resolving and rewriting them.
//!
//! The only list of these texts. A text that is missing here is never resolved, and a reference in it would reach the
//! server as `${env:…}`.

use std::collections::BTreeMap;

use super::{Auth, BuiltinSource, OpenApiSource, RemoteSource, SourceKind, StdioSource, WorkflowSource};

impl SourceKind {
    /// Returns a copy in which `change` has replaced every text that may contain references.
    /// Stops at the first error of `change`.
    pub fn try_map_texts<E>(&self, mut change: impl FnMut(&str) -> Result<String, E>) -> Result<SourceKind, E> {
        Ok(match self {
            SourceKind::Stdio(stdio) => SourceKind::Stdio(StdioSource {
                command: change(&stdio.command)?,
                args: stdio.args.iter().map(|text| change(text)).collect::<Result<_, E>>()?,
                env: try_map_values(&stdio.env, &mut change)?,
                cwd: stdio.cwd.as_deref().map(&mut change).transpose()?,
                // Names of variables, not values.
                inherit_env: stdio.inherit_env.clone(),
            }),
            SourceKind::Http(remote) => SourceKind::Http(remote.try_map_texts(&mut change)?),
            SourceKind::Sse(remote) => SourceKind::Sse(remote.try_map_texts(&mut change)?),
            SourceKind::OpenApi(openapi) => SourceKind::OpenApi(openapi.try_map_texts(&mut change)?),
            SourceKind::Workflow(workflow) => {
                SourceKind::Workflow(WorkflowSource { document: change(&workflow.document)? })
            }
            SourceKind::Builtin(builtin) => SourceKind::Builtin(BuiltinSource {
                roots: builtin.roots.iter().map(|text| change(text)).collect::<Result<_, E>>()?,
                ..builtin.clone()
            }),
        })
    }
}

impl RemoteSource {
    fn try_map_texts<E>(&self, change: &mut impl FnMut(&str) -> Result<String, E>) -> Result<RemoteSource, E> {
        // Header names are literal; only their values may contain references.
        let auth = self.auth.as_ref().map(|auth| auth.try_map_texts(change)).transpose()?;
        Ok(RemoteSource { url: change(&self.url)?, headers: try_map_values(&self.headers, change)?, auth })
    }
}

impl OpenApiSource {
    fn try_map_texts<E>(&self, change: &mut impl FnMut(&str) -> Result<String, E>) -> Result<OpenApiSource, E> {
        Ok(OpenApiSource {
            document: change(&self.document)?,
            base_url: self.base_url.as_deref().map(&mut *change).transpose()?,
            headers: try_map_values(&self.headers, change)?,
            auth: self.auth.as_ref().map(|auth| auth.try_map_texts(change)).transpose()?,
            allow_refs: self.allow_refs.iter().map(|text| change(text)).collect::<Result<_, E>>()?,
            variables: try_map_values(&self.variables, change)?,
            // Globs, methods, tags and polling settings are literal.
            ..self.clone()
        })
    }
}

impl Auth {
    fn try_map_texts<E>(&self, change: &mut impl FnMut(&str) -> Result<String, E>) -> Result<Auth, E> {
        Ok(match self {
            Auth::Bearer(token) => Auth::Bearer(change(token)?),
            Auth::Basic { user, password } => Auth::Basic { user: change(user)?, password: change(password)? },
            Auth::ApiKey { name, location, value } => {
                Auth::ApiKey { name: name.clone(), location: *location, value: change(value)? }
            }
            Auth::Oauth2 { token_url, client_id, client_secret, scopes } => Auth::Oauth2 {
                token_url: change(token_url)?,
                client_id: change(client_id)?,
                client_secret: change(client_secret)?,
                // Scopes are literal.
                scopes: scopes.clone(),
            },
            Auth::Schemes(schemes) => {
                let schemes = schemes.iter().map(|(name, auth)| Ok((name.clone(), auth.try_map_texts(change)?)));
                Auth::Schemes(schemes.collect::<Result<_, E>>()?)
            }
        })
    }
}

/// Maps the values of a map and keeps its keys.
fn try_map_values<E>(
    values: &BTreeMap<String, String>,
    change: &mut impl FnMut(&str) -> Result<String, E>,
) -> Result<BTreeMap<String, String>, E> {
    values.iter().map(|(name, value)| Ok((name.clone(), change(value)?))).collect()
}
