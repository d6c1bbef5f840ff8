"""Names of Hadoop's properties, to ask about one that is misspelt: Hadoop takes any name."""

import logging
import re
from functools import cache

import mapreduce.job  # noqa: F401  (makes mrjob import)

from mrjob.compat import _JOBCONF_MAP  # isort: skip

from mapreduce.support.suggest import did_you_mean

#: What people set of Hadoop 3's mapred-default.xml and streaming that mrjob does not know. It need
#: not be complete: nothing is said of a name that is like none of these.
_NEWER = """
mapred.child.env mapred.child.java.opts mapreduce.am.max-attempts
mapreduce.fileoutputcommitter.algorithm.version mapreduce.fileoutputcommitter.marksuccessfuljobs
mapreduce.framework.name mapreduce.input.fileinputformat.input.dir.recursive
mapreduce.input.fileinputformat.list-status.num-threads mapreduce.job.acl-modify-job
mapreduce.job.acl-view-job mapreduce.job.am.node-label-expression mapreduce.job.classloader
mapreduce.job.counters.max mapreduce.job.encrypted-intermediate-data
mapreduce.job.encrypted-intermediate-data-key-size-bits
mapreduce.job.encrypted-intermediate-data.buffer.kb mapreduce.job.end-notification.max.attempts
mapreduce.job.end-notification.max.retry.interval mapreduce.job.max.map
mapreduce.job.node-label-expression mapreduce.job.running.map.limit
mapreduce.job.running.reduce.limit mapreduce.job.speculative.speculative-cap-running-tasks
mapreduce.job.speculative.speculative-cap-total-tasks mapreduce.job.tags
mapreduce.job.token.tracking.ids mapreduce.job.token.tracking.ids.enabled
mapreduce.job.ubertask.enable mapreduce.job.ubertask.maxbytes mapreduce.job.ubertask.maxmaps
mapreduce.job.ubertask.maxreduces mapreduce.map.cpu.vcores mapreduce.map.node-label-expression
mapreduce.reduce.cpu.vcores mapreduce.reduce.node-label-expression
mapreduce.reduce.shuffle.memory.limit.percent mapreduce.task.combine.progress.records
mapreduce.task.exit.timeout mapreduce.task.profile.map.params mapreduce.task.profile.reduce.params
mapreduce.task.stuck.timeout-ms stream.map.input.field.separator stream.map.input.ignoreKey
stream.map.output.field.separator stream.non.zero.exit.is.failure stream.num.map.output.key.fields
stream.num.reduce.output.key.fields stream.reduce.input.field.separator
stream.reduce.output.field.separator yarn.app.mapreduce.am.admin-command-opts
yarn.app.mapreduce.am.command-opts yarn.app.mapreduce.am.env yarn.app.mapreduce.am.log.level
yarn.app.mapreduce.am.resource.cpu-vcores yarn.app.mapreduce.am.resource.mb
yarn.app.mapreduce.am.staging-dir
"""

KNOWN = frozenset(_JOBCONF_MAP) | {*_NEWER.split()}

log = logging.getLogger(__name__)

_FAMILY = re.compile(r"(?:mapreduce|mapred|stream|yarn\.app\.mapreduce)\.(?=.)")

#: Properties of one family are alike: this is the likeness of what follows its name.
_ALIKE = 0.8


def question(name: str) -> str:
    """ "Did you mean ...?" for the name of a property; "" for one that may be right."""
    family = _FAMILY.match(name)
    if name in KNOWN or not family:
        return ""
    # The newest of equal names comes last.
    known = {_FAMILY.sub("", one, count=1): one for one in sorted(KNOWN)}
    found = did_you_mean(name[family.end() :], known, alike=_ALIKE)
    rest = found.removeprefix(" Did you mean ").removesuffix("?")
    return f"Did you mean {known[rest]}?" if found else ""


@cache
def warn_of(name: str) -> None:
    """Ask about a property, once for all jobs of this process."""
    if asked := question(name):
        log.warning("no property of Hadoop called %s is known here. %s", name, asked)
