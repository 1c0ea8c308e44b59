//! The connection as its request and the writer of its response see it.

use std::any::Any;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::{Duration, Instant};

use http::{HeaderName, HeaderValue, StatusCode};
use weftwork_wire::Head;

use super::{ConnExchange, log_client};
use crate::conn::Phase;
use crate::message::body::Quota;
use crate::message::client::Source;
use crate::message::exchange::{ConnValue, Exchange};
use crate::message::observer::{Arrival, ResponseObserver};
use crate::message::{BodyError, OwnedBody, WaitError};
use crate::transport::context::Stage;

impl Exchange for ConnExchange<'_> {
    fn head(&self) -> (&Head, &[u8]) {
        match self.conn.buffers.as_deref() {
            Some(buffers) => (&buffers.head, buffers.unread()),
            None => unreachable!("a request in progress holds the buffers its head is in"),
        }
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        self.conn.peer
    }

    #[cfg(feature = "_tls")]
    fn tls(&self) -> Option<&crate::TlsInfo> {
        self.conn.tls_info()
    }

    fn source(&self) -> Source<'_> {
        self.conn.source_of_requests(&self.cx.settings)
    }

    fn now(&self) -> Instant {
        self.wait.moment()
    }

    fn deadline(&self) -> Option<Instant> {
        let timeout = self.cx.settings.request_timeout;
        if timeout.is_zero() { None } else { self.cx.clock.moment(self.received.after(timeout)) }
    }

    fn client_gone(&self) -> bool {
        if self.conn.is_stream() {
            self.wait.exchange_frames();
        }
        self.has_left() || self.cx.stage() == Stage::Closing
    }

    fn wait_for(
        &self,
        future: Pin<&mut dyn Future<Output = ()>>,
        deadline: Option<Instant>,
    ) -> Result<(), WaitError> {
        self.wait_for_future(future, deadline)
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        self.conn.stream.local_addr()
    }

    fn fill(&mut self) -> Result<&[u8], BodyError> {
        self.gather_payload(None)?;
        let buffers = self.conn.buffers_mut();
        Ok(&buffers.input[buffers.payload.clone()])
    }

    fn fills_within(&mut self, timeout: Duration) -> Result<bool, BodyError> {
        self.gather_payload(Some(self.wait.now().after(timeout)))
    }

    fn take_into(&mut self, into: &mut Vec<u8>) -> Result<usize, BodyError> {
        self.take_payload(into)
    }

    fn consume(&mut self, count: usize) {
        let payload = &mut self.conn.buffers_mut().payload;
        payload.start = (payload.start + count).min(payload.end);
    }

    fn take_body(&mut self) -> OwnedBody {
        self.take_owned_body()
    }

    fn body_left(&self) -> Option<u64> {
        let buffered = self.conn.buffers.as_deref().map_or(0, |buffers| buffers.payload.len() as u64);
        self.conn.http.body_left().map(|left| left + buffered)
    }

    fn body_is_here(&self) -> bool {
        self.conn.is_request_here()
    }

    fn quota(&self) -> &Quota {
        &self.quota
    }

    fn quota_mut(&mut self) -> &mut Quota {
        &mut self.quota
    }

    fn trailers(&self) -> &[(HeaderName, HeaderValue)] {
        self.conn.http.trailers()
    }

    fn interim(&mut self, status: StatusCode, fields: &[(HeaderName, HeaderValue)]) -> io::Result<()> {
        self.check_client()?;
        let conn = &mut *self.conn;
        let output = &mut conn.buffers.get_or_insert_default().output;
        conn.http.write_interim(status, fields, output).map_err(io::Error::other)?;
        self.push_all()
    }

    fn write(&mut self, data: &[u8]) -> io::Result<()> {
        self.write_part(data)
    }

    fn send_trailers(&mut self, fields: &[(HeaderName, HeaderValue)]) -> io::Result<bool> {
        self.take_trailers(fields)
    }

    fn status_of_panic(&self, panic: &(dyn Any + Send)) -> Option<StatusCode> {
        let is_overload = self.wait.is_overload(panic);
        let status =
            if is_overload { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::INTERNAL_SERVER_ERROR };
        (!self.wait.is_cancelled(panic)).then_some(status)
    }

    fn has_begun(&self) -> bool {
        let is_pending = self.streamed.as_ref().is_some_and(|streamed| streamed.pending.is_some());
        self.conn.phase == Phase::Done || !is_pending
    }

    fn flush(&mut self) -> io::Result<()> {
        self.start_and_push()
    }

    fn pause(&mut self, timeout: Duration) -> io::Result<bool> {
        self.pause_for(timeout)
    }

    fn arrival(&self) -> Arrival {
        self.conn.arrival(self.received, self.cx)
    }

    fn observe(&mut self, observer: Box<dyn ResponseObserver>) {
        self.conn.observe(observer, self.cx);
    }

    fn heartbeat(&self) -> Duration {
        self.cx.settings.heartbeat
    }

    fn is_stopping(&self) -> bool {
        self.cx.is_stopping()
    }

    fn identify(&mut self, id: &str) {
        self.id = Some(id.into());
    }

    fn conn_value(&mut self) -> &mut ConnValue {
        &mut self.conn.value
    }

    fn log_client(&self, line: fmt::Arguments<'_>) {
        log_client(self.cx, line);
    }
}
