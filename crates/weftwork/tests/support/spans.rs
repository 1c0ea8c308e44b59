//! A collector of the spans of this process, for all tests of a binary.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Mutex, Once, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// A span as it was recorded.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorded {
    fields: BTreeMap<&'static str, String>,
    /// Messages of the events that belong to it.
    pub(crate) events: Vec<String>,
    handles: usize,
    pub(crate) is_closed: bool,
}

impl Recorded {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }
}

impl Visit for Recorded {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }
}

static SPANS: Mutex<Vec<Recorded>> = Mutex::new(Vec::new());

thread_local! {
    static ENTERED: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

struct Collector;

/// Collects the spans of this process from now on.
pub(crate) fn collect() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing::subscriber::set_global_default(Collector).expect("nobody else collects"));
}

/// Returns all spans.
pub(crate) fn all() -> Vec<Recorded> {
    SPANS.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn change<T>(id: &Id, change: impl FnOnce(&mut Recorded) -> T) -> T {
    change_at(index(id), change)
}

fn change_at<T>(at: usize, change: impl FnOnce(&mut Recorded) -> T) -> T {
    change(&mut SPANS.lock().unwrap_or_else(PoisonError::into_inner)[at])
}

fn index(id: &Id) -> usize {
    id.into_u64() as usize - 1
}

impl Subscriber for Collector {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut recorded = Recorded { handles: 1, ..Recorded::default() };
        span.record(&mut recorded);
        let mut spans = SPANS.lock().unwrap_or_else(PoisonError::into_inner);
        spans.push(recorded);
        Id::from_u64(spans.len() as u64)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        change(span, |recorded| values.record(recorded));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Recorded::default();
        event.record(&mut fields);
        if let Some(at) = ENTERED.with_borrow(|entered| entered.last().copied()) {
            let message = fields.field("message").unwrap_or_default().to_owned();
            change_at(at, |recorded| recorded.events.push(message));
        }
    }

    fn enter(&self, span: &Id) {
        ENTERED.with_borrow_mut(|entered| entered.push(index(span)));
    }

    fn exit(&self, _: &Id) {
        ENTERED.with_borrow_mut(|entered| entered.pop());
    }

    fn clone_span(&self, id: &Id) -> Id {
        change(id, |recorded| recorded.handles += 1);
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        change(&id, |recorded| {
            recorded.handles -= 1;
            recorded.is_closed = recorded.handles == 0;
            recorded.is_closed
        })
    }
}
