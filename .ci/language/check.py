#!/usr/bin/env python3
"""Finds words that fxgraph does not use in documents, comments and messages (words.txt) and in identifiers of Rust code
(identifiers.txt).

Usage: .ci/language/check.py [PATH...]    all files that Git tracks without PATH
"""

import fnmatch
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SUFFIXES = {".md", ".rs", ".js", ".html", ".css", ".yaml", ".yml", ".cu", ".cuh", ".py", ".sh", ".toml", ".txt"}
SKIPPED = ["CHANGELOG.md", "web/ui/vendor/*", "*/snapshots/*", ".ci/language/*", "Cargo.lock", "fuzz/corpus/*", "benches/results/*.txt"]

# A comment or a string, whichever begins first.
RUST = re.compile(
    r'(?P<comment>//[^\n]*|/\*.*?\*/)|b?r(?P<raw>#*)"(?P<rawtext>.*?)"(?P=raw)|"(?P<text>(?:\\.|[^"\\])*)"|\'(?:\\.|[^\'\\])\'',
    re.S,
)
JAVASCRIPT = re.compile(
    r'(?P<comment>(?<![:\w])//[^\n]*|/\*.*?\*/)|`(?P<text>(?:\\.|[^`\\])*)`'
    r'|"(?P<text2>(?:\\.|[^"\\\n])*)"|\'(?P<text3>(?:\\.|[^\'\\\n])*)\'',
    re.S,
)
HASH = re.compile(r'(?P<comment>(?:^|(?<=\s))#[^\n]*)|"(?P<text>(?:\\.|[^"\\])*)"', re.S)
CODE = re.compile(r"`[^`\n]*`|\{[^{}\n]*\}|https?://\S+|\[[^\]\n]*\]\([^)\n]*\)|<[a-z/][^>\n]*>")
LINK = re.compile(r"\[([^\]\n]*)\]\([^)\n]*\)")


def patterns(file):
    for number, line in enumerate((HERE / file).read_text().splitlines(), 1):
        if line and not line.startswith("#"):
            pattern, arrow, instead = line.partition(" -> ")
            if not arrow:
                sys.exit(f"{file}:{number}: no ` -> `")
            yield pattern, re.compile(rf"\b(?:{pattern})\b", re.I), instead


def exceptions():
    for line in (HERE / "exceptions.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            glob, pattern, reason = (part.strip() for part in line.split(" | "))
            yield glob, pattern, reason


def masked(text):
    """`text` with code replaced by spaces, so that places stay."""
    text = LINK.sub(lambda m: m[1].rjust(len(m[0])), text)
    return CODE.sub(lambda m: "".join("\n" if c == "\n" else " " for c in m[0]), text)


def texts(path, content):
    """Pairs of offset and text: what people read in this file."""
    if path.suffix == ".md":
        fenced = re.sub(r"^( *)(```|~~~).*?^\1\2[^\n]*$", lambda m: re.sub(r"[^\n]", " ", m[0]), content, flags=re.S | re.M)
        yield 0, fenced
        return
    if path.suffix == ".html":
        yield 0, re.sub(r"<(script|style).*?</\1>", lambda m: re.sub(r"[^\n]", " ", m[0]), content, flags=re.S)
        return
    tokens = RUST if path.suffix in {".rs", ".cu", ".cuh"} else JAVASCRIPT if path.suffix in {".js", ".css"} else HASH
    for token in tokens.finditer(content):
        yield token.start(), token[0]


def identifiers(content):
    """Pairs of offset and words of each identifier in Rust code."""
    code = RUST.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), content)
    for name in re.finditer(r"[A-Za-z_]\w*", code):
        yield name.start(), re.sub(r"_|(?<=[a-z0-9])(?=[A-Z])", " ", name[0])


def main():
    given = sys.argv[1:]
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "--", *given], cwd=ROOT if not given else None,
        capture_output=True, text=True, check=True,
    ).stdout.splitlines()
    base = ROOT if not given else Path.cwd()
    of_texts, of_names, allowed = list(patterns("words.txt")), list(patterns("identifiers.txt")), list(exceptions())
    used, found = set(), 0
    for name in listed:
        path = base / name
        relative = path.resolve().relative_to(ROOT).as_posix()
        if path.suffix not in SUFFIXES or any(fnmatch.fnmatch(relative, skip) for skip in SKIPPED):
            continue
        if not path.is_file():
            continue
        content = path.read_text(errors="replace")
        found_in = [(offset, masked(text), of_texts) for offset, text in texts(path, content)]
        if path.suffix == ".rs":
            found_in += [(offset, words, of_names) for offset, words in identifiers(content)]
        for offset, text, rules in found_in:
            for pattern, expression, instead in rules:
                for match in expression.finditer(text):
                    reasons = [e for e in allowed if e[1] == pattern and fnmatch.fnmatch(relative, e[0])]
                    if reasons:
                        used.update(reasons)
                        continue
                    line = content.count("\n", 0, offset + match.start()) + 1
                    print(f"{relative}:{line}: `{match[0]}`: {instead}")
                    found += 1
    unused = [e for e in allowed if e not in used] if not given else []
    for glob, pattern, _ in unused:
        print(f"exceptions.txt: nothing needs `{pattern}` in {glob}")
    if found or unused:
        print(f"{found} places")
        sys.exit(1)


main()
