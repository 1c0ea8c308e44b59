"""Calls the service of the tests with grpcio: python3 grpcio_client.py ADDRESS. Messages are written by hand."""

import queue
import sys

import grpc


def encode(text):
    data, length = text.encode(), []
    size = len(data)
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return b"\x0a" + bytes([*length, size]) + data


def decode(message):
    if not message:
        return ""
    at = 1
    while message[at] & 0x80:
        at += 1
    return message[at + 1:].decode()


def main():
    with grpc.insecure_channel(sys.argv[1]) as channel:
        path = "/weftwork.interop.Echo/"
        unary = channel.unary_unary(path + "Unary", encode, decode)
        server_stream = channel.unary_stream(path + "ServerStream", encode, decode)
        client_stream = channel.stream_unary(path + "ClientStream", encode, decode)
        both_stream = channel.stream_stream(path + "BothStream", encode, decode)
        assert unary("Zoë", timeout=20) == "Zoë"
        assert unary("x" * 300_000, timeout=20) == "x" * 300_000
        try:
            unary("", timeout=20)
            raise AssertionError("an empty text is refused")
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.INVALID_ARGUMENT, error
            assert error.details() == "a text is needed", error
        assert list(server_stream("100", timeout=20)) == [str(number) for number in range(100)]
        assert client_stream(iter(["a", "b", "c"]), timeout=20) == "abc"
        # Each text is sent after the reply to the one before.
        texts = queue.Queue()
        replies = both_stream(iter(texts.get, None), timeout=20)
        for number in range(20):
            texts.put(str(number))
            assert next(replies) == str(number)
        texts.put(None)
        assert list(replies) == []


main()
