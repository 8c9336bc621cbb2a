"""Extensions with CUDA sources: translate them to HIP, compile with hipcc; with setuptools, or where they are used.

Reads ROCM_HOME and PYTORCH_ROCM_ARCH (targets joined by ;, by default those that torch was
built for); compiles ``max_jobs`` files at the same time (MAX_JOBS, by default one a core).
"""

import importlib.util
import os
import shlex
import subprocess
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import setuptools
from setuptools.command.build_ext import build_ext

import torch
from torch.utils.hipify import hipify_python

TORCH = Path(torch.__file__).resolve().parent
ROCM_HOME = os.environ.get("ROCM_HOME") or os.environ.get("ROCM_PATH")
MACROS = [("USE_ROCM", "1"), ("__HIP_PLATFORM_AMD__", "1")]  # hipify turns USE_CUDA into USE_ROCM
LIBRARIES = ["c10", "torch_cpu", "torch_hip"]


def _targets():
    """Return the GPU targets to compile for."""
    return (os.environ.get("PYTORCH_ROCM_ARCH") or torch._C._cuda_getArchFlags()).replace(";", " ").split()


def hipify(sources, root=None):
    """Translate CUDA sources below ``root``, by default the current folder; return what is compiled instead."""
    root = root or os.getcwd()
    results = hipify_python.hipify(
        project_directory=root,
        output_directory=root,
        includes=[os.path.join(root, "*")],
        extra_files=[os.path.abspath(source) for source in sources],
        is_pytorch_extension=True,
        hipify_extra_files_only=True,
    )
    translated = (results[os.path.abspath(source)].hipified_path for source in sources)
    return sorted({os.path.relpath(path or source, root) for path, source in zip(translated, sources)})


def CUDAExtension(name, sources, **options):
    """Describe an extension whose sources are CUDA and C++."""
    includes = [str(TORCH / "include"), *options.pop("include_dirs", [])]
    folders = [str(TORCH / "lib"), os.path.join(ROCM_HOME, "lib")]
    return setuptools.Extension(
        name,
        hipify(sources),
        define_macros=[*MACROS, *options.pop("define_macros", [])],
        include_dirs=[*includes, os.path.join(ROCM_HOME, "include")],
        library_dirs=[*folders, *options.pop("library_dirs", [])],
        libraries=[*LIBRARIES, "amdhip64", *options.pop("libraries", [])],
        language="c++",
        **options,
    )


def CppExtension(name, sources, **options):
    """Describe an extension for the host alone."""
    includes = [str(TORCH / "include"), *options.pop("include_dirs", [])]
    return setuptools.Extension(
        name,
        sources,
        include_dirs=includes,
        library_dirs=[str(TORCH / "lib"), *options.pop("library_dirs", [])],
        libraries=["c10", "torch_cpu", *options.pop("libraries", [])],
        language="c++",
        **options,
    )


class BuildExtension(build_ext):
    """Compiles .hip files with hipcc and everything else as setuptools does."""

    def build_extensions(self):
        self.compiler.src_extensions.append(".hip")
        # some interpreters are linked with a folder of their builder's machine; it is none of ours
        for linker in ("linker_so", "linker_so_cxx"):
            words = getattr(self.compiler, linker, None) or []
            setattr(self.compiler, linker, [word for word in words if not word.startswith("-Wl,-rpath")])
        compile_all = self.compiler.compile

        def compile_with_hip(sources, output_dir=None, include_dirs=None, **options):
            kernels = [source for source in sources if source.endswith(".hip")]
            rest = [source for source in sources if not source.endswith(".hip")]
            made = {source: os.path.join(output_dir, f"{source}.o") for source in kernels}
            with ThreadPoolExecutor(int(os.environ.get("MAX_JOBS") or os.cpu_count() or 1)) as pool:
                list(pool.map(lambda item: compile_kernels(*item, include_dirs or []), made.items()))
            objects = compile_all(rest, output_dir=output_dir, include_dirs=include_dirs, **options) if rest else []
            return [*objects, *made.values()]

        self.compiler.compile = compile_with_hip
        super().build_extensions()


def compile_kernels(source, target, includes):
    """Compile one kernel file."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    line = [os.path.join(ROCM_HOME, "bin", "hipcc"), "-std=c++17", "-O2", "-fPIC", "--offload-compress"]
    line += [f"-D{name}={value}" for name, value in MACROS]
    line += [f"-I{folder}" for folder in includes]
    line += [f"--offload-arch={target_name}" for target_name in _targets()]
    line += ["-c", source, "-o", target]
    print(" ".join(line), flush=True)
    subprocess.run(line, check=True)


def load(name, sources):
    """Compile an extension where it is used, and import it. TORCH_EXTENSIONS_DIR: where its files go."""
    folder = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or "~/.cache/torch_extensions").expanduser() / name
    folder.mkdir(parents=True, exist_ok=True)
    root = os.path.commonpath([os.path.dirname(source) for source in sources])
    includes = [str(TORCH / "include"), os.path.join(ROCM_HOME, "include"), sysconfig.get_path("include")]
    compiler = [*shlex.split(os.environ.get("CXX", "c++")), "-std=c++17", "-O2", "-fPIC"]
    objects = []
    for source in hipify(sources, root):
        objects.append(str(folder / f"{source}.o"))
        if source.endswith(".hip"):
            compile_kernels(os.path.join(root, source), objects[-1], includes)
            continue
        words = [*(f"-D{name}={value}" for name, value in MACROS), *(f"-I{place}" for place in includes)]
        subprocess.run([*compiler, *words, "-c", os.path.join(root, source), "-o", objects[-1]], check=True)
    library = folder / f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}"
    places = [str(TORCH / "lib"), os.path.join(ROCM_HOME, "lib")]
    linking = [*(f"-L{place}" for place in places), *(f"-l{library}" for library in [*LIBRARIES, "amdhip64"])]
    subprocess.run([*compiler, "-shared", *objects, *linking, "-o", library], check=True)
    found = importlib.util.spec_from_file_location(name, library)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module
