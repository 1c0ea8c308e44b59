"""Calls the example `grpc` with grpcio: python3 grpc_client.py ADDRESS. No code is generated: messages are written by hand."""

import sys
import time
from concurrent.futures import ThreadPoolExecutor

import grpc


def encode(text):
    data, length = text.encode(), []
    size = len(data)
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return b"\x0a" + bytes([*length, size]) + data


def decode(message):
    at = 1
    while message[at] & 0x80:
        at += 1
    return message[at + 1:].decode()


def refused(call):
    """Returns the code and the text of the status with which a call fails."""
    try:
        call()
    except grpc.RpcError as error:
        return error.code(), error.details()
    raise AssertionError("the call has not failed")


def main():
    with grpc.insecure_channel(sys.argv[1], [("grpc.max_receive_message_length", 16 << 20)]) as channel:
        hello = channel.unary_unary("/helloworld.Greeter/SayHello", encode, decode)
        stream = channel.unary_stream("/helloworld.Greeter/SayHelloStreamReply", encode, decode)
        unknown = channel.unary_unary("/helloworld.Greeter/Unknown", encode, decode)
        assert hello("Ada", timeout=10) == "Hello, Ada!"
        assert hello("Zoë", timeout=10, metadata=[("x-other", "field"), ("x-bytes-bin", b"\0\xff")]) == "Hello, Zoë!"
        long = "x" * (1 << 20)
        assert hello(long, timeout=10) == f"Hello, {long}!"
        assert refused(lambda: hello("", timeout=10)) == (grpc.StatusCode.INVALID_ARGUMENT, "a name is needed – any")
        assert refused(lambda: unknown("", timeout=10))[0] == grpc.StatusCode.UNIMPLEMENTED
        with ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(lambda n: hello(str(n), timeout=10), range(500)))
        assert answers == [f"Hello, {n}!" for n in range(500)]
        # All messages of a stream come in order, and each of them at once.
        began = time.monotonic()
        replies = stream("Ada", timeout=60)
        assert [next(replies) for _ in range(3)] == [f"Hello Ada, {n}" for n in (1, 2, 3)]
        assert time.monotonic() - began < 5
        assert len(list(replies)) == 997
        # A caller may cancel, or have too little time.
        replies = stream("Ada", timeout=60)
        next(replies)
        replies.cancel()
        assert refused(lambda: list(replies))[0] == grpc.StatusCode.CANCELLED
        assert refused(lambda: list(stream("Ada", timeout=0.5)))[0] == grpc.StatusCode.DEADLINE_EXCEEDED
        assert hello("again", timeout=10) == "Hello, again!"
    print("grpc: ok")


main()
