"""Archives of a staged folder: a .tar.gz and a Python wheel. The same folder gives the same bytes each time.

The wheel is written here, without a build system: nothing is left to be compiled, and the files must be those of the
.tar.gz, so that both give the same bits. (auditwheel would write other search paths and other names into them.)

Not here: what is in the folder (staging.py).
"""
import base64
import gzip
import hashlib
import os
import pathlib
import tarfile
import time
import zipfile

WHEELS_NAME = "spillway-train"  # PyPI's `spillway` is another project
PACKAGE = "spillway_train"
PYTHON_FILES = pathlib.Path(__file__).resolve().parent / PACKAGE
SUMMARY = "Trains language models that do not fit in memory: a plan first, then offload that changes no bit"


def files_in(folder):
    """Every file below, in order, by its path relative to the folder."""
    return sorted((path.relative_to(folder).as_posix(), path) for path in folder.rglob("*") if path.is_file())


def write_tar(folder, out, top, seconds):
    """The folder as `top` in a .tar.gz; all times are `seconds` since 1970, the owner is root."""
    def same_everywhere(entry):
        entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = seconds, 0, 0, "root", "root"
        entry.mode = 0o755 if entry.mode & 0o100 else 0o644
        return entry

    with open(out, "wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=seconds) as packed:
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for name, path in files_in(folder):
                archive.add(path, f"{top}/{name}", filter=same_everywhere)


def platform_tag():
    """Of machines whose C library is at least as new as this one's. GCC's libraries are not in the package: those that
    come with such a C library are new enough, too.
    """
    name, version = os.confstr("CS_GNU_LIBC_VERSION").split()
    assert name == "glibc", f"found {name}, and wheels are made on glibc"
    major, minor = version.split(".")[:2]
    return f"manylinux_{major}_{minor}_x86_64"


def metadata(version, cublas):
    """`cublas` is the version of cuBLASLt that the program opens, or None where it was built without CUDA."""
    lines = ["Metadata-Version: 2.1", f"Name: {WHEELS_NAME}", f"Version: {version}", f"Summary: {SUMMARY}",
             "License: Apache-2.0", "Requires-Python: >=3.8", "Classifier: Operating System :: POSIX :: Linux"]
    if cublas:
        lines += ["Provides-Extra: cuda", f"Requires-Dist: nvidia-cublas<{cublas + 1},>={cublas}; extra == 'cuda'"]
    return "\n".join([*lines, "", "The command is `spillway`; `spillway --help` says what it does.", ""])


def write_wheel(folder, out_folder, version, cublas, seconds):
    """The folder as the package `spillway_train`, with a launcher; returns the path of the wheel."""
    tag = f"py3-none-{platform_tag()}"
    about = f"{PACKAGE}-{version}.dist-info"
    launcher = f"{PACKAGE}:main"
    contents = [(f"{PACKAGE}/{name}", path.read_bytes(), path.stat().st_mode & 0o100)
                for source in (PYTHON_FILES, folder) for name, path in files_in(source) if "__pycache__" not in name]
    made = {"METADATA": metadata(version, cublas), "entry_points.txt": f"[console_scripts]\nspillway = {launcher}\n",
            "WHEEL": f"Wheel-Version: 1.0\nGenerator: tools/package\nRoot-Is-Purelib: false\nTag: {tag}\n"}
    contents += [(f"{about}/{name}", text.encode(), 0) for name, text in sorted(made.items())]
    record = []
    for name, content, _ in contents:
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record.append(f"{name},sha256={digest},{len(content)}\n")
    contents.append((f"{about}/RECORD", "".join([*record, f"{about}/RECORD,,\n"]).encode(), 0))

    out = out_folder / f"{PACKAGE}-{version}-{tag}.whl"
    when = max(time.gmtime(seconds)[:6], (1980, 1, 1, 0, 0, 0))  # a zip knows no time before
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for name, content, is_program in contents:
            entry = zipfile.ZipInfo(name, when)
            entry.compress_type, entry.create_system = zipfile.ZIP_DEFLATED, 3  # Unix: modes are kept
            entry.external_attr = (0o100755 if is_program else 0o100644) << 16
            archive.writestr(entry, content)
    return out
