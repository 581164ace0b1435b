"""Stages the program: a folder that runs on machines without its libraries' packages.

    bin/spillway    stripped; looks for libraries in lib/ first
    lib/            those that a bare Debian lacks, each under the name that the loader asks for
    licenses/       of each package that a library or a header-only library comes from, and the texts that these name
    LICENSE         Spillway's

Not here: archives of that folder (archives.py). Errors are Refused: what was found, and what to do.
"""
import os
import pathlib
import re
import shutil
import subprocess

# The loader, the C library and GCC's own libraries are the machine's: drivers and plugins share them with the program.
MACHINES_OWN = re.compile(r"(linux-vdso|ld-linux-x86-64|libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+)\.so\b")
HEADER_ONLY = ("libcli11-dev", "nlohmann-json3-dev")  # packages that are compiled into the program
COMMON = re.compile(r"/usr/share/common-licenses/([A-Za-z0-9.+-]*[A-Za-z0-9])")


class Refused(Exception):
    """What was found, and what to do."""


def said_by(*command):
    """The standard output of a command that must succeed; bytes that are not UTF-8 are kept apart."""
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        raise Refused(f"{command[0]} failed with exit code {done.returncode}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def libraries_of(program):
    """{name that the loader asks for: path} of the shared libraries that are staged, those of libraries, too."""
    found = {}
    for line in said_by("ldd", str(program)).splitlines():
        name, arrow, rest = line.strip().partition(" => ")
        if not arrow or MACHINES_OWN.match(name):
            continue
        path = rest.partition(" (")[0]
        if not path.startswith("/"):
            raise Refused(f"{program} needs {name}, which is not on this machine; tools/setup installs what it lacks")
        found[name] = pathlib.Path(path)
    return found


def package_of(path):
    """The package of a library. Packages may name a path from before /lib became a link, or the one after it."""
    real = os.path.realpath(path)
    for spelling in (real, real.removeprefix("/usr"), str(path)):
        done = subprocess.run(["dpkg-query", "--search", spelling], capture_output=True, text=True)
        if done.returncode == 0:
            return done.stdout.partition(": ")[0].partition(":")[0]
    raise Refused(f"{path} is in no package of this machine, so its licence is not known; install it as a package")


def add_licences(packages, folder):
    """Copies what each package says of its licence to `folder`, and the common licences that these texts name."""
    named = set()
    for package in sorted(packages):
        source = pathlib.Path("/usr/share/doc") / package / "copyright"
        if not source.is_file():
            raise Refused(f"{package} has no {source}: a package without its licence cannot be passed on")
        there = folder / package / "copyright"
        there.parent.mkdir(parents=True)
        shutil.copyfile(source, there)
        named.update(COMMON.findall(source.read_text(encoding="utf-8", errors="replace")))
    for name in sorted(named):
        source = pathlib.Path("/usr/share/common-licenses") / name
        if source.is_file():
            (folder / "common-licenses").mkdir(exist_ok=True)
            shutil.copyfile(source, folder / "common-licenses" / name)


def add_binary(source, target, search):
    """A stripped copy that looks for libraries in `search` before LD_LIBRARY_PATH: the bits are those of the libraries
    that it was packaged with.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    said_by("strip", "--strip-unneeded", str(target))
    said_by("patchelf", "--force-rpath", "--set-rpath", search, str(target))
    target.chmod(0o755)


def stage(program, root, folder):
    """Fills `folder`, which must not exist, with the program and what it needs; `root` is the project's."""
    if shutil.which("patchelf") is None:
        raise Refused("there is no patchelf; tools/setup --with-packaging installs it")
    libraries = libraries_of(program)
    add_binary(program, folder / "bin" / "spillway", "$ORIGIN/../lib")
    for name, path in sorted(libraries.items()):
        add_binary(path, folder / "lib" / name, "$ORIGIN")
    add_licences({package_of(path) for path in libraries.values()} | set(HEADER_ONLY), folder / "licenses")
    shutil.copyfile(root / "LICENSE", folder / "LICENSE")
