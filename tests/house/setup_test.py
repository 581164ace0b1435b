"""tools/cuda_toolkit, and how tools/setup asks it: which drivers and compilers it goes by, and what it lays down.

Not here: NVIDIA's own wheels, for which there must be a network.
"""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest
import zipfile

TOOLS = pathlib.Path(__file__).parents[2] / "tools"
# As cmake looks for it without being told: there on some machines.
ELSEWHERE = pathlib.Path("/usr/local/cuda/bin/nvcc")
SMI = """#!/bin/sh
case "$*" in *compute_cap*) echo "{chip}" ;; *) echo "{driver}, NVIDIA GeForce RTX 4090" ;; esac
exit {code}
"""
NVCC = "#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{release}.88'\n"
WHEELS = {"nvidia_cuda_nvcc": "13.0.88", "nvidia_nvvm": "13.0.88", "nvidia_cuda_crt": "13.0.88",
          "nvidia_cuda_runtime": "13.0.96", "nvidia_cuda_cccl": "13.0.85", "nvidia_nvtx": "13.0.85",
          "nvidia_cublas": "13.1.2"}


def has_pip():
    asked = subprocess.run(["/usr/bin/python3", "-m", "pip", "--version"], capture_output=True, check=False)
    return asked.returncode == 0


class CudaToolkit(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = pathlib.Path(directory.name)
        (self.root / "tools").mkdir()
        self.programs = self.root / "programs"
        self.programs.mkdir()
        for script in ("setup", "cuda_toolkit"):
            shutil.copy(TOOLS / script, self.root / "tools")

    def program(self, name, text):
        (self.programs / name).write_text(text)
        (self.programs / name).chmod(0o755)

    def ask(self, *words, script="cuda_toolkit", **environment):
        """What it says of a machine that has these programs and the system's own."""
        path = f"{self.programs}:/usr/bin:/bin"
        ran = subprocess.run([self.root / "tools" / script, *words], capture_output=True, text=True, check=False,
                             timeout=120, env={**os.environ, **environment, "PATH": path})
        return ran.returncode, ran.stdout + ran.stderr

    def check(self, asked, code, *said, not_said=()):
        self.assertEqual(asked[0], code, asked[1])
        for words in said:
            self.assertIn(words, asked[1])
        for words in not_said:
            self.assertNotIn(words, asked[1])

    def test_drivers(self):
        # None: a user's build says nothing of it; who asks outright gets the toolkit.
        self.assertEqual(self.ask("--for-gpu", "--dry-run"), (0, ""))
        self.check(self.ask("--dry-run"), 0, "no NVIDIA driver", "would fetch")
        for driver in ("570.86.15", "535.54", "not a number"):
            self.program("nvidia-smi", SMI.format(driver=driver, chip="8.9", code=0))
            for words in ((), ("--for-gpu",)):
                self.check(self.ask(*words, "--dry-run"), 0, f"the driver is {driver}", "580 or later",
                           "going on without CUDA", not_said=["would fetch"])
        self.program("nvidia-smi", SMI.format(driver="580.95.05", chip="7.5", code=0))
        self.check(self.ask("--for-gpu", "--dry-run"), 0, "is 7.5", "8.0 and later", not_said=["would fetch"])
        self.program("nvidia-smi", SMI.format(driver="580.95.05", chip="8.9", code=0))
        self.check(self.ask("--dry-run"), 0, "found NVIDIA GeForce RTX 4090, driver 580.95.05", "would fetch")
        self.program("nvidia-smi", SMI.format(driver="NVIDIA-SMI has failed", chip="", code=9))
        self.check(self.ask("--for-gpu", "--dry-run"), 0, "shows no GPU: NVIDIA-SMI has failed",
                   not_said=["would fetch"])
        self.check(self.ask("--never"), 2, "--for-gpu")

    def test_compilers(self):
        self.program("nvidia-smi", SMI.format(driver="580.95.05", chip="12.0", code=0))
        self.program("nvcc", NVCC.format(release="13.2"))
        self.check(self.ask("--for-gpu", "--dry-run"), 0, "nvcc is there, of CUDA 13", not_said=["would fetch"])
        self.program("nvcc", NVCC.format(release="12.4"))
        self.check(self.ask("--for-gpu", "--dry-run"), 0, "is of CUDA 12, and 13 is wanted",
                   f"{ELSEWHERE} is there" if ELSEWHERE.exists() else "would fetch")
        self.check(self.ask("--dry-run"), 0, "would fetch")

    @unittest.skipUnless(shutil.which("dpkg-query"), "set-up installs Debian's packages")
    def test_set_up_asks_it(self):
        self.program("nvidia-smi", SMI.format(driver="570.86.15", chip="8.9", code=0))
        for flag in ("--with-cuda", "--cuda-for-gpu"):
            self.check(self.ask("--no-install", flag, script="setup"), 0, "570.86.15", "packages are there")
        self.program("nvidia-smi", SMI.format(driver="580.95.05", chip="8.9", code=0))
        self.check(self.ask("--no-install", "--with-cuda", script="setup"), 1, "would fetch")
        self.check(self.ask("--no-install", script="setup"), 0, "packages are there", not_said=["cuda"])

    @unittest.skipUnless(has_pip(), "the system's python3 has no pip")
    def test_what_it_fetches(self):
        wheels = self.root / "wheels"
        wheels.mkdir()
        nothing = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}
        self.check(self.ask(**nothing), 1, "could not fetch")
        self.program("nvidia-smi", SMI.format(driver="580.95.05", chip="8.9", code=0))
        if not ELSEWHERE.exists():
            self.check(self.ask("--for-gpu", **nothing), 0, "could not fetch", "the CPU trains")
        self.assertFalse((self.root / "build/cuda").exists())
        for name, version in WHEELS.items():
            with zipfile.ZipFile(wheels / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
                information = f"{name}-{version}.dist-info"
                wheel.writestr(f"{information}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
                wheel.writestr(f"{information}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
                wheel.writestr(f"{information}/RECORD", "")
                wheel.writestr(f"nvidia/cu13/lib/lib{name}.so.13", "")
                if name == "nvidia_cuda_nvcc":
                    program = zipfile.ZipInfo("nvidia/cu13/bin/nvcc")
                    program.external_attr = 0o100755 << 16
                    wheel.writestr(program, NVCC.format(release="13.0"))
        self.check(self.ask(**nothing), 0, "the toolkit is there: release 13.0")
        there = self.root / "build/cuda"
        self.assertTrue(os.access(there / "bin/nvcc", os.X_OK))
        for name in WHEELS:
            self.assertTrue((there / f"lib64/lib{name}.so").exists(), name)
        self.check(self.ask(**nothing), 0, "the toolkit is in build/cuda", not_said=["fetch"])


if __name__ == "__main__":
    unittest.main()
