//! Any cut of any trace gives the same events.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// A frame whose header and payload fit together, or only nearly.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let stream = prop_oneof![8 => (0u32..8).prop_map(|n| 2 * n + 1), 1 => 0u32..20, 1 => any::<u32>()];
    let field = ("[a-z:]{0,9}", "[ -~]{0,20}");
    let fields = vec(field, 0..6).prop_map(|fields| {
        let extra: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        block(&[&GET[..], &extra].concat())
    });
    let trailers = vec(("[a-z]{1,9}", "[!-~]{0,20}"), 0..4).prop_map(|fields| {
        block(&fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect::<Vec<_>>())
    });
    let well_formed = prop_oneof![
        4 => fields.prop_map(|block| (kind::HEADERS, flag::END_HEADERS, block)),
        2 => trailers.prop_map(|block| (kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, block)),
        1 => vec(any::<u8>(), 0..40).prop_map(|block| (kind::HEADERS, 0, block)),
        1 => vec(any::<u8>(), 1..40).prop_map(|block| (kind::CONTINUATION, flag::END_HEADERS, block)),
        4 => (0u8..16, vec(any::<u8>(), 0..300)).prop_map(|(flags, bytes)| (kind::DATA, flags, bytes)),
        1 => vec(any::<u8>(), 0..40).prop_map(|bytes| (kind::PRIORITY_UPDATE, 0, bytes)),
        1 => (0u8..12, any::<u8>(), vec(any::<u8>(), 0..20)),
        1 => vec((0u16..10, 0u32..70_000), 0..4).prop_map(|settings| {
            let bytes = |(id, value): (u16, u32)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
            (kind::SETTINGS, 0, settings.into_iter().flat_map(bytes).collect())
        }),
    ];
    (well_formed, stream).prop_map(|((kind, flags, payload), stream)| {
        let stream = match kind {
            kind::SETTINGS | kind::PRIORITY_UPDATE => 0,
            _ => stream,
        };
        frame(kind, flags, stream, &payload)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn of_any_trace(frames in vec(any_frame(), 0..12), cuts in vec(1usize..200, 1..20), tight: bool) {
        let limits = match tight {
            true => Limits { head_bytes_max: 220, fields_max: 2, ..Limits::default() },
            false => Limits::default(),
        };
        let bytes = [PREFACE, &frame(kind::SETTINGS, 0, 0, b""), &frames.concat()].concat();
        let http = || Http2::server(&Http2Settings::default());
        let whole = talk(http(), &bytes, |_| bytes.len(), &limits);
        prop_assert_eq!(&talk(http(), &bytes, |at| cuts[at % cuts.len()], &limits), &whole);
        prop_assert_eq!(&talk(http(), &bytes, |_| 1, &limits), &whole);
    }

    /// What is no HTTP/2 at all does no harm at either end.
    #[test]
    fn of_noise(noise in vec(any::<u8>(), 0..400), cuts in vec(1usize..50, 1..9)) {
        let limits = Limits::default();
        let bytes = [PREFACE, &frame(kind::SETTINGS, 0, 0, b""), &noise].concat();
        for http in [Http2::server, Http2::client] {
            let http = || http(&Http2Settings::default());
            for bytes in [&bytes[..], &bytes[PREFACE.len()..], &noise] {
                let whole = talk(http(), bytes, |_| bytes.len(), &limits);
                prop_assert_eq!(&talk(http(), bytes, |at| cuts[at % cuts.len()], &limits), &whole);
            }
        }
    }
}
