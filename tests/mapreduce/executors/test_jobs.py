"""The toolkit's own jobs: what they are called."""

from hdfs_utils.paths import RemotePath
from mapreduce.executors.jobs import label_of
from quick import cases


@cases(
    "run, label",
    ("/home/me/runs/digits", "gang-digits"),
    (RemotePath("hdfs://name:8020/runs/gang 7"), "gang-gang-7"),
    ("runs/größe/../ö/", "gang"),
    ("/", "gang"),
    ("/runs/" + "x" * 255, "gang-" + "x" * 60),
    ("/runs/.a;rm -r b", "gang-a-rm--r-b"),
)
def test_a_job_is_called_by_its_run(run, label):
    assert label_of(run, "gang") == ["--label", label]
