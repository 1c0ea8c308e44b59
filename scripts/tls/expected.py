"""Compares findings (lines of an id, a tab, and words) with a list of expected ones: an id and the reason."""

import sys

expected = dict(line.strip().split(" ", 1) for line in open(sys.argv[1]) if line.strip() and not line.startswith("#"))
found = [line.rstrip("\n").split("\t", 1) for line in sys.stdin if line.strip()]
for name, words in found:
    print("expected " if name in expected else "UNEXPECTED", name, words.replace("\t", " "), "--", expected.get(name, "no reason is known"))
for name in expected.keys() - {name for name, _ in found}:
    print("no longer found:", name)
sys.exit(any(name not in expected for name, _ in found))
