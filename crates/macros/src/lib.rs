//! `#[derive(Routes)]`: filled by the typed-routes work; nothing is exported yet.
