//! Runtime expressions, as OpenAPI and Arazzo have them: `$response.body#/id`, `$steps.find.outputs.pet`.
