"""Which file of a crate imports which, read from the sources: `Crate(root file)`, then `imports` and `circles`.

An import is a `use` or a path in the code, such as `child::function()`. It counts for the file that defines the item:
`pub use` is followed, and is itself no import unless its file uses the name. A path that ends at a module is no
import, nor is `mod x;`. Items under `#[cfg(test)]` and files that only they declare are left out.
"""

import collections
import dataclasses
import pathlib
import re

TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/)
    | (?P<text>[bc]?r(?P<hashes>\#*)".*?"(?P=hashes) | [bc]?"(?:[^"\\]|\\.)*")
    | (?P<char>b?'(?:[^'\\]|\\.[^']*)' | '[A-Za-z_]\w*)
    | (?P<word>(?:r\#)?[A-Za-z_]\w*) | \d\w* | :: | .""",
    re.S | re.X,
)
WORD = re.compile(r"[A-Za-z_]\w*$")
# Where a name leads that is imported from another crate.
OUTSIDE = pathlib.Path("/")
OPEN, CLOSE = {"{", "(", "["}, {"}", ")", "]"}
# Words that begin an item; the name of the item follows.
ITEMS = {"fn", "struct", "enum", "union", "trait", "type", "const", "static", "macro_rules"}
# Words that end with a semicolon although braces may come before it.
SEMICOLON = {"use", "const", "static", "type", "let", "extern"}


def tokens(text):
    """Words, signs and strings of Rust, each with its line. Comments and characters are left out."""
    line = 1
    for match in TOKEN.finditer(text):
        if match["skip"] is None and match["char"] is None:
            yield (match["word"] or match[0]).removeprefix("r#"), line
        line += match[0].count("\n")


def group(found, at):
    """The index after the bracket that closes the one at `at`."""
    depth = 0
    while at < len(found):
        depth += (found[at][0] in OPEN) - (found[at][0] in CLOSE)
        at += 1
        if depth == 0:
            break
    return at


def item_end(found, at):
    """The index after the item, field, arm or statement that begins at `at`."""
    while found[at][0] == "#":
        at = group(found, at + 1)
    if found[at][0] == "pub":
        at += 1
        at = group(found, at) if found[at][0] == "(" else at
    # A `const fn` ends with its body.
    until_semicolon = found[at][0] in SEMICOLON and found[at + 1][0] not in ("fn", "unsafe", "async")
    is_field = found[at + 1][0] in (":", ",", "=", "::") or not WORD.match(found[at][0])
    angles = 0
    while at < len(found) and found[at][0] not in CLOSE:
        word = found[at][0]
        angles += (word == "<") - (word == ">" and found[at - 1][0] not in ("-", "="))
        at = group(found, at) if word in OPEN else at + 1
        if word == ";" or (word == "," and is_field and angles <= 0) or (word == "{" and not until_semicolon):
            break
    return at


def is_test(attribute):
    """Whether an attribute leaves its item out of production code."""
    words = " ".join(word for word, _ in attribute)
    return re.search(r"\bcfg \( (all \( (.* , )?)?test\b", words) is not None


def production(text):
    """The tokens outside tests, and the number of lines that only tests have."""
    found, kept, at, left_out = list(tokens(text)), [], 0, 0
    while at < len(found):
        if found[at][0] == "#":
            inner = at + 1 < len(found) and found[at + 1][0] == "!"
            end = group(found, at + 1 + inner)
            if is_test(found[at:end]):
                if inner:
                    return [], text.count("\n")
                end = item_end(found, end)
                left_out += found[end - 1][1] - found[at][1] + 1
                at = end
                continue
            kept += found[at:end]
            at = end
            continue
        kept.append(found[at])
        at += 1
    return kept, left_out


@dataclasses.dataclass
class Module:
    """A module of a crate, and what its file says about names."""

    file: pathlib.Path
    parent: "Module | None" = None
    children: dict = dataclasses.field(default_factory=dict)
    items: set = dataclasses.field(default_factory=set)
    # Name → path, and paths of globs.
    imports: dict = dataclasses.field(default_factory=dict)
    globs: list = dataclasses.field(default_factory=list)
    # Words in macros at the level of items: one of them may be the name of an item.
    macro_words: set = dataclasses.field(default_factory=set)
    # (path, line, whether it is a `use`), and all single words.
    paths: list = dataclasses.field(default_factory=list)
    words: dict = dataclasses.field(default_factory=dict)
    # (path, name, line) of `pub use`.
    exports: list = dataclasses.field(default_factory=list)

    def root(self):
        return self.parent.root() if self.parent else self


def use_tree(found, at, prefix=()):
    """Reads what follows `use`: yields (path, name or None for a glob, line); returns the index after it."""
    path, line = list(prefix), found[at][1]
    while True:
        word, line = found[at]
        if word == "{":
            at += 1
            while found[at][0] != "}":
                at = yield from use_tree(found, at, tuple(path))
                at += found[at][0] == ","
            return at + 1
        if word == "*":
            yield tuple(path), None, line
            return at + 1
        if word != "::":
            path += [word]
        elif not path:
            # `::name` is a crate.
            path += ["::"]
        at += 1
        if found[at][0] not in ("::", "{", "*") and word != "::":
            break
    if path[-1] == "self" and len(path) > 1:
        path.pop()
    name = path[-1]
    if found[at][0] == "as":
        name, at = found[at + 1][0], at + 2
    yield tuple(path), name, line
    return at


class Crate:
    """The modules of one target, from its root file."""

    def __init__(self, root_file):
        self.modules, self.lines, self.files = [], 0, set()
        self.load(root_file, root_file.parent, None)

    def load(self, file, folder, parent):
        text = file.read_text()
        found, left_out = production(text)
        if not found and left_out:
            return None
        self.files.add(file)
        self.lines += text.count("\n") - left_out
        return self.read(Module(file, parent), found, folder)

    def read(self, module, found, folder):
        """Reads the items between `found`'s braces, at any depth: a `use` in a function counts for its module."""
        self.modules.append(module)
        at, depth = 0, 0
        while at < len(found):
            word, line = found[at]
            following = found[at + 1][0] if at + 1 < len(found) else ""
            if word == "use" and following != "<":
                at = self.read_use(module, found, at + 1)
            elif word == "mod" and depth == 0 and WORD.match(following):
                at = self.read_module(module, found, at + 1, folder)
            elif following == "!" and depth == 0 and at + 2 < len(found) and word != "#":
                # An item of a macro, or a macro: `name! {…}` or `macro_rules! name {…}`.
                if word == "macro_rules":
                    module.items.add(found[at + 2][0])
                    at += 1
                end = group(found, at + 2)
                module.macro_words.update(word for word, _ in found[at:end] if WORD.match(word))
                at += 2
            elif word in ITEMS and depth == 0 and WORD.match(following):
                module.items.add(following)
                at += 1
            elif WORD.match(word):
                at = self.read_path(module, found, at)
            else:
                depth += (word in OPEN) - (word in CLOSE)
                if word.startswith('"') and re.fullmatch(r'"\w+(::\w+)+"', word):
                    module.paths.append((tuple(word.strip('"').split("::")), line, False))
                at += 1
        return module

    def read_use(self, module, found, at):
        tree = use_tree(found, at)
        is_public = found[at - 2][0] in ("pub", ")")
        while True:
            try:
                path, name, line = next(tree)
            except StopIteration as end:
                return end.value
            if is_public:
                module.exports.append((path, name, line))
            else:
                module.paths.append((path, line, True))
            if name is None:
                module.globs.append((path, line))
            elif name != "_":
                module.imports.setdefault(name, path)

    def read_module(self, module, found, at, folder):
        name, inside = found[at][0], folder / found[at][0]
        if found[at + 1][0] == "{":
            end = group(found, at + 1)
            module.children[name] = self.read(Module(module.file, module), found[at + 2 : end - 1], inside)
            return end
        file = next(file for file in (folder / f"{name}.rs", inside / "mod.rs") if file.exists())
        child = self.load(file, inside, module)
        if child:
            module.children[name] = child
        return at + 2

    def read_path(self, module, found, at):
        path, line, begin = [found[at][0]], found[at][1], at
        at += 1
        while at + 1 < len(found) and found[at][0] == "::" and WORD.match(found[at + 1][0]):
            path.append(found[at + 1][0])
            at += 2
        before = found[begin - 1][0] if begin else ""
        if len(path) > 1 and before != "::":
            module.paths.append((tuple(path), line, False))
        elif before not in ("::", "."):
            module.words.setdefault(path[0], line)
        return at


def look_up(module, name, as_module, seen):
    """Finds a name in a module: another module, or the file that defines it; None if it is not known there."""
    if (id(module), name, as_module) in seen:
        return None
    seen = seen | {(id(module), name, as_module)}
    child = module.children.get(name)
    if as_module and child:
        return child
    if name in module.items:
        return module.file
    if name in module.imports:
        return resolve(module, module.imports[name], as_module, seen) or child or OUTSIDE
    if child or name in module.macro_words:
        return child or module.file
    for path, _ in module.globs:
        target = resolve(module, path, True, seen)
        found = look_up(target, name, as_module, seen) if isinstance(target, Module) else None
        if found:
            return found
    return None


def resolve(module, path, as_module=False, seen=frozenset()):
    """The module or the file that a path leads to; None if it leads out of the crate."""
    at = module
    for place, name in enumerate(path):
        last = place == len(path) - 1
        if name == "crate":
            at = at.root()
        elif name == "super":
            at = at.parent
        elif name != "self":
            found = look_up(at, name, as_module or not last, seen)
            # A derive or a macro may have made what is not found in a module that was named.
            at = found or (at.file if place else None)
        if not isinstance(at, Module):
            return at
    return at


def imports(crate):
    """Edges between files: (from, to) → {what: line}."""
    edges = collections.defaultdict(dict)
    for module in crate.modules:
        own = set(module.words) | {path[0] for path, _, is_use in module.paths if not is_use}
        paths = module.paths + [(path, line, True) for path, name, line in module.exports if name in own]
        found = [(resolve(module, path), "::".join(path), line, is_use) for path, line, is_use in paths]
        for path, line in module.globs:
            target = resolve(module, path, True)
            if isinstance(target, Module):
                own = module.items | set(module.imports)
                known = [word for word in module.words if word not in own and (word in target.items or word[0].isupper())]
                found += [(look_up(target, word, False, frozenset()), "::".join((*path, word)), line, True) for word in known]
        for target, path, line, is_use in found:
            if isinstance(target, pathlib.Path) and target not in (module.file, OUTSIDE):
                edges[module.file, target].setdefault(f"use {path}" if is_use else path, line)
    return edges


def circles(edges):
    """The strongly connected sets of more than one file (Tarjan)."""
    following = collections.defaultdict(list)
    for begin, end in edges:
        following[begin].append(end)
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in following[node]:
            if other not in index:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            knot = stack[stack.index(node) :]
            del stack[-len(knot) :]
            found.append(sorted(knot))

    for node in list(following):
        if node not in index:
            visit(node)
    return sorted(knot for knot in found if len(knot) > 1)
