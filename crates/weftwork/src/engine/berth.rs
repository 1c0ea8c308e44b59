//! Where does one thread sleep until it is given work?

use std::sync::Arc;
use std::time::Duration;

use super::sync::{Condvar, Mutex, lock};

/// Where one thread sleeps.
pub(super) struct Berth<J> {
    order: Mutex<Order<J>>,
    changed: Condvar,
}

pub(super) enum Order<J> {
    None,
    Job(J),
    Leave,
}

impl<J> Berth<J> {
    pub(super) fn new() -> Arc<Berth<J>> {
        Arc::new(Berth { order: Mutex::new(Order::None), changed: Condvar::new() })
    }

    /// Lays down the first work of a thread, before there is one: nobody has to be woken for it.
    pub(super) fn start(&self, job: J) {
        *lock(&self.order) = Order::Job(job);
    }

    pub(super) fn order(&self, order: Order<J>) {
        *lock(&self.order) = order;
        self.changed.notify_one();
    }

    /// The first work, once.
    pub(super) fn first(&self) -> Option<J> {
        match std::mem::replace(&mut *lock(&self.order), Order::None) {
            Order::Job(job) => Some(job),
            Order::Leave | Order::None => None,
        }
    }

    /// The order that came, or none after `patience`.
    #[cfg(not(loom))]
    pub(super) fn sleep(&self, patience: Duration) -> Order<J> {
        let order = lock(&self.order);
        let waited = self.changed.wait_timeout_while(order, patience, |order| matches!(order, Order::None));
        let mut order = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        std::mem::replace(&mut *order, Order::None)
    }

    /// loom has no clock: the model waits until there is an order.
    #[cfg(loom)]
    pub(super) fn sleep(&self, _: Duration) -> Order<J> {
        let mut order = lock(&self.order);
        while matches!(*order, Order::None) {
            order = self.changed.wait(order).unwrap();
        }
        std::mem::replace(&mut *order, Order::None)
    }
}
