"""Each place of mrjob's that is replaced: what mrjob has there, and what replaces it."""

import ast
import json
import sys
from pathlib import Path

import mapreduce
import programs

#: Imports mrjob, notes what it has, has the toolkit patch it, and prints what is another object:
#: the digest of mrjob's source there, None where it has nothing, and the file of what replaces it.
FIND = """
import hashlib
import importlib
import inspect
import json
import sys
from pathlib import Path
from mapreduce import compat

compat.install()
for name in "job runner inline local hadoop sim step util cat conf fs.local".split():
    importlib.import_module(f"mrjob.{name}")

def spaces():
    for name, module in sorted(sys.modules.items()):
        if name == "mrjob" or name.startswith("mrjob."):
            yield name, module
            for each in {**vars(module)}.values():
                if inspect.isclass(each) and each.__module__ == name:
                    yield f"{name}.{each.__qualname__}", each

before = {place: dict(vars(space)) for place, space in spaces()}

import mrjob.runner
from mapreduce.job import calls

calls.install()
for alias in ("inline", "local"):
    mrjob.runner._runner_class(alias)

def plain(value):
    return getattr(value, "__func__", getattr(value, "fget", value))

def source(value):
    value = plain(value)
    if not getattr(value, "__module__", "").startswith("mrjob"):
        # Of another library, whose source differs between versions of Python.
        return getattr(value, "__name__", type(value).__name__)
    return hashlib.sha256(inspect.getsource(value).encode()).hexdigest()[:16]

def file(value):
    value = plain(value)
    kind = value if inspect.isclass(value) else type(value)
    code, module = getattr(value, "__code__", None), sys.modules[kind.__module__]
    path = Path(code.co_filename if code else getattr(module, "__file__", None) or "")
    is_ours = path.is_relative_to(Path(compat.__file__).parents[1])
    return "/".join(path.parts[-2:]) if is_ours else ""

found = {}
for place, space in spaces():
    for name, value in vars(space).items():
        kept = before.get(place, {}).get(name)
        is_import = inspect.ismodule(value) and value.__name__.startswith("mrjob")
        if place in before and value is not kept and not is_import:
            found[f"{place}.{name}"] = [kept and source(kept), file(value)]
print(json.dumps(found, indent=1))
"""

#: What mrjob has in a place, and which of our files has what replaces it; "" for a name alone.
PLACES = {
    "mrjob.cat.decompress": ("fc596ee361463c1a", "mrjob_patches/registry.py"),
    "mrjob.cat.is_compressed": ("79e069592ee59cae", "mrjob_patches/registry.py"),
    "mrjob.compat.get_jobconf_value": (None, ""),
    "mrjob.fs.hadoop.decompress": ("fc596ee361463c1a", "mrjob_patches/registry.py"),
    "mrjob.fs.local.decompress": ("fc596ee361463c1a", "mrjob_patches/registry.py"),
    "mrjob.fs.local.glob": ("glob", ""),
    "mrjob.inline.InlineMRJobRunner.OPT_NAMES": (None, ""),
    "mrjob.inline.InlineMRJobRunner._input_paths_for_step": (None, "mrjob_patches/registry.py"),
    "mrjob.inline.InlineMRJobRunner._invoke_task_func": (
        "5db7030d0559ee58",
        "mrjob_patches/registry.py",
    ),
    "mrjob.inline.InlineMRJobRunner._parse_task_counters": (None, "mrjob_patches/registry.py"),
    "mrjob.job.MRJob.__init__": ("cecc1a17684c1e34", "mrjob_patches/registry.py"),
    "mrjob.job.MRJob._combine_or_reduce_pairs": ("114c99ae04152c29", "job/calls.py"),
    "mrjob.job.MRJob._kwargs_from_switches": ("13389c433a29fe1d", "mrjob_patches/options.py"),
    "mrjob.job.MRJob._non_option_kwargs": ("81e7dc4d229c8073", "mrjob_patches/options.py"),
    "mrjob.job.MRJob._print_help": ("ed8d93e3a50ba745", "mrjob_patches/options.py"),
    "mrjob.job.MRJob._runner_kwargs": ("2bcd6ebb1e80907c", "mrjob_patches/registry.py"),
    "mrjob.job.MRJob._runner_opt_names_for_help": ("7048dff3df08a1cc", "mrjob_patches/options.py"),
    "mrjob.job.MRJob.add_file_option": (None, "mrjob_patches/old_api.py"),
    "mrjob.job.MRJob.add_passthrough_option": (None, "mrjob_patches/old_api.py"),
    "mrjob.job.MRJob.args": (None, "mrjob_patches/old_api.py"),
    "mrjob.job.MRJob.configure_args": ("14bdffd44a977d09", "mrjob_patches/old_api.py"),
    "mrjob.job.MRJob.configure_options": (None, "mrjob_patches/old_api.py"),
    "mrjob.job.MRJob.execute": ("ccd70ea8808133dc", "job/calls.py"),
    "mrjob.job.MRJob.is_mapper_or_reducer": (None, "mrjob_patches/old_api.py"),
    "mrjob.job.MRJob.load_args": ("a0cce51336b5bb03", "mrjob_patches/old_api.py"),
    "mrjob.job.MRJob.load_options": (None, "mrjob_patches/old_api.py"),
    "mrjob.job.MRJob.make_runner": ("df45f5287c882fcc", "job/calls.py"),
    "mrjob.job.MRJob.map_pairs": ("813f13cc4764c1fa", "job/calls.py"),
    "mrjob.job.MRJob.mr": (None, "mrjob_patches/old_api.py"),
    "mrjob.job.MRJob.mr_job_script": ("3d2c1dd225a91223", "mrjob_patches/registry.py"),
    "mrjob.job.MRJob.option_parser": (None, "mrjob_patches/old_api.py"),
    "mrjob.job.MRJob.parse_output_line": (None, "mrjob_patches/old_api.py"),
    "mrjob.job.MRJob.pass_through_option": (None, "mrjob_patches/old_api.py"),
    "mrjob.job.MRJob.run_job": ("07dfe0b2a3cb1061", "job/calls.py"),
    "mrjob.job._parse_raw_args": ("bdc49889985fbae0", "mrjob_patches/options.py"),
    "mrjob.job._runner_class": ("9d27c6d8e7c910a8", "mrjob_patches/registry.py"),
    "mrjob.job.decompress": ("fc596ee361463c1a", "mrjob_patches/registry.py"),
    "mrjob.local.LocalMRJobRunner.OPT_NAMES": ("set", ""),
    "mrjob.local.LocalMRJobRunner._input_paths_for_step": (None, "mrjob_patches/registry.py"),
    "mrjob.local.LocalMRJobRunner._parse_task_counters": (None, "mrjob_patches/registry.py"),
    "mrjob.local.Pool": ("Pool", "mrjob_patches/pool.py"),
    "mrjob.local.check_call": ("check_call", "mrjob_patches/registry.py"),
    "mrjob.runner.MRJobRunner._check_step": ("dca9a743bf1c5ae1", "mrjob_patches/registry.py"),
    "mrjob.runner.MRJobRunner._get_input_paths": ("97d9ab12acab93ba", "mrjob_patches/registry.py"),
    "mrjob.runner.MRJobRunner._get_local_tmp_dir": ("19452f922dfc78d3", ""),
    "mrjob.runner.MRJobRunner._make_unique_job_key": (
        "c2634448337ba110",
        "mrjob_patches/registry.py",
    ),
    "mrjob.runner.MRJobRunner.run": ("9145e6c1d05278fb", "mrjob_patches/registry.py"),
    "mrjob.runner.MRJobRunner.stream_output": (None, "mrjob_patches/old_api.py"),
    "mrjob.runner._runner_class": ("9d27c6d8e7c910a8", "mrjob_patches/registry.py"),
    "mrjob.runner.load_opts_from_mrjob_confs": ("7a76a4b8c4f506b7", "mrjob_patches/registry.py"),
    "mrjob.sim.decompress": ("fc596ee361463c1a", "mrjob_patches/registry.py"),
    "mrjob.sim.is_compressed": ("79e069592ee59cae", "mrjob_patches/registry.py"),
    "mrjob.step.MRJobStep": (None, ""),
    "mrjob.util.buffer_iterator_to_line_iterator": (None, ""),
}


def test_places_of_mrjob_that_are_replaced():
    """If mrjob has changed in one, look at what replaces it before its digest is written here."""
    found = json.loads(programs.ran(sys.executable, "-c", FIND).stdout)
    assert {place: tuple(one) for place, one in found.items()} == PLACES


#: Files beside ``mrjob_patches`` that replace something: what calls a job's methods needs more than
#: that folder may import, and boto3's clients are replaced where EMR is used.
ELSEWHERE = {"job/calls.py", "runners/emr/clients.py"}


def replaced(source: str) -> list[str]:
    """Attributes of mrjob's modules and classes that a source assigns to."""
    found = []
    for node in ast.walk(ast.parse(source)):
        targets = node.targets if isinstance(node, ast.Assign) else []
        for target in (each for one in targets for each in ast.walk(one)):
            text = ast.unparse(target)
            if isinstance(target, ast.Attribute) and text.lower().startswith("mrjob"):
                found += [text] if isinstance(target.ctx, ast.Store) else []
    return found


def test_nothing_is_replaced_elsewhere():
    folder = Path(mapreduce.__file__).parent
    files = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.py")}
    found = {name for name, source in files.items() if replaced(source)}
    assert {name for name in found if not name.startswith("mrjob_patches/")} == ELSEWHERE
    assert replaced("MRJob.a, mrjob.b.c = 1, 2; x = mrjob.b; job.a = 1") == ["MRJob.a", "mrjob.b.c"]
