"""Python's ssl and http.client against a server over TLS: client.py PORT CA FILES."""

import http.client
import socket
import ssl
import sys
from pathlib import Path

port, ca, files = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
REQUEST = b"GET /%s HTTP/1.1\r\nHost: localhost\r\nConnection: %s\r\n\r\n"


def context(version):
    made = ssl.create_default_context(cafile=ca)
    made.minimum_version = made.maximum_version = version
    made.set_alpn_protocols(["http/1.1"])
    return made


def connect(made, session=None):
    plain = socket.create_connection(("127.0.0.1", port), timeout=10)
    # An end without close_notify is an error.
    return made.wrap_socket(plain, server_hostname="localhost", suppress_ragged_eofs=False, session=session)


def read_all(stream):
    parts = []
    while part := stream.recv(65536):
        parts.append(part)
    return b"".join(parts)


for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
    made = context(version)
    session = None
    for is_resumed in (False, True):
        with connect(made, session) as stream:
            stream.sendall(REQUEST % (b"1m.bin", b"close"))
            head, _, body = read_all(stream).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 "), head
            assert body == (files / "1m.bin").read_bytes(), len(body)
            assert stream.session_reused == is_resumed, (version, is_resumed)
            assert stream.selected_alpn_protocol() == "http/1.1", stream.selected_alpn_protocol()
            session = stream.session
    # A record for each byte.
    with connect(made) as stream:
        for byte in REQUEST % (b"hello.txt", b"close"):
            stream.sendall(bytes([byte]))
        assert read_all(stream).endswith(b"\r\n\r\nhello\n")
    # Twenty requests at once.
    with connect(made) as stream:
        stream.sendall(REQUEST % (b"hello.txt", b"keep-alive") * 19 + REQUEST % (b"hello.txt", b"close"))
        assert read_all(stream).count(b"HTTP/1.1 200 ") == 20
    # The client ends its side and then reads the answer.
    with connect(made) as stream:
        stream.sendall(REQUEST % (b"hello.txt", b"close"))
        assert read_all(stream).endswith(b"hello\n")
        stream.unwrap()

kept = http.client.HTTPSConnection("localhost", port, context=context(ssl.TLSVersion.TLSv1_3), timeout=10)
for name in ("hello.txt", "1m.bin", "hello.txt"):
    kept.request("GET", f"/{name}")
    answer = kept.getresponse()
    assert answer.status == 200 and answer.read() == (files / name).read_bytes(), name
kept.request("HEAD", "/1m.bin")
answer = kept.getresponse()
assert answer.read() == b"" and answer.headers["content-length"] == "1048576"
