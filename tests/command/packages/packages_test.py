"""tools/package: what it stages, that the archives hold the same files, and that these run alone and give the same bits
as the program that was packaged.

Not here: that the program finds what pip installed of CUDA (tests/memory/base/wheel_library_test.cpp).
"""
import base64
import csv
import hashlib
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import unittest
import zipfile

from harness import PROGRAM, SANITIZED, CommandTest, Golden, Run, arguments, run

ROOT = pathlib.Path(__file__).resolve().parents[3]
# Of a bare Debian; all others must come along.
MACHINES_OWN = {"linux-vdso", "libc", "libm", "libgcc_s", "libstdc++"}
GLIBC = {"bookworm": (2, 36), "trixie": (2, 41)}


def package(*words, **environment):
    command = [sys.executable, ROOT / "tools/package", *words]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})


class PackageTest(CommandTest):
    def packaged(self):
        """Packages of the program under test: the .tar.gz and the wheel."""
        if SANITIZED:
            self.skipTest("sanitizers' libraries are not for packages")
        for tool in ("patchelf", "readelf"):
            if shutil.which(tool) is None:
                self.skipTest(f"there is no {tool}")
        out = self.fresh("packages")
        done = package("--build", str(pathlib.Path(PROGRAM).parent), "--out", str(out))
        self.assertEqual(done.returncode, 0, done.stderr)
        (tar,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
        self.assertEqual({path.name for path in out.iterdir()}, {tar.name, wheel.name, "Dockerfile"})
        return tar, wheel

    def step(self, program, *, save, golden):
        """One step of training by a program in a folder of its own, where nothing says where libraries are."""
        flags = golden.flags(train_iters=1, save=save)
        environment = {**os.environ, "LD_LIBRARY_PATH": ""}
        done = subprocess.run([*program, "train", *arguments(flags)], capture_output=True, text=True,
                              cwd=self.fresh_directory(), env=environment)
        self.assertEqual(done.returncode, 0, done.stderr)


class Packages(PackageTest):
    def unpacked(self, tar):
        """The only folder of the archive, whose entries are plain files below it."""
        folder = self.fresh_directory("unpacked")
        with tarfile.open(tar) as archive:
            entries = archive.getmembers()
            tops = {entry.name.split("/")[0] for entry in entries}
            self.assertEqual(len(tops), 1, tops)
            for entry in entries:
                self.assertTrue(entry.isfile(), entry.name)
                self.assertNotIn("..", entry.name.split("/"))
                self.assertEqual((entry.uid, entry.gid), (0, 0))
            archive.extractall(folder)
        return folder / tops.pop()

    def check_search(self, folder):
        """Programs and libraries look for others beside them, and find all there that a bare machine lacks."""
        for path, search in ((folder / "bin/spillway", "$ORIGIN/../lib"),
                             *((path, "$ORIGIN") for path in (folder / "lib").iterdir())):
            dynamic = subprocess.run(["readelf", "--dynamic", path], capture_output=True, text=True, check=True).stdout
            self.assertEqual(re.findall(r"(?:RPATH|RUNPATH)\).*\[(.*)\]", dynamic), [search], path)
        told = subprocess.run(["ldd", folder / "bin/spillway"], capture_output=True, text=True, check=True).stdout
        found = dict(re.findall(r"(?m)^\s*(\S+)\.so\S* => (\S+)", told))
        self.assertIn("libdnnl", found)
        for name, path in found.items():
            if name not in MACHINES_OWN:
                self.assertTrue(os.path.realpath(path).startswith(f"{os.path.realpath(folder)}/lib/"), (name, path))

    def check_licences(self, folder):
        self.assertEqual((folder / "LICENSE").read_bytes(), (ROOT / "LICENSE").read_bytes())
        packages = {path.parent.name for path in folder.glob("licenses/*/copyright")}
        for library in (folder / "lib").iterdir():
            stem = re.match(r"lib[A-Za-z]+", library.name).group(0).lower()
            self.assertTrue(any(stem.removeprefix("lib") in name for name in packages), (library.name, packages))
        self.assertLessEqual({"libcli11-dev", "nlohmann-json3-dev"}, packages)

    def check_wheel(self, wheel, folder):
        """Its files are those of the other archive, its record is true, and its name says what WHEEL says."""
        with zipfile.ZipFile(wheel) as archive:
            contents = {entry.filename: (archive.read(entry), entry.external_attr >> 16)
                        for entry in archive.infolist()}
        staged = {f"spillway_train/{path.relative_to(folder)}": path for path in folder.rglob("*") if path.is_file()}
        for name, path in staged.items():
            self.assertEqual(contents[name], (path.read_bytes(), 0o100000 | path.stat().st_mode & 0o777), name)
        about = next(name for name in contents if name.endswith("/RECORD")).removesuffix("RECORD")
        more = {"spillway_train/__init__.py", "spillway_train/__main__.py",
                *(about + name for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt"))}
        self.assertEqual(set(contents), set(staged) | more)
        rows = list(csv.reader(io.StringIO(contents[about + "RECORD"][0].decode())))
        self.assertEqual({row[0] for row in rows}, set(contents))
        for name, digest, length in rows:
            if name != about + "RECORD":
                content = contents[name][0]
                right = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
                self.assertEqual((digest, length), (f"sha256={right}", str(len(content))), name)
        tag = re.search(r"(?m)^Tag: (.*)$", contents[about + "WHEEL"][0].decode()).group(1)
        version = run("--version").out.split()[-1]
        self.assertEqual(wheel.name, f"spillway_train-{version}-{tag}.whl")
        self.assertRegex(tag, r"^py3-none-manylinux_2_\d+_x86_64$")
        metadata = contents[about + "METADATA"][0].decode()
        self.assertIn(f"\nVersion: {version}\n", metadata)
        # The extra brings the library that the program opens.
        opens = re.search(rb"libcublasLt\.so\.(\d+)", (folder / "bin/spillway").read_bytes())
        brings = re.search(r"(?m)^Requires-Dist: nvidia-cublas<\d+,>=(\d+); extra == 'cuda'$", metadata)
        self.assertEqual(brings and brings.group(1), opens and opens.group(1).decode())

    def test_archives_run_alone_and_give_the_same_bits(self):
        tar, wheel = self.packaged()
        folder = self.unpacked(tar)
        self.check_search(folder)
        self.check_licences(folder)
        self.check_wheel(wheel, folder)
        if b"cublasLtMatmul" not in (folder / "bin/spillway").read_bytes():
            self.assertLess(wheel.stat().st_size, 40e6)

        # The wheel as installers lay it out: with the modes that it has.
        site = self.fresh_directory("site-packages")
        with zipfile.ZipFile(wheel) as archive:
            for entry in archive.infolist():
                pathlib.Path(archive.extract(entry, site)).chmod(entry.external_attr >> 16 & 0o777)
        golden, saved = Golden("llama3_rope", self.directory), [self.fresh() for _ in range(3)]
        by_wheel = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(site)!r}); import spillway_train as s; "
                    "s.main()"]
        for program, save in zip(([PROGRAM], [folder / "bin/spillway"], by_wheel), saved, strict=True):
            self.step(program, save=save, golden=golden)
        right, *others = [Run(save).result() for save in saved]
        self.assertEqual(others, [right, right])
        # Exit codes and errors come through the launcher.
        refused = subprocess.run([*by_wheel, "train"], capture_output=True, text=True)
        self.check_refusal(run("train"), refused.returncode, refused.stderr.splitlines()[0].removeprefix("error: "))

    def test_refusals(self):
        nowhere = self.fresh()
        done = package("--build", str(nowhere), "--out", str(self.fresh()))
        self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
        self.assertIn(f"error: there is no {nowhere}/spillway", done.stderr)
        build = ("--build", str(pathlib.Path(PROGRAM).parent), "--out", str(self.fresh()))
        for environment, said in (({"SOURCE_DATE_EPOCH": "yesterday"}, "SOURCE_DATE_EPOCH: found 'yesterday', allowed"),
                                  ({"PATH": str(nowhere)}, "tools/setup --with-packaging installs it")):
            done = package(*build, **environment)
            self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
            self.assertIn(said, done.stderr)
        self.assertEqual(list(pathlib.Path(build[-1]).iterdir()), [])


class SlowBareDebian(PackageTest):
    """A Debian with nothing but Python: the wheel by pip and the .tar.gz, side by side."""

    def bare(self, suite):
        """Its root, made by debootstrap."""
        if os.geteuid() != 0 or shutil.which("debootstrap") is None:
            self.skipTest("needs root and debootstrap")
        here = tuple(map(int, os.confstr("CS_GNU_LIBC_VERSION").split()[1].split(".")[:2]))
        if here > GLIBC[suite]:
            self.skipTest(f"what is made here, with glibc {here}, does not run on {suite}")
        root = self.fresh(suite)
        self.addCleanup(shutil.rmtree, root, ignore_errors=True)
        done = subprocess.run(["debootstrap", "--variant=minbase", "--include=python3-venv", suite, root],
                              capture_output=True, text=True)
        if done.returncode != 0:
            self.skipTest(f"debootstrap could not make {suite}: {(done.stdout + done.stderr).strip()[-200:]}")
        return root

    def check_suite(self, suite):
        tar, wheel = self.packaged()
        root = self.bare(suite)
        golden = Golden("llama3_rope", self.directory)
        given = root / "given"
        shutil.copytree(golden.model, given / "model")
        for path in (golden.data, tar, wheel, golden.flags()["profile"]):
            shutil.copy(path, given)
        # In a mount namespace of their own, so that nothing stays mounted.
        enter = f'mount -t proc proc "{root}/proc" && exec chroot "{root}" "$@"'
        within = ["unshare", "--mount", "sh", "-c", enter, "sh"]
        installs = (f"cd /given; python3 -m venv v; v/bin/pip install --no-index {wheel.name}; mkdir t; "
                    f"tar -xzf {tar.name} -C t --strip-components 1")
        subprocess.run([*within, "sh", "-ec", installs], check=True, capture_output=True)
        golden.model, golden.data = "/given/model", f"/given/{golden.data.name}"
        flags = golden.flags(train_iters=1, profile=f"/given/{golden.flags()['profile'].name}")
        for program in ("v", "t"):
            words = arguments({**flags, "save": f"/given/run_{program}"})
            done = subprocess.run([*within, f"/given/{program}/bin/spillway", "train", *words], capture_output=True,
                                  text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(Run(given / "run_v").result(), Run(given / "run_t").result())

    def test_debian_12(self):
        self.check_suite("bookworm")

    def test_debian_13(self):
        self.check_suite("trixie")


if __name__ == "__main__":
    unittest.main()
