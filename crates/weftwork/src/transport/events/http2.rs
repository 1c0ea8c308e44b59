//! Labels of the events of HTTP/2.

use weftwork_wire::{ErrorCode, Frame, Http2Fault, Violation};

use super::Label;

labels! {
    /// Code of a reset (RFC 9113 section 7).
    ResetCode "code" {
        /// The stream is over, and nothing went wrong.
        NoError "no_error",
        /// A rule was broken.
        ProtocolError "protocol_error",
        /// The side that resets has failed.
        InternalError "internal_error",
        /// More was sent than the window allows.
        FlowControlError "flow_control_error",
        /// SETTINGS were not acknowledged.
        SettingsTimeout "settings_timeout",
        /// A frame came after the end of its stream.
        StreamClosed "stream_closed",
        /// A frame has a length that its type does not allow.
        FrameSizeError "frame_size_error",
        /// The request was not begun.
        RefusedStream "refused_stream",
        /// The response is not wanted any more.
        Cancel "cancel",
        /// Fields cannot be decompressed.
        CompressionError "compression_error",
        /// The connection of a CONNECT has failed.
        ConnectError "connect_error",
        /// The client makes too much work.
        EnhanceYourCalm "enhance_your_calm",
        /// The TLS session is too weak.
        InadequateSecurity "inadequate_security",
        /// HTTP/1.1 is needed.
        Http11Required "http_1_1_required",
        /// A code that RFC 9113 does not define.
        Unknown "unknown",
    }
}

impl From<ErrorCode> for ResetCode {
    fn from(code: ErrorCode) -> ResetCode {
        let known = usize::try_from(code.0).ok().and_then(|code| ResetCode::ALL.get(code));
        known.copied().unwrap_or(ResetCode::Unknown)
    }
}

labels! {
    /// Why the server ends a connection of HTTP/2.
    GoawayReason "reason" {
        /// The server stops.
        Stop "stop",
        /// The connection has reached `age_max`.
        Age "age",
        /// A response asked for it: `Response::with_close`.
        Close "close",
        /// No request came for `idle_timeout`.
        Idle "idle",
        /// The client was too slow with a frame, or has not answered PING.
        Timeout "timeout",
        /// Too many frames led to no response.
        BudgetSpent "budget_spent",
        /// A field block came in too many CONTINUATION frames, or in empty ones.
        Continuations "continuations",
        /// A field block was far larger than `head_bytes_max`.
        BlockTooLarge "block_too_large",
        /// A SETTINGS frame had too many settings.
        SettingsTooMany "settings_too_many",
        /// A rule was broken, with this code.
        ProtocolError "protocol_error",
        /// More was sent than a window allows.
        FlowControlError "flow_control_error",
        /// A frame came after the end of its stream.
        StreamClosed "stream_closed",
        /// A frame had a length that its type does not allow.
        FrameSizeError "frame_size_error",
        /// Fields could not be decompressed.
        CompressionError "compression_error",
    }
}

impl From<&Http2Fault> for GoawayReason {
    fn from(fault: &Http2Fault) -> GoawayReason {
        match (fault.violation, fault.code()) {
            (Violation::ContinuationEmpty | Violation::ContinuationsTooMany, _) => {
                GoawayReason::Continuations
            }
            (Violation::BlockTooLarge, _) => GoawayReason::BlockTooLarge,
            (Violation::SettingsTooMany, _) => GoawayReason::SettingsTooMany,
            (_, ErrorCode::ENHANCE_YOUR_CALM) => GoawayReason::BudgetSpent,
            (_, ErrorCode::FLOW_CONTROL_ERROR) => GoawayReason::FlowControlError,
            (_, ErrorCode::STREAM_CLOSED) => GoawayReason::StreamClosed,
            (_, ErrorCode::FRAME_SIZE_ERROR) => GoawayReason::FrameSizeError,
            (_, ErrorCode::COMPRESSION_ERROR) => GoawayReason::CompressionError,
            _ => GoawayReason::ProtocolError,
        }
    }
}

labels! {
    /// A frame that costs points, because it leads to no response.
    CostlyFrame "kind" {
        /// RST_STREAM.
        Reset "rst_stream",
        /// A frame that makes the server reset its stream.
        Fault "stream_error",
        /// A request past `http2_streams_max`.
        Refused "refused_stream",
        /// DATA for a stream that is over.
        LateData "late_data",
        /// DATA without content that does not end its stream.
        EmptyData "empty_data",
        /// Trailers.
        Trailers "trailers",
        /// SETTINGS, or its acknowledgement.
        Settings "settings",
        /// PING, or its acknowledgement.
        Ping "ping",
        /// WINDOW_UPDATE with a small increment.
        Window "window_update",
        /// PRIORITY_UPDATE.
        Priority "priority_update",
        /// GOAWAY.
        GoAway "goaway",
        /// PRIORITY, or a frame of unknown type.
        Other "other",
    }
}

impl From<&Frame> for CostlyFrame {
    fn from(frame: &Frame) -> CostlyFrame {
        match frame {
            Frame::Reset { .. } => CostlyFrame::Reset,
            Frame::StreamError { .. } => CostlyFrame::Fault,
            Frame::Data { .. } => CostlyFrame::EmptyData,
            Frame::Trailers { .. } => CostlyFrame::Trailers,
            Frame::Settings { .. } | Frame::SettingsAcked => CostlyFrame::Settings,
            Frame::Ping(_) | Frame::PingAcked(_) => CostlyFrame::Ping,
            Frame::Window { .. } => CostlyFrame::Window,
            Frame::Priority { .. } => CostlyFrame::Priority,
            Frame::GoAway { .. } => CostlyFrame::GoAway,
            _ => CostlyFrame::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    //! Tests that each label is what the RFC or the code calls it.

    use super::*;

    #[test]
    fn codes_have_the_names_of_the_rfc() {
        for code in 0..14 {
            let name = ErrorCode(code).name().unwrap().to_lowercase();
            assert_eq!(ResetCode::from(ErrorCode(code)).name(), name);
        }
        assert_eq!(ResetCode::from(ErrorCode(14)), ResetCode::Unknown);
        assert_eq!(ResetCode::from(ErrorCode(u32::MAX)), ResetCode::Unknown);
    }

    #[test]
    fn each_fault_of_a_connection_has_its_reason() {
        for violation in Violation::ALL {
            let reason = GoawayReason::from(&Http2Fault::connection(*violation));
            let code = violation.code().name().unwrap().to_lowercase();
            let is_abuse = violation.code() == ErrorCode::ENHANCE_YOUR_CALM;
            // Two codes of streams, which end no connection.
            let is_of_stream = ["refused_stream", "no_error"].contains(&code.as_str());
            assert!(is_abuse || is_of_stream || reason.name() == code, "{violation:?}: {reason:?}");
        }
    }
}
