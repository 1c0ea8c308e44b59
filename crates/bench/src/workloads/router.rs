//! What does `router` measure? What a hundred typed routes add to a request, at a path of letters and at one with
//! captures.

use super::Target::*;
use super::quick::quick;
use super::{Ask, HEALTH, Target, Workload};
use crate::load::Group;

/// The search is a few dozen nanoseconds of microseconds: beyond that, something else is wrong.
const TARGETS: &[Target] = &[CpuOverBareMax(1.03), NoErrors];

pub(super) fn table() -> Vec<Workload> {
    [
        ("static", "/health, keep-alive, 64 connections", HEALTH),
        (
            "captures",
            "/users/{id}/notes/{note}, keep-alive, 64 connections",
            Group::get("/users/4711/notes/12", 64),
        ),
    ]
    .into_iter()
    .map(|(name, title, group)| Workload { ask: Ask::Route, ..quick(name, title, group, TARGETS) })
    .collect()
}
