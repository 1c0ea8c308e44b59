//! Which responses are kept, which of them suits a request, and which go first?

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

/// How many responses one target has. They are looked through one by one, and a client chooses what `Vary` names.
const VARIANTS_MAX: usize = 16;

/// What a response costs beside its bytes: its places in both maps, its key's, and its own.
const ENTRY_BYTES: usize = 512;

/// Changes are counted for so many groups of targets, in 32 KiB: a change of one hinders keeping the others of its group.
const GROUPS: usize = 4096;

/// What a client asks for.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Key {
    scheme: &'static str,
    host: Option<Box<str>>,
    /// What a trusted proxy says of the host.
    forwarded_host: Option<Box<str>>,
    path: Box<str>,
    query: Option<Box<str>>,
}

impl Key {
    pub(super) fn of(req: &Request<'_>) -> Key {
        // Hosts are the same in whatever case (RFC 9110 section 4.2.3). Nothing else is made alike: whatever of a
        // request does not count here, a handler might show to the next visitor.
        Key {
            scheme: req.scheme(),
            host: req.host().map(|host| host.to_ascii_lowercase().into()),
            forwarded_host: req.forwarded_host().map(|host| host.to_ascii_lowercase().into()),
            path: req.whole_path().into(),
            query: req.query().map(Into::into),
        }
    }

    fn bytes(&self) -> usize {
        let texts = [self.host.as_deref(), self.forwarded_host.as_deref(), self.query.as_deref()];
        self.path.len() + texts.into_iter().flatten().map(str::len).sum::<usize>()
    }
}

/// A response that is kept.
pub(super) struct Stored {
    policy: CachePolicy,
    received: Instant,
    fields: Vec<(HeaderName, HeaderValue)>,
    content_type: Option<HeaderValue>,
    body: Bytes,
}

impl Stored {
    /// None: its body is not in memory.
    pub(super) fn of(response: &Response, policy: CachePolicy, received: Instant) -> Option<Stored> {
        // Copies: a part of something larger would hold all of that.
        let body = Bytes::copy_from_slice(response.body()?);
        let copied = |value: &HeaderValue| HeaderValue::from_bytes(value.as_bytes()).ok();
        // A wrong `Content-Length` stays, so that it fails each time alike.
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
        response.with_header(header::AGE, self.age(now).as_secs().into())
    }

    fn age(&self, now: Instant) -> Duration {
        self.policy.age + now.saturating_duration_since(self.received)
    }

    fn is_fresh(&self, now: Instant) -> bool {
        self.age(now) < self.policy.lifetime
    }

    /// Whether it was made for a request like this (RFC 9111 section 4.1).
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

/// All that is kept.
pub(super) struct Store {
    bytes_max: u64,
    bytes: u64,
    targets: HashMap<Arc<Key>, CachedTarget>,
    /// By when they were used last.
    order: BTreeMap<u64, Arc<Key>>,
    uses: u64,
    /// How often targets were forgotten, in groups by the hash of their key.
    changes: Box<[u64]>,
}

/// What was kept, to be dropped where no lock is held.
pub(super) type Removed = (HashMap<Arc<Key>, CachedTarget>, BTreeMap<u64, Arc<Key>>);

pub(super) struct CachedTarget {
    used: u64,
    bytes: u64,
    /// The newest is last.
    variants: Vec<Arc<Stored>>,
}

impl Store {
    pub(super) fn new(bytes_max: u64) -> Store {
        let (targets, order) = (HashMap::new(), BTreeMap::new());
        Store { bytes_max, bytes: 0, targets, order, uses: 0, changes: vec![0; GROUPS].into() }
    }

    /// The newest response that suits `req` and is fresh. Else how often the target was changed, which
    /// [`keep`](Store::keep) wants to know.
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

    /// Keeps the answer to `req`, in the place of others that suit it and of those that are no longer fresh; unless
    /// the target has changed since `changes`: then the handler may have seen what was before.
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

    /// The target has changed: what is kept for it is of no use.
    pub(super) fn invalidate(&mut self, key: &Key) {
        let group = self.group(key);
        self.changes[group] += 1;
        self.remove(key);
    }

    /// Everything may have changed.
    pub(super) fn clear(&mut self) -> Removed {
        self.changes.iter_mut().for_each(|changes| *changes += 1);
        self.bytes = 0;
        // With the same hasher: by that a target is in a group.
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
