#!/usr/bin/env python3
"""Functions of Python's standard library and what their docstrings say of them: functions.py COUNT

Prints one line of JSON, as `cargo xtask eval retrieval` reads it: segments are functions without their docstrings, in the order in which
they stand, each module a session; queries are the first sentences of the docstrings, and answered by every function that begins with one.

Whole modules are taken, in an order that is mixed but always the same, until there are COUNT functions."""
import ast, hashlib, itertools, json, pathlib, sys, sysconfig, textwrap

LEFT_OUT = {"test", "tests", "idlelib", "lib2to3", "site-packages", "turtledemo", "ensurepip", "__pycache__"}
WORDS_MIN = 4


def functions(node):
    """Those of a module and of its classes; not those inside of others."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield child
        elif isinstance(child, ast.ClassDef):
            yield from functions(child)


def first_sentence(text):
    paragraph = " ".join(text.strip().split("\n\n")[0].split())
    return paragraph.split(". ")[0].rstrip(".")


def read(path):
    """Text and first sentence of every function that has one."""
    source = path.read_text(encoding="utf-8", errors="replace")
    lines = source.split("\n")
    for node in functions(ast.parse(source)):
        sentence = first_sentence(ast.get_docstring(node) or "")
        doc = node.body[0]
        # Code on the lines of a docstring would go with it.
        if len(sentence.split()) < WORDS_MIN or doc.lineno == node.lineno or len(node.body) == 1:
            continue
        kept = lines[node.lineno - 1 : doc.lineno - 1] + lines[doc.end_lineno : node.end_lineno]
        yield textwrap.dedent("\n".join(kept)), sentence


def main(count):
    library = pathlib.Path(sysconfig.get_paths()["stdlib"])
    names = [path.relative_to(library) for path in library.rglob("*.py")]
    names = [name for name in names if not LEFT_OUT & set(name.parts)]
    names.sort(key=lambda name: hashlib.sha256(name.as_posix().encode()).digest())
    found = ((name, text, sentence) for name in names for text, sentence in read(library / name))
    segments, queries = [], {}
    for name, text, sentence in itertools.islice(found, count):
        queries.setdefault(sentence, []).append(str(len(segments)))
        segments.append({"id": str(len(segments)), "session": ".".join(name.with_suffix("").parts), "text": text})
    queries = [{"text": text, "relevant": ids} for text, ids in queries.items()]
    print(json.dumps({"id": "functions", "segments": segments, "queries": queries}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
