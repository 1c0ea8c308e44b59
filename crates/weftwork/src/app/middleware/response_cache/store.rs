//! Stores responses, selects one for a request, and removes the least recently used.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::BuildHasher;
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header};

use super::rules::{CachePolicy, has_credentials};
use crate::message::{Request, Response};

/// Maximum number of responses for one target. They are searched one by one, and a client chooses the values of
/// the fields in `Vary`.
const VARIANTS_MAX: usize = 16;

/// Overhead of a response: its entries in both maps, its key, and the struct itself.
const ENTRY_BYTES: usize = 512;

/// Number of groups whose changes are counted, in 32 KiB. A change of one target also prevents storing the
/// others of its group.
const GROUPS: usize = 4096;

/// The target of a request.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Key {
    scheme: &'static str,
    host: Option<Box<str>>,
    /// Host according to a trusted proxy.
    forwarded_host: Option<Box<str>>,
    path: Box<str>,
    query: Option<Box<str>>,
}

impl Key {
    pub(super) fn of(req: &Request<'_>) -> Key {
        // Host names ignore case (RFC 9110 section 4.2.3). Nothing else is normalized. If a part of the request
        // were not in the key, a handler could show it to the next visitor.
        Key {
            scheme: req.scheme(),
            host: req.host().map(|host| host.to_ascii_lowercase().into()),
            forwarded_host: req.forwarded_host().map(|host| host.to_ascii_lowercase().into()),
            // A server behind a proxy may answer differently to other forms of a path.
            path: req.sent_path().into(),
            query: req.query().map(Into::into),
        }
    }

    fn bytes(&self) -> usize {
        let texts = [self.host.as_deref(), self.forwarded_host.as_deref(), self.query.as_deref()];
        self.path.len() + texts.into_iter().flatten().map(str::len).sum::<usize>()
    }
}

/// A stored response.
pub(super) struct Stored {
    policy: CachePolicy,
    received: Instant,
    fields: Vec<(HeaderName, HeaderValue)>,
    content_type: Option<HeaderValue>,
    body: Bytes,
}

impl Stored {
    /// Copies a response. Returns `None` if its body is not in memory.
    pub(super) fn of(response: &Response, policy: CachePolicy, received: Instant) -> Option<Stored> {
        // Copied, because a slice would keep a larger buffer in memory.
        let body = Bytes::copy_from_slice(response.body()?);
        let copied = |value: &HeaderValue| HeaderValue::from_bytes(value.as_bytes()).ok();
        // A wrong `Content-Length` is kept, so that it fails in the same way each time.
        let kept = response.header_lines().iter().filter(|(name, _)| *name != header::AGE);
        let fields = kept.map(|(name, value)| Some((name.clone(), copied(value)?)));
        let fields = fields.collect::<Option<_>>()?;
        let content_type = match response.content_type() {
            Some(value) => Some(copied(value)?),
            None => None,
        };
        Some(Stored { policy, received, fields, content_type, body })
    }

    pub(super) fn response(&self, now: Instant) -> Response {
        let mut response = Response::new(StatusCode::OK).with_body(self.body.clone());
        if let Some(content_type) = &self.content_type {
            response = response.with_content_type(content_type.clone());
        }
        for (name, value) in &self.fields {
            response.append_header(name.clone(), value.clone());
        }
        response.with_header(header::AGE, self.age(now).as_secs())
    }

    fn age(&self, now: Instant) -> Duration {
        self.policy.age + now.saturating_duration_since(self.received)
    }

    fn is_fresh(&self, now: Instant) -> bool {
        self.age(now) < self.policy.lifetime
    }

    /// Returns whether the response was made for a request like this (RFC 9111 section 4.1).
    fn matches(&self, req: &Request<'_>) -> bool {
        let same = |(name, values): &(HeaderName, Vec<Vec<u8>>)| {
            req.header_values(name).eq(values.iter().map(Vec::as_slice))
        };
        self.policy.vary_values.iter().all(same)
    }

    fn bytes(&self) -> usize {
        const FIELD_BYTES: usize = size_of::<(HeaderName, HeaderValue)>();
        let fields = self.fields.iter().map(|(name, value)| FIELD_BYTES + name.as_str().len() + value.len());
        let vary_values = self.policy.vary_values.iter().map(|(name, values)| {
            let values = values.iter().map(|value| FIELD_BYTES + value.len());
            FIELD_BYTES + name.as_str().len() + values.sum::<usize>()
        });
        let content_type = self.content_type.as_ref().map_or(0, HeaderValue::len);
        ENTRY_BYTES + self.body.len() + content_type + fields.sum::<usize>() + vary_values.sum::<usize>()
    }
}

/// All stored responses.
pub(super) struct Store {
    bytes_max: u64,
    bytes: u64,
    targets: HashMap<Arc<Key>, CachedTarget>,
    /// Keys by the time of their last use.
    order: BTreeMap<u64, Arc<Key>>,
    uses: u64,
    /// Number of invalidations, in groups by the hash of the key.
    changes: Box<[u64]>,
}

/// Removed entries, which are dropped without the lock.
pub(super) type Removed = (HashMap<Arc<Key>, CachedTarget>, BTreeMap<u64, Arc<Key>>);

pub(super) struct CachedTarget {
    used: u64,
    bytes: u64,
    /// Responses of the target, the newest last.
    variants: Vec<Arc<Stored>>,
}

impl Store {
    pub(super) fn new(bytes_max: u64) -> Store {
        let (targets, order) = (HashMap::new(), BTreeMap::new());
        Store { bytes_max, bytes: 0, targets, order, uses: 0, changes: vec![0; GROUPS].into() }
    }

    /// Returns the newest fresh response that matches `req`. The error is the number of changes of the target,
    /// which [`insert`](Store::insert) needs.
    pub(super) fn find(&mut self, key: &Key, req: &Request<'_>, now: Instant) -> Result<Arc<Stored>, u64> {
        self.found(key, req, now).ok_or_else(|| self.changes[self.group(key)])
    }

    fn found(&mut self, key: &Key, req: &Request<'_>, now: Instant) -> Option<Arc<Stored>> {
        let target = self.targets.get_mut(key)?;
        let is_for = |stored: &&Arc<Stored>| {
            stored.is_fresh(now) && stored.matches(req) && (stored.policy.is_public || !has_credentials(req))
        };
        let found = target.variants.iter().rev().find(is_for)?.clone();
        if let Some(key) = self.order.remove(&target.used) {
            self.uses += 1;
            target.used = self.uses;
            self.order.insert(self.uses, key);
        }
        Some(found)
    }

    /// Stores a response. It replaces responses for the same request fields and stale ones. If the target has
    /// changed since `changes`, nothing is stored, because the handler may have seen the old state.
    pub(super) fn insert(&mut self, key: Key, changes: u64, stored: Stored, req: &Request<'_>) {
        if self.changes[self.group(&key)] != changes {
            return;
        }
        let now = stored.received;
        let mut variants = self.remove(&key).map_or_else(Vec::new, |target| target.variants);
        variants.retain(|other| other.is_fresh(now) && !other.matches(req));
        variants.push(Arc::new(stored));
        let bytes = |variants: &[Arc<Stored>]| {
            (key.bytes() + variants.iter().map(|stored| stored.bytes()).sum::<usize>()) as u64
        };
        while !variants.is_empty() && (variants.len() > VARIANTS_MAX || bytes(&variants) > self.bytes_max) {
            variants.remove(0);
        }
        if variants.is_empty() {
            return;
        }
        let bytes = bytes(&variants);
        while self.bytes + bytes > self.bytes_max
            && let Some((_, oldest)) = self.order.first_key_value()
        {
            let oldest = oldest.clone();
            self.remove(&oldest);
        }
        let key = Arc::new(key);
        self.uses += 1;
        self.bytes += bytes;
        self.order.insert(self.uses, key.clone());
        self.targets.insert(key, CachedTarget { used: self.uses, bytes, variants });
    }

    /// Removes all responses of a changed target.
    pub(super) fn invalidate(&mut self, key: &Key) {
        let group = self.group(key);
        self.changes[group] += 1;
        self.remove(key);
    }

    /// Removes all responses.
    pub(super) fn clear(&mut self) -> Removed {
        self.changes.iter_mut().for_each(|changes| *changes += 1);
        self.bytes = 0;
        // Uses the same hasher, because it determines the groups.
        let empty = HashMap::with_hasher(self.targets.hasher().clone());
        (mem::replace(&mut self.targets, empty), mem::take(&mut self.order))
    }

    fn remove(&mut self, key: &Key) -> Option<CachedTarget> {
        let target = self.targets.remove(key)?;
        self.order.remove(&target.used);
        self.bytes -= target.bytes;
        Some(target)
    }

    fn group(&self, key: &Key) -> usize {
        self.targets.hasher().hash_one(key) as usize % GROUPS
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("bytes_max", &self.bytes_max)
            .field("bytes", &self.bytes)
            .field("targets", &self.targets.len())
            .finish_non_exhaustive()
    }
}
