//! Every text of a source that may hold a reference, made anew in one go.

use std::collections::BTreeMap;

use super::{Auth, Builtin, Kind, OpenApi, Remote, Stdio, Workflow};

impl Kind {
    /// The same kind with every text that may hold a reference made anew by `change`.
    pub fn try_map<E>(&self, mut change: impl FnMut(&str) -> Result<String, E>) -> Result<Kind, E> {
        Ok(match self {
            Kind::Stdio(stdio) => Kind::Stdio(Stdio {
                command: change(&stdio.command)?,
                args: stdio.args.iter().map(|text| change(text)).collect::<Result<_, E>>()?,
                env: try_map_values(&stdio.env, &mut change)?,
                cwd: stdio.cwd.as_deref().map(&mut change).transpose()?,
                inherit_env: stdio.inherit_env.clone(),
            }),
            Kind::Http(remote) => Kind::Http(remote.try_map(&mut change)?),
            Kind::Sse(remote) => Kind::Sse(remote.try_map(&mut change)?),
            Kind::OpenApi(openapi) => Kind::OpenApi(openapi.try_map(&mut change)?),
            Kind::Workflow(workflow) => Kind::Workflow(Workflow { document: change(&workflow.document)? }),
            Kind::Builtin(builtin) => Kind::Builtin(Builtin {
                roots: builtin.roots.iter().map(|text| change(text)).collect::<Result<_, E>>()?,
                ..builtin.clone()
            }),
        })
    }
}

impl Remote {
    fn try_map<E>(&self, change: &mut impl FnMut(&str) -> Result<String, E>) -> Result<Remote, E> {
        let auth = self.auth.as_ref().map(|auth| auth.try_map(change)).transpose()?;
        Ok(Remote { url: change(&self.url)?, headers: try_map_values(&self.headers, change)?, auth })
    }
}

impl OpenApi {
    fn try_map<E>(&self, change: &mut impl FnMut(&str) -> Result<String, E>) -> Result<OpenApi, E> {
        Ok(OpenApi {
            document: change(&self.document)?,
            base_url: self.base_url.as_deref().map(&mut *change).transpose()?,
            headers: try_map_values(&self.headers, change)?,
            auth: self.auth.as_ref().map(|auth| auth.try_map(change)).transpose()?,
            allow_refs: self.allow_refs.iter().map(|place| change(place)).collect::<Result<_, E>>()?,
            variables: try_map_values(&self.variables, change)?,
            ..self.clone()
        })
    }
}

impl Auth {
    fn try_map<E>(&self, change: &mut impl FnMut(&str) -> Result<String, E>) -> Result<Auth, E> {
        Ok(match self {
            Auth::Bearer(token) => Auth::Bearer(change(token)?),
            Auth::Basic { user, password } => Auth::Basic { user: change(user)?, password: change(password)? },
            Auth::ApiKey { name, place, value } => {
                Auth::ApiKey { name: name.clone(), place: *place, value: change(value)? }
            }
            Auth::Oauth2 { token_url, client_id, client_secret, scopes } => Auth::Oauth2 {
                token_url: change(token_url)?,
                client_id: change(client_id)?,
                client_secret: change(client_secret)?,
                scopes: scopes.clone(),
            },
            Auth::Schemes(schemes) => {
                let each = schemes.iter().map(|(name, auth)| Ok((name.clone(), auth.try_map(change)?)));
                Auth::Schemes(each.collect::<Result<_, E>>()?)
            }
        })
    }
}

fn try_map_values<E>(
    values: &BTreeMap<String, String>,
    change: &mut impl FnMut(&str) -> Result<String, E>,
) -> Result<BTreeMap<String, String>, E> {
    values.iter().map(|(name, value)| Ok((name.clone(), change(value)?))).collect()
}
