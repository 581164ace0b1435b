#!/usr/bin/env python3
"""Checks the rules of the house that a program can check: the direction of dependence between folders and between the
rooms of one, how much a folder holds, the purity of the planner, where backends may be named, and the shape of a source
file. Not here: formatting and warnings, which tools do.

    dependence.py [--root DIR]     prints one line a violation; exit code 1 if there is any
    dependence.py --self-test      breaks each rule in a made-up tree and demands that it is noticed
"""

import argparse
import os
import pathlib
import re
import sys
import tempfile

import functions

# folder -> the folders it may include from, besides itself
MAY_USE = {
    "memory": set(),
    "files": {"memory"},
    "models": {"memory", "files"},
    "nvme": {"memory"},
    "collectives": {"memory"},
    "offload": {"memory", "models", "nvme", "collectives"},
    "trainer": {"memory", "files", "models", "nvme", "collectives", "offload"},
    "tools": {"memory", "files", "models", "nvme", "collectives", "offload", "trainer"},
    "tests": {"memory", "files", "models", "nvme", "collectives", "offload", "trainer", "tools"},
}

# A folder that is divided into rooms: each may include from itself and from those before it. All its sources lie in
# rooms, of which "" is the folder itself.
ROOMS = {
    "memory": ["base", "runtime", "plan", "passes", "search"],
    "offload": ["", "cuda"],
    "trainer": ["words", "host", "options", "text", "chat", "data", "machine", "plan", "keep", "show", "run"],
}

# A header and its source are one stem. What somebody looks for in a folder is found by reading its names, as long as
# they are few.
MOST_STEMS = 30
KNOWN_LARGER = {}  # folder -> its stems, which may only shrink: who takes some out writes the smaller number

# The planner computes; it neither measures nor moves: the same input gives the same plan on any machine. What these
# files include from memory/, and the sources beside those headers, must be as pure.
PURE_ROOTS = re.compile(r"memory/(plan|passes|search)/\w+\.(h|cpp)$")
IMPURE_FILE = re.compile(r"memory/(runtime/|base/(parallel|prompt_thread|freed_memory))")
IMPURE_HEADER = re.compile(
    r"(cuda|cublas|nccl|mpi|liburing|dnnl|oneapi|tbb|omp|sys/|linux/|unistd|fcntl|pthread|dirent|stdio|cstdio|fstream"
    r"|iostream|ostream|istream|filesystem|thread|mutex|shared_mutex|condition_variable|future|atomic|chrono|ctime"
    r"|time\.h)"
)

# header -> where it may be named (tests and benches compare against libraries, so they are free)
BACKENDS = [
    (re.compile(r"(cuda|cublas|cuda_runtime)\w*\.h"), re.compile(r"_cuda\.cpp$|\.cuh?$"),
     "files named *_cuda.cpp or *.cu"),
    (re.compile(r"liburing(\.h|/)"), re.compile(r"^nvme/"), "nvme/"),
    (re.compile(r"(oneapi/dnnl/)?dnnl"), re.compile(r"^models/"), "models/"),
    # A parse of four seconds, where the rest of a file takes one or two.
    (re.compile(r"CLI/"), re.compile(r"^trainer/options/command_line\.cpp$"), "trainer/options/command_line.cpp"),
]

LONGEST_FILE = 500
LONGEST_FUNCTION = 60
LONGEST_LINE = {"C++": 130, "Python": 120}  # the first as .clang-format has it
SOURCE = {".h", ".cpp", ".cu", ".cuh"}
TEXT = SOURCE | {".py", ".sh", ".cmake", ".md", ".txt", ".json", ""}
OTHERS_HOMES = re.compile(r"(?<![\w.}$])/(root|home|Users|work|workspace)/\w")
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX)\b")
NAMED = re.compile(r"(?<![\w<>./-])(?!NAME)(k[A-Z]\w*|(?:\w+/)*\w+\.(?:h|cpp|cuh|cu|py))\b(?![*>])")
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')
TARGET_INCLUDE = re.compile(r'^\s*#\s*define\s+HWY_TARGET_INCLUDE\s+"([^"]+)"')


def files_of(root):
    """Every text file of ours, as a path relative to the root; test data is not ours to judge."""
    for folder, subfolders, names in os.walk(root):
        here = pathlib.Path(folder).relative_to(root)
        top = here == pathlib.Path(".")
        subfolders[:] = sorted(
            s for s in subfolders
            if s != "__pycache__" and (here / s).as_posix() != "tests/data"
            and (not top or s in MAY_USE or s in ("cmake", ".ci"))
        )
        for name in sorted(names):
            path = here / name
            if path.suffix in TEXT and (not top or path.suffix or name.startswith("CMake")):
                yield path


def pure_files(root):
    """The planner's files: the named ones and whatever they include, with the source beside each header."""
    waiting = [path for path in root.glob("memory/**/*.*") if PURE_ROOTS.match(path.relative_to(root).as_posix())]
    pure = set()
    while waiting:
        path = waiting.pop()
        name = path.relative_to(root).as_posix()
        if name in pure or IMPURE_FILE.match(name) or name.startswith("memory/base/error.") or not path.is_file():
            continue
        pure.add(name)
        quoted = re.findall(r'^\s*#\s*include\s*"([^"]+)"', path.read_text(encoding="utf-8"), re.MULTILINE)
        waiting += [root / header for header in quoted]
        waiting.append(path.with_suffix(".cpp"))
    return pure


def check_includes(root, path, lines, pure):
    name, folder = path.as_posix(), path.parts[0]
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line) or TARGET_INCLUDE.match(line)
        if not match:
            continue
        place = f"{name}:{number}"
        quoted = match.group(1)
        header = quoted or match.group(2)
        if quoted:
            target = quoted.split("/")[0]
            if target not in MAY_USE or ".." in quoted:
                yield f'{place}: "{quoted}" does not begin at the root; write the folder, or <> for a library'
                continue
            if not (root / quoted).is_file():
                yield f'{place}: "{quoted}" does not exist'
            if target != folder and target not in MAY_USE[folder]:
                allowed = ", ".join(sorted(MAY_USE[folder])) or "nothing else"
                yield f'{place}: {folder}/ may not use {target}/ ("{quoted}"); it may use {allowed}'
        if name in pure and (IMPURE_FILE.match(header) if quoted else IMPURE_HEADER.match(header)):
            yield f"{place}: the planner is pure and may not include {header}"
        elif not quoted and not name.startswith(("tests/", "tools/bench/")):
            for backend, allowed, where in BACKENDS:
                if backend.match(header) and not allowed.search(name):
                    yield f"{place}: <{header}> belongs in {where}"


def room_of(path):
    """Its place among the rooms of its folder; None: it is in none."""
    rooms = ROOMS.get(path.parts[0], [])
    room = "/".join(path.parts[1:2]) if len(path.parts) > 2 else ""
    return rooms.index(room) if room in rooms else None


def check_room(path, lines):
    """Sources of a folder with rooms lie in one of them, and use only rooms before it."""
    name, folder = path.as_posix(), path.parts[0]
    rooms = ROOMS[folder]
    here = room_of(path)
    if here is None:
        yield f"{name}: belongs in a room of {folder}/: {', '.join(rooms)}"
        return
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line) or TARGET_INCLUDE.match(line)
        target = pathlib.PurePosixPath(match.group(1) or "") if match else pathlib.PurePosixPath()
        if target.parts[:1] != (folder,):
            continue
        there = room_of(target)  # None: that is said of the file itself
        if there is not None and there > here:
            yield f'{name}:{number}: {rooms[here] or folder}/ may not use {rooms[there]}/ ("{target}"), a room below it'


def check_rings(uses):
    """Within the rooms no stem uses, by way of others, itself: of two that need one another, the half that both want is
    a third.
    """
    done, path = set(), []

    def walk(stem):
        if stem in path:
            ring = path[path.index(stem):] + [stem]
            yield f"a ring of includes: {' -> '.join(ring)}"
        if stem in done or stem in path:
            return
        path.append(stem)
        for used in sorted(uses.get(stem, ())):
            yield from walk(used)
        path.pop()
        done.add(stem)

    for stem in sorted(uses):
        yield from walk(stem)


def check_stems(stems, known_larger):
    """No folder of sources holds more than can be read as a list."""
    for folder, names in sorted(stems.items()):
        most = known_larger.get(folder, MOST_STEMS)
        if len(names) > most:
            yield f"{folder}/: {len(names)} stems of sources; at most {most}"
        elif folder in known_larger and len(names) < most:
            yield f"{folder}/: {len(names)} stems of sources; KNOWN_LARGER still has {most}"


def check_header(path, lines):
    """A header opens with what it is for and what it is not for, then `#pragma once`."""
    if not lines or not lines[0].startswith("//"):
        yield f"{path.as_posix()}:1: a header opens with a comment: what it is for, and what it is not for"
    # Highway includes *-inl.h once for each instruction set.
    if "#pragma once" not in lines and not path.name.endswith("-inl.h"):
        yield f"{path.as_posix()}:1: no #pragma once"


def language_of(path, text):
    """C++, Python (a script may have no ending), or None."""
    if path.suffix in SOURCE:
        return "C++"
    return "Python" if path.suffix == ".py" or text.startswith("#!/usr/bin/env python") else None


def check_lengths(path, text):
    """What is read at once is short: a file, a function, a line."""
    name, language, lines = path.as_posix(), language_of(path, text), text.splitlines()
    if language is None:
        return
    if len(lines) > LONGEST_FILE:
        yield f"{name}: {len(lines)} lines; at most {LONGEST_FILE}"
    for number, line in enumerate(lines, 1):
        if len(line) > LONGEST_LINE[language]:
            yield f"{name}:{number}: {len(line)} columns; at most {LONGEST_LINE[language]}"
    for first, last in (functions.of_cpp if language == "C++" else functions.of_python)(text):
        if last - first >= LONGEST_FUNCTION:
            yield f"{name}:{first}: a function of {last - first + 1} lines; at most {LONGEST_FUNCTION}"


def check_links(path, text):
    """spillway_folder(name dependency...) obeys the same table as includes."""
    for match in re.finditer(r"spillway_folder\((\w+)([^)]*)\)", text):
        name = match.group(1)
        if name not in MAY_USE:
            continue
        for target in re.findall(r"spillway_(\w+)", match.group(2)):
            if target not in MAY_USE[name]:
                yield f"{path.as_posix()}: {name}/ may not link with {target}/"


def named_in(path, text):
    """(line, name) of the constants and the files that comments and READMEs speak of."""
    if path.suffix not in SOURCE | {".md"}:
        return
    for number, line in enumerate(text.splitlines(), 1):
        spoken = " ".join(re.findall(r"`[^`]+`", line)) if path.suffix == ".md" else line.partition("//")[2]
        for match in NAMED.finditer(spoken):
            yield number, match.group(1)


def check_named(texts):
    """What comments and READMEs name is there: a constant in code, a file by its name, or by that and its folder."""
    code = "\n".join(re.sub(r"//[^\n]*", "", text) for path, text in texts.items() if path.suffix in SOURCE)
    there = set(re.findall(r"\bk[A-Z]\w*", code)) | {path.name for path in texts}
    there |= {name.rsplit("/", 1)[-1] for name in re.findall(r"[<\"]([\w/-]+\.h)[>\"]", code)}
    for path, text in texts.items():
        for number, name in named_in(path, text):
            if name.rsplit("/", 1)[-1] not in there:
                yield f"{path.as_posix()}:{number}: names {name}, which is nowhere"


def violations(root, known_larger):
    pure = pure_files(root)
    texts = {}
    stems = {}  # folder -> what its sources are called without their endings
    uses = {}  # stem of a folder with rooms -> those whose headers its header or its source includes
    for path in files_of(root):
        name = path.as_posix()
        try:
            text = (root / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            if path.suffix:
                yield f"{name}: not UTF-8"
            continue
        texts[path] = text
        lines = text.splitlines()
        for number, line in enumerate(lines, 1):
            if OTHERS_HOMES.search(line) or (len(root.parts) > 2 and f"{root}/" in line):
                yield f"{name}:{number}: a path of one machine: {line.strip()}"
            if UNFINISHED.search(line):
                yield f"{name}:{number}: unfinished work is an issue, not a comment: {line.strip()}"
        if path.name == "CMakeLists.txt":
            yield from check_links(path, text)
        yield from check_lengths(path, text)
        if path.suffix not in SOURCE and path.suffix != ".py":
            continue
        stems.setdefault(path.parent.as_posix(), set()).add(path.stem)
        if path.suffix in SOURCE and path.parts[0] in MAY_USE:
            yield from check_includes(root, path, lines, pure)
        if path.suffix in SOURCE and path.parts[0] in ROOMS:
            yield from check_room(path, lines)
            here = path.with_suffix("").as_posix()
            quoted = (match.group(1) for match in map(INCLUDE.match, lines) if match and match.group(1))
            uses.setdefault(here, set()).update({header.rsplit(".", 1)[0] for header in quoted} - {here})
        if path.suffix in (".h", ".cuh"):
            yield from check_header(path, lines)
    yield from check_stems(stems, known_larger)
    yield from check_rings(uses)
    yield from check_named(texts)


GOOD = {
    "memory/base/types.h": "// Sizes. Not here: owners.\n#pragma once\n#include <cstdint>\n",
    "memory/plan/plan.h": '// A plan. Not here: running it.\n#pragma once\n#include "memory/base/types.h"\n',
    "memory/runtime/runtime.h": "// Streams. Not here: plans.\n#pragma once\n",
    "memory/runtime/runtime_cuda.cpp": '#include "memory/runtime/runtime.h"\n#include <cuda_runtime.h>\n',
    "memory/CMakeLists.txt": "spillway_folder(memory fmt::fmt)\n",
    "models/unit.h": '// A unit. Not here: bytes.\n#pragma once\n#include "memory/base/types.h"\n',
    "models/CMakeLists.txt": "spillway_folder(models spillway_memory)\n",
    "models/cpu/lanes-inl.h": "// Vectors. Not here: passes.\n#include <hwy/highway.h>\n",
    "nvme/ring.cpp": "#include <liburing.h>\n",
    "files/header.cpp": "int first;\n",
    "files/names.cpp": "int second;\n",
    "offload/executor.cpp": '#include "models/unit.h"\n#include "memory/plan/plan.h"\n',
    "trainer/options/options.h": "// Options. Not here: their meaning.\n#pragma once\n",
    "trainer/run/loop.h": "// The loop. Not here: kernels.\n#pragma once\n",
    "trainer/run/loop.cpp": '#include "trainer/options/options.h"\n#include "trainer/run/loop.h"\n',
    "tools/main.cpp": '#include "trainer/run/loop.h"\n',
    "tests/memory/plan_test.cpp": '#include "memory/plan/plan.h"\n',
    "tests/data/notes.txt": "test data may say /ro" + "ot/anything\n",
    "README.md": "A program.\n",
    # As long as a function may be; long, and none.
    "memory/base/long.cpp": "int a(int b) {\n" + "  ++b;\n" * 57 + "  return b;\n}\nconst int kTable[] = {\n"
    + "    1,\n" * 90 + "};\n",
}

LARGER_IN_GOOD = {"files": 2}

# What breaks a rule -> words that the complaint must contain. A file whose text is None is taken away.
BAD = [
    ({"memory/base/a.cpp": '#include "models/unit.h"\n'}, "memory/ may not use models/"),
    ({"models/a.cpp": '#include "nvme/ring.h"\n', "nvme/ring.h": "// Ring. Not here: plans.\n#pragma once\n"},
     "may not use nvme/"),
    ({"nvme/a.cpp": '#include "models/unit.h"\n'}, "nvme/ may not use models/"),
    ({"offload/a.cpp": '#include "trainer/run/loop.h"\n'}, "offload/ may not use trainer/"),
    ({"trainer/run/a.cpp": '#include "tools/a.h"\n', "tools/a.h": "// A. Not here: b.\n#pragma once\n"},
     "may not use tools/"),
    ({"models/a.cpp": '#include "tests/a.h"\n', "tests/a.h": "// A. Not here: b.\n#pragma once\n"},
     "may not use tests/"),
    ({"models/a.cpp": '#define HWY_TARGET_INCLUDE "trainer/run/loop.h"\n'}, "may not use trainer/"),
    ({"trainer/options/a.cpp": '#include "trainer/run/loop.h"\n'}, "options/ may not use run/"),
    ({"trainer/words/a.cpp": '#define HWY_TARGET_INCLUDE "trainer/run/loop.h"\n'}, "words/ may not use run/"),
    ({"trainer/run/loop.cpp": '#include "trainer/run/step.h"\n',
      "trainer/run/step.cpp": '#include "trainer/run/loop.h"\n',
      "trainer/run/step.h": "// A step. Not here: the loop.\n#pragma once\n"},
     "a ring of includes: trainer/run/loop -> trainer/run/step -> trainer/run/loop"),
    ({"memory/plan/plan.cpp": '#include "memory/passes/moves.h"\n',
      "memory/passes/moves.h": "// Moves. Not here: bytes.\n#pragma once\n"}, "plan/ may not use passes/"),
    ({"nvme/ring.cpp": "// As deep as kDepth.\n#include <liburing.h>\n"}, "names kDepth, which is nowhere"),
    ({"nvme/ring.cpp": "// Not here: drives (nvme/disk.h).\nint ring;\n"}, "names nvme/disk.h, which is nowhere"),
    ({"README.md": "See `memory/plan_of_old.cpp`.\n"}, "names memory/plan_of_old.cpp, which is nowhere"),
    ({"trainer/a.cpp": "int a;\n"}, "belongs in a room of trainer/"),
    ({"trainer/cellar/a.cpp": "int a;\n"}, "belongs in a room of trainer/"),
    ({f"trainer/run/part{i}.cpp": "int a;\n" for i in range(MOST_STEMS)}, f"{MOST_STEMS + 1} stems of sources"),
    ({"files/index.cpp": "int third;\n"}, "files/: 3 stems of sources; at most 2"),
    ({"files/names.cpp": None}, "files/: 1 stems of sources; KNOWN_LARGER still has 2"),
    ({"memory/base/a.cpp": '#include "types.h"\n'}, "does not begin at the root"),
    ({"memory/base/a.cpp": '#include "memory/base/../../models/unit.h"\n'}, "does not begin at the root"),
    ({"memory/base/a.cpp": '#include "memory/missing.h"\n'}, "does not exist"),
    ({"memory/search/planner.cpp": "#include <fstream>\n"}, "may not include fstream"),
    ({"memory/plan/plan.h": GOOD["memory/plan/plan.h"] + '#include "memory/plan/chain.h"\n',
      "memory/plan/chain.h": "// Tiers. Not here: bytes.\n#pragma once\n",
      "memory/plan/chain.cpp": "#include <mutex>\n"},
     "memory/plan/chain.cpp:1: the planner is pure"),
    ({"memory/search/simulate.cpp": "#include <cuda_runtime.h>\n"}, "may not include cuda_runtime.h"),
    ({"memory/passes/schedule.cpp": '#include "memory/runtime/runtime.h"\n'},
     "may not include memory/runtime/runtime.h"),
    ({"memory/runtime/arena.cpp": "#include <cuda_runtime.h>\n"}, "belongs in files named *_cuda.cpp"),
    ({"offload/a.cpp": "#include <liburing.h>\n"}, "belongs in nvme/"),
    ({"tools/a.cpp": "#include <CLI/CLI.hpp>\n"}, "belongs in trainer/options/command_line.cpp"),
    ({"offload/a.cpp": "#include <oneapi/dnnl/dnnl.hpp>\n"}, "belongs in models/"),
    ({"memory/base/a.h": "#pragma once\n"}, "a header opens with a comment"),
    ({"memory/base/a.h": "// An arena. Not here: plans.\n"}, "no #pragma once"),
    ({"memory/base/a.cpp": "\n" * (LONGEST_FILE + 1)}, "lines; at most 500"),
    ({"tests/command/plan_test.py": "\n" * (LONGEST_FILE + 1)}, "lines; at most 500"),
    ({"memory/base/a.cpp": "//" + " x" * 65 + "\n"}, "columns; at most 130"),
    ({"tests/command/a.py": "#" + " x" * 60 + "\n"}, "columns; at most 120"),
    ({"tools/bench/run": "#!/usr/bin/env python3\n#" + " x" * 60 + "\n"}, "columns; at most 120"),
    ({"memory/base/a.cpp": "namespace a {\nint b(int c) {\n" + "  ++c;\n" * 58 + "  return c;\n}\n}\n"},
     "a.cpp:2: a function of 61"),
    ({"memory/base/a.cpp": "class A {\n  A() : b_{1}, c_(2) {\n" + "\n" * 59 + "  }\n  int b_, c_;\n};\n"},
     "a.cpp:2: a function of 61"),
    ({"memory/base/a.cpp": "template <typename T>\nT a(T b) {\n  const auto c = [&] {\n" + "\n" * 56
      + "  };\n  return c();\n}\n"},
     "a.cpp:1: a function of 62"),
    ({"memory/base/a.cpp": "int a() { return '{' + sizeof(\"}{\"); }  // {\n" + "TEST(A, B) {\n" + "\n" * 59 + "}\n"},
     "a.cpp:2: a function of 61"),
    ({"tools/a.py": "class A:\n    def a(self):\n" + "        self.b()\n" * 60}, "a.py:2: a function of 61"),
    ({"memory/base/a.cpp": 'const char* path = "/ro' + 'ot/model";\n'}, "a path of one machine"),
    ({"tools/run": "cd /ho" + "me/someone/model\n"}, "a path of one machine"),
    ({"memory/base/a.cpp": "// TO" + "DO: finish\n"}, "unfinished work"),
    ({"models/CMakeLists.txt": "spillway_folder(models spillway_trainer)\n"}, "may not link with trainer/"),
]


def found_in(tree):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder).resolve()
        for name, text in tree.items():
            if text is None:
                continue
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return list(violations(root, LARGER_IN_GOOD))


def self_test():
    failures = [f"the good tree was refused: {line}" for line in found_in(GOOD)]
    for change, words in BAD:
        found = found_in(GOOD | change)
        if len(found) != 1 or words not in found[0]:
            failures.append(f"{sorted(change)}: expected one complaint with '{words}', got {found}")
    for failure in failures:
        print(failure)
    print(f"{len(BAD)} broken trees, {len(failures)} failures")
    return 1 if failures else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2])
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        return self_test()
    found = list(violations(arguments.root.resolve(), KNOWN_LARGER))
    for line in found:
        print(line)
    print(f"{len(found)} violations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
