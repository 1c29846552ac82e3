"""torch.utils.collect_env: what a bug report should say about a machine.

The functions take one that runs a command, `run` or one in its place, as PyTorch's do; programs
that are not there are answered with None.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from skimp._kernels.blas import get_num_threads
from skimp.version import VERSION, __version__

__all__ = ["SystemEnv", "get_env_info", "get_pretty_env_info", "main", "run"]
Run = Callable[[Any], tuple[int, str, str]]
PACKAGES = ("numpy", "ml-dtypes", "safetensors", "rich")  # that skimp stands on
PATTERNS = ("torch", "numpy", "mypy", "flake8", "optree", "onnx", "triton", "skimp")


class SystemEnv(NamedTuple):
    """What is known of a machine, under PyTorch's names; "N/A" where skimp has no such part."""

    torch_version: str
    is_debug_build: str
    cuda_compiled_version: str
    gcc_version: str | None
    clang_version: str | None
    cmake_version: str | None
    os: str | None
    libc_version: str
    python_version: str
    python_platform: str
    is_cuda_available: str
    cuda_runtime_version: str | None
    cuda_module_loading: str
    nvidia_driver_version: str | None
    nvidia_gpu_models: str | None
    cudnn_version: str | None
    is_xpu_available: str
    pip_version: str
    pip_packages: str
    conda_packages: str | None
    hip_compiled_version: str
    hip_runtime_version: str
    miopen_runtime_version: str
    caching_allocator_config: str
    is_xnnpack_available: str
    cpu_info: str | None


# -- running programs -----------------------------------------------------------------------------


def run(command: str | Sequence[str]) -> tuple[int, str, str]:
    """(exit status, stdout, stderr) of a command, without spaces around; text goes to a shell."""
    try:
        done = subprocess.run(
            command, shell=isinstance(command, str), capture_output=True, check=False
        )
    except OSError as error:
        return 127, "", str(error)
    texts = [part.decode(errors="replace").strip() for part in (done.stdout, done.stderr)]
    return done.returncode, texts[0], texts[1]


def run_and_read_all(run_lambda: Run, command: Any) -> str | None:
    """What the command wrote; None if it failed."""
    status, out, _ = run_lambda(command)
    return out if status == 0 else None


def run_and_parse_first_match(run_lambda: Run, command: Any, regex: str) -> str | None:
    """The first group of the first match in what the command wrote."""
    found = re.search(regex, run_and_read_all(run_lambda, command) or "")
    return found[1] if found else None


def run_and_return_first_line(run_lambda: Run, command: Any) -> str | None:
    """The first line that the command wrote."""
    out = run_and_read_all(run_lambda, command)
    return None if out is None else out.split("\n")[0]


# -- programs and packages ------------------------------------------------------------------------


def get_gcc_version(run_lambda: Run) -> str | None:
    """What gcc says that it is."""
    return run_and_parse_first_match(run_lambda, "gcc --version", r"gcc (.*)")


def get_clang_version(run_lambda: Run) -> str | None:
    """What clang says that it is."""
    return run_and_parse_first_match(run_lambda, "clang --version", r"clang version (.*)")


def get_cmake_version(run_lambda: Run) -> str | None:
    """What CMake says that it is."""
    return run_and_parse_first_match(run_lambda, "cmake --version", r"cmake (.*)")


def get_pip_packages(run_lambda: Run, patterns: Iterable[str] | None = None) -> tuple[str, str]:
    """("pip3", a line `name==version` for each installed package whose name has a pattern)."""
    wanted = tuple(PATTERNS if patterns is None else patterns)
    found = {d.name: d.version for d in importlib.metadata.distributions()}
    lines = [f"{n}=={v}" for n, v in sorted(found.items()) if any(p in n for p in wanted)]
    return "pip3", "\n".join(lines)


def get_conda_packages(run_lambda: Run, patterns: Iterable[str] | None = None) -> str | None:
    """The lines of `conda list` with a pattern."""
    out = run_and_read_all(run_lambda, [os.environ.get("CONDA_EXE", "conda"), "list"])
    if out is None:
        return None
    wanted = tuple(PATTERNS if patterns is None else patterns)
    lines = [line for line in out.splitlines() if not line.startswith("#")]
    return "\n".join([line for line in lines if any(p in line for p in wanted)])


# -- the machine ----------------------------------------------------------------------------------


def get_platform() -> str:
    """`linux`, `win32`, `darwin` or `cygwin`."""
    return "linux" if sys.platform.startswith("linux") else sys.platform


def get_python_platform() -> str:
    """Python's name of the platform."""
    return platform.platform()


def get_libc_version() -> str:
    """`glibc-2.36`, or "N/A" where it is another."""
    return "-".join(platform.libc_ver()) if get_platform() == "linux" else "N/A"


def get_lsb_version(run_lambda: Run) -> str | None:
    """The description that lsb_release gives."""
    return run_and_parse_first_match(run_lambda, "lsb_release -a", r"Description:\t(.*)")


def check_release_file(run_lambda: Run) -> str | None:
    """The distribution's name in /etc/*-release."""
    return run_and_parse_first_match(run_lambda, "cat /etc/*-release", r'PRETTY_NAME="(.*)"')


def get_mac_version(run_lambda: Run) -> str | None:
    """What sw_vers says."""
    return run_and_parse_first_match(run_lambda, "sw_vers -productVersion", r"(.*)")


def get_windows_version(run_lambda: Run) -> str | None:
    """Which Windows this is, as Python knows it."""
    return f"{platform.system()} {platform.release()} ({platform.version()})"


def get_os(run_lambda: Run) -> str | None:
    """The system's name and the machine's."""
    where = get_platform()
    if where in ("win32", "cygwin"):
        return get_windows_version(run_lambda)
    if where == "darwin":
        return f"macOS {get_mac_version(run_lambda)} ({platform.machine()})"
    named = get_lsb_version(run_lambda) or check_release_file(run_lambda) or where
    return f"{named} ({platform.machine()})"


def get_cpu_info(run_lambda: Run) -> str | None:
    """What the system's own program says about the processor."""
    commands = {
        "linux": "lscpu",
        "darwin": "sysctl -n machdep.cpu.brand_string",
        "win32": "wmic cpu get Name,Manufacturer,MaxClockSpeed /VALUE",
    }
    command = commands.get(get_platform())
    return None if command is None else run_and_read_all(run_lambda, command)


def get_nvidia_smi() -> str:
    """The name of the program that knows NVIDIA's GPUs."""
    return "nvidia-smi.exe" if get_platform() == "win32" else "nvidia-smi"


def get_gpu_info(run_lambda: Run) -> str | None:
    """NVIDIA's GPUs, a line each; without their numbers."""
    out = run_and_read_all(run_lambda, f"{get_nvidia_smi()} -L")
    return None if out is None else re.sub(r" \(UUID: .+?\)", "", out)


def get_nvidia_driver_version(run_lambda: Run) -> str | None:
    """The version of their driver."""
    return run_and_parse_first_match(run_lambda, get_nvidia_smi(), r"Driver Version: (.*?) ")


def get_running_cuda_version(run_lambda: Run) -> str | None:
    """The version of the CUDA compiler that is installed, if there is one."""
    return run_and_parse_first_match(run_lambda, "nvcc --version", r"release .+ V(.*)")


def get_cudnn_version(run_lambda: Run) -> str | None:
    """The files of cuDNN that the loader knows."""
    if get_platform() != "linux":
        return None
    out = run_and_read_all(run_lambda, "ldconfig -p") or ""
    return "\n".join(sorted(set(re.findall(r"=> (\S*libcudnn\S*)", out)))) or None


def get_cachingallocator_config() -> dict[str, str]:
    """What the environment says to PyTorch's allocators."""
    names = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
    return {name: os.environ[name] for name in names if os.environ.get(name)}


def get_cuda_module_loading_config() -> str:
    """N/A: no CUDA is loaded."""
    return "N/A"


def is_xnnpack_available() -> bool:
    """Whether there is XNNPACK: never."""
    return False


# -- all of it ------------------------------------------------------------------------------------


def get_env_info() -> SystemEnv:
    """All of the above; a few programs are run to find it."""
    pip_version, pip_packages = get_pip_packages(run)
    bits = 64 if sys.maxsize > 2**32 else 32
    version = sys.version.replace("\n", " ")
    config = get_cachingallocator_config()
    return SystemEnv(
        torch_version=str(__version__),
        is_debug_build="False",
        cuda_compiled_version="None",
        gcc_version=get_gcc_version(run),
        clang_version=get_clang_version(run),
        cmake_version=get_cmake_version(run),
        os=get_os(run),
        libc_version=get_libc_version(),
        python_version=f"{version} ({bits}-bit runtime)",
        python_platform=get_python_platform(),
        is_cuda_available="False",
        cuda_runtime_version=get_running_cuda_version(run),
        cuda_module_loading=get_cuda_module_loading_config(),
        nvidia_driver_version=get_nvidia_driver_version(run),
        nvidia_gpu_models=get_gpu_info(run),
        cudnn_version=get_cudnn_version(run),
        is_xpu_available="False",
        pip_version=pip_version,
        pip_packages=pip_packages,
        conda_packages=get_conda_packages(run),
        hip_compiled_version="N/A",
        hip_runtime_version="N/A",
        miopen_runtime_version="N/A",
        caching_allocator_config=", ".join(f"{n}: {v}" for n, v in config.items()) or "N/A",
        is_xnnpack_available=str(is_xnnpack_available()),
        cpu_info=get_cpu_info(run),
    )


def pretty_str(envinfo: SystemEnv) -> str:
    """A line for each, and what skimp itself stands on."""
    own = {
        "skimp": VERSION,
        "threads that skimp uses": get_num_threads(),
        **{name: importlib.metadata.version(name) for name in PACKAGES},
    }
    rows = [f"{name}: {value}" for name, value in own.items()]
    for name, value in envinfo._asdict().items():
        shown = "Could not collect" if value is None else str(value)
        rows.append(f"{name}:\n{shown}" if "\n" in shown else f"{name}: {shown}")
    return "\n".join(rows)


def get_pretty_env_info() -> str:
    """`get_env_info` as text."""
    return pretty_str(get_env_info())


def main() -> None:
    """Write it to stdout."""
    sys.stdout.write(f"{get_pretty_env_info()}\n")


if __name__ == "__main__":
    main()
