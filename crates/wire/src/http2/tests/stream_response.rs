//! Writes the response of one stream, and puts its segments into frames as a connection does whose windows are large.

use http::Method;

use super::*;
use crate::head::Version;
use crate::{Http1, Segment};

pub(super) struct StreamResponse {
    pub(super) http: Http1,
    stream: u32,
    segments: Vec<u8>,
}

impl StreamResponse {
    pub(super) fn new(stream: u32, method: Method) -> StreamResponse {
        StreamResponse::of(stream, &Head { method, version: Version::Http2, ..Head::default() })
    }

    pub(super) fn of(stream: u32, head: &Head) -> StreamResponse {
        let mut http = Http1::default();
        http.begin_stream(head);
        StreamResponse { http, stream, segments: Vec::new() }
    }

    /// Writes a part of the response.
    pub(super) fn write<T>(&mut self, write: impl FnOnce(&mut Http1, &mut Vec<u8>) -> T) -> T {
        write(&mut self.http, &mut self.segments)
    }

    /// Returns the frames of the parts that were written since the last call.
    pub(super) fn frames(&mut self) -> Vec<u8> {
        let (mut out, segments) = (Vec::new(), std::mem::take(&mut self.segments));
        let mut rest = &segments[..];
        while !rest.is_empty() {
            let (header, segment) = Segment::read(rest).expect("a header is written at once");
            rest = &rest[header..];
            let mut take = |len: usize| {
                let (taken, behind) = rest.split_at(len.min(rest.len()));
                rest = behind;
                taken
            };
            match segment {
                Segment::Interim(len) => Http2::write_block(self.stream, take(len), false, false, &mut out),
                Segment::Head { len, .. } => {
                    let block = take(len);
                    let ends = matches!(Segment::read(rest), Some((_, Segment::End)));
                    if ends {
                        rest = &rest[header..];
                    }
                    Http2::write_block(self.stream, block, false, ends, &mut out);
                }
                Segment::Body { len, ends } => {
                    Http2::write_data(self.stream, take(len as usize), ends, &mut out)
                }
                Segment::Trailers(len) => Http2::write_block(self.stream, take(len), false, true, &mut out),
                Segment::End => Http2::write_data(self.stream, b"", true, &mut out),
                Segment::Tunnel => Http2::write_data(self.stream, take(usize::MAX), false, &mut out),
            }
        }
        out
    }
}
