//! Every text of a source that may hold a reference, made anew in one go.

use std::collections::BTreeMap;

use super::{Auth, Builtin, Kind, Remote, Stdio};

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
            Kind::Builtin(builtin) => Kind::Builtin(Builtin {
                roots: builtin.roots.iter().map(|text| change(text)).collect::<Result<_, E>>()?,
                ..builtin.clone()
            }),
        })
    }
}

impl Remote {
    fn try_map<E>(&self, change: &mut impl FnMut(&str) -> Result<String, E>) -> Result<Remote, E> {
        let auth = match &self.auth {
            None => None,
            Some(Auth::Bearer(token)) => Some(Auth::Bearer(change(token)?)),
            Some(Auth::Basic { user, password }) => {
                Some(Auth::Basic { user: change(user)?, password: change(password)? })
            }
            Some(Auth::ApiKey { name, place, value }) => {
                Some(Auth::ApiKey { name: name.clone(), place: *place, value: change(value)? })
            }
        };
        Ok(Remote { url: change(&self.url)?, headers: try_map_values(&self.headers, change)?, auth })
    }
}

fn try_map_values<E>(
    values: &BTreeMap<String, String>,
    change: &mut impl FnMut(&str) -> Result<String, E>,
) -> Result<BTreeMap<String, String>, E> {
    values.iter().map(|(name, value)| Ok((name.clone(), change(value)?))).collect()
}
