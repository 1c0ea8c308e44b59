//! The examples of RFC 7541, appendix C. Each is also cut at every byte.

use super::*;

/// A block, its fields, the dynamic table after it, and the size of the table.
type Sample<'s> = (&'s str, &'s [(&'s str, &'s str)], &'s [(&'s str, &'s str)], usize);

#[track_caller]
fn check(table_bytes_max: u16, samples: &[Sample<'_>]) {
    let mut decoder = Decoder::new(table_bytes_max);
    for &(block, fields, table, size) in samples {
        let block = hex(block);
        for cut in 0..block.len() {
            check_cut(&decoder, &block[..cut], fields);
        }
        assert_eq!(decode(&mut decoder, &block), Ok(texts(fields)));
        assert_eq!(entries(&decoder), texts(table));
        assert_eq!(decoder.table.size(), size);
    }
}

/// The first part of a block is its first fields, or is incomplete.
#[track_caller]
fn check_cut(decoder: &Decoder, block: &[u8], fields: &[(&str, &str)]) {
    match decode(&mut decoder.clone(), block) {
        Ok(first) => assert_eq!(first, texts(&fields[..first.len()])),
        Err(fault) => assert_eq!(fault, HpackFault::Incomplete),
    }
}

#[test]
fn rfc7541_c_2_representations() {
    let custom = &[("custom-key", "custom-header")];
    check(4_096, &[("400a6375 73746f6d 2d6b6579 0d637573 746f6d2d 68656164 6572", custom, custom, 55)]);
    check(4_096, &[("040c2f73 616d706c 652f7061 7468", &[(":path", "/sample/path")], &[], 0)]);
    check(4_096, &[("10087061 7373776f 72640673 65637265 74", &[("password", "secret")], &[], 0)]);
    check(4_096, &[("82", &[(":method", "GET")], &[], 0)]);
}

const GET: (&str, &str) = (":method", "GET");
const HTTP: (&str, &str) = (":scheme", "http");
const ROOT: (&str, &str) = (":path", "/");
const AUTHORITY: (&str, &str) = (":authority", "www.example.com");
const NO_CACHE: (&str, &str) = ("cache-control", "no-cache");
const CUSTOM: (&str, &str) = ("custom-key", "custom-value");

/// Requests of C.3 and C.4.
fn check_requests(blocks: [&str; 3]) {
    let third = [GET, (":scheme", "https"), (":path", "/index.html"), AUTHORITY, CUSTOM];
    check(
        4_096,
        &[
            (blocks[0], &[GET, HTTP, ROOT, AUTHORITY], &[AUTHORITY], 57),
            (blocks[1], &[GET, HTTP, ROOT, AUTHORITY, NO_CACHE], &[NO_CACHE, AUTHORITY], 110),
            (blocks[2], &third, &[CUSTOM, NO_CACHE, AUTHORITY], 164),
        ],
    );
}

#[test]
fn rfc7541_c_3_requests() {
    check_requests([
        "82868441 0f777777 2e657861 6d706c65 2e636f6d",
        "828684be 58086e6f 2d636163 6865",
        "828785bf 400a6375 73746f6d 2d6b6579 0c637573 746f6d2d 76616c75 65",
    ]);
}

#[test]
fn rfc7541_c_4_requests_in_huffman_code() {
    check_requests([
        "82868441 8cf1e3c2 e5f23a6b a0ab90f4 ff",
        "828684be 5886a8eb 10649cbf",
        "828785bf 408825a8 49e95ba9 7d7f8925 a849e95b b8e8b4bf",
    ]);
}

const FOUND: (&str, &str) = (":status", "302");
const REDIRECT: (&str, &str) = (":status", "307");
const PRIVATE: (&str, &str) = ("cache-control", "private");
const DATE_21: (&str, &str) = ("date", "Mon, 21 Oct 2013 20:13:21 GMT");
const DATE_22: (&str, &str) = ("date", "Mon, 21 Oct 2013 20:13:22 GMT");
const LOCATION: (&str, &str) = ("location", "https://www.example.com");
const GZIP: (&str, &str) = ("content-encoding", "gzip");
const COOKIE: (&str, &str) = ("set-cookie", "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1");

/// Responses of C.5 and C.6, with a table of 256 bytes.
fn check_responses(blocks: [&str; 3]) {
    check(
        256,
        &[
            (blocks[0], &[FOUND, PRIVATE, DATE_21, LOCATION], &[LOCATION, DATE_21, PRIVATE, FOUND], 222),
            (
                blocks[1],
                &[REDIRECT, PRIVATE, DATE_21, LOCATION],
                &[REDIRECT, LOCATION, DATE_21, PRIVATE],
                222,
            ),
            (
                blocks[2],
                &[(":status", "200"), PRIVATE, DATE_22, LOCATION, GZIP, COOKIE],
                &[COOKIE, GZIP, DATE_22],
                215,
            ),
        ],
    );
}

#[test]
fn rfc7541_c_5_responses() {
    check_responses([
        "48033330 32580770 72697661 7465611d 4d6f6e2c 20323120 4f637420 32303133 \
         2032303a 31333a32 3120474d 546e1768 74747073 3a2f2f77 77772e65 78616d70 \
         6c652e63 6f6d",
        "48033330 37c1c0bf",
        "88c1611d 4d6f6e2c 20323120 4f637420 32303133 2032303a 31333a32 3220474d \
         54c05a04 677a6970 7738666f 6f3d4153 444a4b48 514b425a 584f5157 454f5049 \
         55415851 57454f49 553b206d 61782d61 67653d33 3630303b 20766572 73696f6e \
         3d31",
    ]);
}

#[test]
fn rfc7541_c_6_responses_in_huffman_code() {
    check_responses([
        "48826402 5885aec3 771a4b61 96d07abe 941054d4 44a82005 95040b81 66e082a6 \
         2d1bff6e 919d29ad 171863c7 8f0b97c8 e9ae82ae 43d3",
        "4883640e ffc1c0bf",
        "88c16196 d07abe94 1054d444 a8200595 040b8166 e084a62d 1bffc05a 839bd9ab \
         77ad94e7 821dd7f2 e6c7b335 dfdfcd5b 3960d5af 27087f36 72c1ab27 0fb5291f \
         95873160 65c003ed 4ee5b106 3d5007",
    ]);
}

#[test]
fn rfc7541_a_every_entry_of_the_static_table() {
    assert_eq!(ENTRIES.len(), 62);
    for index in 1..=61 {
        let entry = &ENTRIES[usize::from(index)];
        let want = (crate::testing::text(entry.name()), crate::testing::text(entry.value()));
        assert_eq!(decode(&mut Decoder::new(4_096), &[0x80 | index]), Ok(vec![want]));
    }
    for (index, field) in
        [(1, (":authority", "")), (16, ("accept-encoding", "gzip, deflate")), (61, ("www-authenticate", ""))]
    {
        assert_eq!(decode(&mut Decoder::new(4_096), &[0x80 | index]), Ok(texts(&[field])));
    }
    for &(index, name) in index::ALL {
        assert_eq!(static_table::name_index(name.as_bytes()), index);
    }
}
