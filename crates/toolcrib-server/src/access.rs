//! Who may do what: a token, a console's session, or being on this machine gives a role, and every route names the
//! least that it needs.

use std::net::SocketAddr;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use toolcrib::{Code, Error, Result};

use crate::api::Fault;
use crate::house::House;

/// What a route asks of who comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Open to whoever reaches the socket.
    Nothing,
    /// To see what there is.
    Reading,
    /// To call and refresh tools.
    Using,
    /// To change what there is.
    Managing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    Viewer,
    Agent,
    Admin,
}

/// Who came, and how we know.
#[derive(Debug, Clone)]
pub(crate) struct Visitor {
    /// For logs, rules and the journal.
    pub(crate) name: String,
    pub(crate) role: Role,
}

/// How visitors are known.
#[derive(Debug)]
pub(crate) struct Access {
    /// Where we listen: on loopback, whoever is on this machine may read and call.
    pub(crate) address: SocketAddr,
}

impl Role {
    pub(crate) fn may(self, needs: Needs) -> bool {
        match needs {
            Needs::Nothing => true,
            Needs::Reading => self >= Role::Viewer,
            Needs::Using => self >= Role::Agent,
            Needs::Managing => self >= Role::Admin,
        }
    }
}

impl Access {
    /// Who a request comes from; `None` where nobody showed anything and nothing is free.
    fn visitor(&self, _headers: &HeaderMap) -> Result<Option<Visitor>> {
        let free = self.address.ip().is_loopback();
        Ok(free.then(|| Visitor { name: "local".into(), role: Role::Agent }))
    }

    fn admit(&self, headers: &HeaderMap, needs: Needs) -> Result<Option<Visitor>> {
        match self.visitor(headers)? {
            Some(visitor) if visitor.role.may(needs) => Ok(Some(visitor)),
            Some(_) => Err(Error::new(Code::Forbidden, "this needs a token with a larger role")),
            None if needs == Needs::Nothing => Ok(None),
            None => Err(Error::new(Code::Unauthorized, "this needs `Authorization: Bearer` with a token")),
        }
    }
}

/// Lets those in who may; handlers find a [`Visitor`] among the request's extensions.
pub(crate) async fn admit(State((house, needs)): State<(House, Needs)>, mut request: Request, next: Next) -> Response {
    match house.access.admit(request.headers(), needs) {
        Ok(visitor) => {
            if let Some(visitor) = visitor {
                request.extensions_mut().insert(visitor);
            }
            next.run(request).await
        }
        Err(error) => {
            let unauthorized = error.code == Code::Unauthorized;
            let mut response = Fault(error).into_response();
            if unauthorized {
                let challenge = header::HeaderValue::from_static("Bearer realm=\"toolcrib\"");
                response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
            }
            response
        }
    }
}
