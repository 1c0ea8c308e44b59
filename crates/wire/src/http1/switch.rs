//! Writes what comes before the final response or replaces it: interim responses, upgrades and tunnels.

use http::{HeaderName, HeaderValue, StatusCode};

use crate::date::Date;
use crate::encode::{self, ResponseHead};
use crate::error::Misuse;
use crate::head::{Head, Version};
use crate::segment;
use crate::state::{Reading, WriteEvent};

use super::Http1;

impl Http1 {
    /// Appends an interim response: any 1xx except 101, which [`write_switch`](Http1::write_switch) writes. Nothing
    /// is written for an HTTP/1.0 client (RFC 9110 §15.2).
    ///
    /// # Errors
    /// [`Misuse::StatusNotAllowed`] for other statuses. [`Misuse::InterimWithoutRequest`] without a request in
    /// progress. Fields that frame a message. Out of turn, once the final head is written.
    pub fn write_interim(
        &mut self,
        status: StatusCode,
        fields: &[(HeaderName, HeaderValue)],
        out: &mut Vec<u8>,
    ) -> Result<(), Misuse> {
        let writing = self.writing.next(WriteEvent::Interim)?;
        if !matches!(self.reading, Reading::Body | Reading::Whole) {
            return Err(Misuse::InterimWithoutRequest);
        }
        encode::interim(status, fields)?;
        self.writing = writing;
        match self.request.version {
            Version::Http10 => return Ok(()),
            Version::Http11 => encode::write_interim(status, fields, out),
            Version::Http2 => {
                segment::write_interim(out, |out| encode::write_interim_block(status, fields, out))
            }
        }
        self.request.expects_continue &= status != StatusCode::CONTINUE;
        Ok(())
    }

    /// Appends 101. After it, the connection uses the protocol that the response names in `Upgrade`. `request_head`
    /// is the head of the request, as it was read from `bytes`.
    ///
    /// # Errors
    /// [`Misuse::StatusNotAllowed`] for another status. [`Misuse::UpgradeNotPossible`] if the request does not name
    /// that protocol (RFC 9110 §7.8), or its body is unread. Nothing is written then, and another head may be tried.
    pub fn write_switch(
        &mut self,
        head: &ResponseHead<'_>,
        request_head: &Head,
        bytes: &[u8],
        date: &Date,
        out: &mut Vec<u8>,
    ) -> Result<(), Misuse> {
        if head.status != StatusCode::SWITCHING_PROTOCOLS {
            return Err(Misuse::StatusNotAllowed);
        }
        let can_switch = self.request.wants_upgrade && encode::is_requested(head.fields, request_head, bytes);
        self.write_any_head(head, can_switch, date, out)
    }
}
