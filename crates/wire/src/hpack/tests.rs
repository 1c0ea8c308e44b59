use super::*;

#[test]
fn skeleton() {
    let mut d = Decoder::new(4096);
    let mut text = Vec::new();
    let mut fields = Vec::new();
    let b = b"\x82\x86\x84\x41\x0fwww.example.com";
    let b2 = b"\x82\x86\x84\xbe\x58\x08no-cache";
    for b in [&b[..], &b2[..]] {
        d.decode(b, 1000, &mut text, |t, f| {
            fields.push(format!(
                "{}: {}",
                String::from_utf8_lossy(f.name.of(t)),
                String::from_utf8_lossy(f.value.of(t))
            ))
        })
        .unwrap();
    }
    assert_eq!(
        fields.join("\n"),
        ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com\n:method: GET\n:scheme: http\n:path: /\n:authority: www.example.com\ncache-control: no-cache"
    );
}
