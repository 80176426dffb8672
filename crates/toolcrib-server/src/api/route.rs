//! One row of the table of routes: where it is, what it needs of who comes, and what the document says of it.

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::MethodRouter;

use crate::access::{Needs, admit};
use crate::house::House;

#[derive(Debug)]
pub(crate) struct Route {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    /// Its `operationId`.
    pub(super) operation: &'static str,
    pub(super) summary: &'static str,
    needs: Needs,
    handler: MethodRouter<House>,
}

impl Route {
    pub(super) fn new(
        method: &'static str,
        path: &'static str,
        operation: &'static str,
        handler: MethodRouter<House>,
    ) -> Route {
        Route { method, path, operation, summary: "", needs: Needs::Managing, handler }
    }

    pub(super) fn about(self, summary: &'static str) -> Route {
        Route { summary, ..self }
    }

    /// A route that says nothing is for those who manage.
    pub(super) fn needs(self, needs: Needs) -> Route {
        Route { needs, ..self }
    }

    pub(super) fn add_to(self, router: Router<House>, house: &House) -> Router<House> {
        let guarded = self.handler.layer(from_fn_with_state((house.clone(), self.needs), admit));
        router.route(self.path, guarded)
    }
}
