"""Workers: they share connections and memory, are replaced, and end; a reload loses no request."""

import contextlib
import json
import os
import shutil
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.client import HTTPException
from pathlib import Path

import numpy as np
import pytest

import mapreduce
from mapreduce.cli.main import main
from mapreduce.models.fitted import FittedModel
from mapreduce.runs.directory import RunDir
from mapreduce.serving import connections
from mapreduce.serving.metrics import Metrics
from programs import lives, wait_until
from services import Service, drawn, trained
from wide_tables import table_of

PATH = "/v2/models/changing/infer"
ASKED = {"inputs": [{"name": "input", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}


def sockets_of(pid):
    links = [str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()]
    return sum(link.startswith("socket:") for link in links)


def change(service, number):
    """Have another model at the place of one that is served."""
    new = service.folder / "new"
    shutil.copy(service.folder / f"{number}.safetensors", new)
    new.replace(service.folder / "changing.safetensors")


def answers_of(service):
    """What each of the models answers, by its digest."""
    found = {}
    for number in range(2):
        model = mapreduce.load(service.folder / f"{number}.safetensors")
        expected = model.predict(np.array([[1.0, 2, 3, 4]]), probabilities=True)[0].tolist()
        found[model.model_sha256] = expected
    return found


def turns_of(pid):
    """How often a process has waited, as each worker does ten times a second."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def clients_of(service, count, stack):
    """Clients whose connections are open; before each of them no worker has stood still."""
    for _ in range(count):
        for pid in service.workers:
            before = turns_of(pid)
            wait_until(lambda pid=pid, before=before: turns_of(pid) > before)
        client = stack.enter_context(contextlib.closing(service.client()))
        assert client.ask("/v2/health/live")[0] == 200
        yield client


@pytest.mark.parametrize("count", [8, 32])
def test_each_worker_takes_connections(changing, count):
    # Those that others have closed are gone in a moment.
    wait_until(lambda: len({sockets_of(pid) for pid in changing.workers}) == 1)
    before = sockets_of(changing.workers[0])
    with contextlib.ExitStack() as stack:
        assert len([*clients_of(changing, count, stack)]) == count
        assert min(sockets_of(pid) for pid in changing.workers) - before >= count // 4


def test_a_worker_knows_whether_it_is_ahead():
    counts = Metrics(["changing"], 4)
    for row, count in enumerate([5, 0, 3, 2]):
        counts.take(row)
        counts.connect(count)
    ahead = []
    for row in range(4):
        # As the process that counts there.
        vars(counts)["_row"] = row
        ahead.append(counts.is_ahead)
    assert ahead == [True, False, True, False]


def sha256_of(answer):
    """The digest of the model that has answered."""
    return json.loads(answer[2])["parameters"]["model_sha256"]


def asking(service, is_over, expected, seen):
    """Ask on a connection that stays; notes the digests of the models that have answered."""
    with contextlib.closing(service.client()) as client:
        while not is_over():
            # A worker that ends waits for a second.
            status, _, body = client.ask_in_time(connections._LAST_SECONDS, PATH, ASKED)
            found = json.loads(body)
            assert status == 200, found
            sha256 = found["parameters"]["model_sha256"]
            values = [float(np.float32(value)) for value in found["outputs"][1]["data"]]
            assert values == expected[sha256]
            seen.append(sha256)


@pytest.mark.parametrize(
    ("reloads", "count"), [(2, 4), pytest.param(10, 16, marks=pytest.mark.long)]
)
def test_reloads_lose_no_request(changing, reloads, count):
    expected, over = answers_of(changing), threading.Event()
    digests, old = [*expected], set()
    seen = [[] for _ in range(count)]
    with ThreadPoolExecutor(count) as pool:
        clients = [pool.submit(asking, changing, over.is_set, expected, one) for one in seen]
        try:
            for number in range(reloads + 1):
                if number:
                    change(changing, number % 2)
                    old |= {*changing.workers}
                    changing.reload()
                begun = [len(one) for one in seen]
                # Each of them goes on, and has an answer of this model.
                wait_until(
                    lambda begun=begun, digest=digests[number % 2]: (
                        any(client.done() for client in clients)
                        or all(digest in one[at:] for at, one in zip(begun, seen, strict=True))
                    )
                )
        finally:
            over.set()
        for client in clients:
            client.result()
    assert all({*one} == expected.keys() for one in seen)
    wait_until(lambda: not any(map(lives, old)))
    for _ in range(20):
        assert sha256_of(changing.ask(PATH, ASKED)) == digests[reloads % 2]


def test_a_worker_that_is_killed_is_replaced(changing):
    dead, _ = changing.workers
    stack = contextlib.ExitStack()
    clients = [*clients_of(changing, 8, stack)]
    first = len(changing.said)
    os.kill(dead, signal.SIGKILL)
    changing.wait(f"worker {dead} ended with -9. Another one takes its place", first)
    lost = 0
    for client in clients:
        try:
            assert client.ask("/v2/health/live")[0] == 200
        except (HTTPException, OSError):
            lost += 1
    stack.close()
    assert lost < 8
    assert changing.ask(PATH, ASKED)[0] == 200
    changing.reload()
    assert dead not in changing.workers


def test_the_old_models_stay_if_the_new_ones_are_damaged(changing):
    path, first = changing.folder / "changing.safetensors", len(changing.said)
    before = json.loads(changing.ask(PATH, ASKED)[2])
    path.write_bytes(path.read_bytes()[:-9])
    changing.process.send_signal(signal.SIGHUP)
    line = changing.wait("warning: the models are not loaded anew.*", first)[0]
    assert "changing.safetensors is damaged" in line
    assert json.loads(changing.ask(PATH, ASKED)[2]) == before
    change(changing, 0)
    changing.reload()


def test_a_service_ends_when_it_is_asked_to(tmp_path):
    drawn(tmp_path / "changing.safetensors", "mlp:9", (4,), (0, 1, 2), 3)
    token = tmp_path / "token"
    token.write_text("0123456789abcdef\n")
    service = Service(tmp_path / "changing.safetensors", "--token-file", token)
    secret = {"Authorization": "Bearer 0123456789abcdef"}
    for headers in ({}, {"Authorization": "Bearer 0123456789abcdeg"}):
        status, _, body = service.ask(PATH, ASKED, **headers)
        assert (status, json.loads(body)["error"][:14]) == (401, "authorization:")
    assert service.ask("/v2/health/ready")[0] == 200
    client = service.client()
    assert client.ask(PATH, ASKED, **secret)[0] == 200
    service.process.send_signal(signal.SIGTERM)
    service.wait("ending")
    # Each connection has one more answer, if it asks in time.
    try:
        while client.ask(PATH, ASKED, **secret)[1]["connection"] != "close":
            pass
    except (HTTPException, OSError):
        assert client.silence >= connections._LAST_SECONDS
    client.close()
    assert service.stop() == 0
    assert not any(map(lives, service.workers))


def test_workers_end_with_the_parent(tmp_path):
    path = drawn(tmp_path / "changing.safetensors", "mlp:9", (4,), (0, 1, 2), 3)
    service = Service(path)
    service.process.kill()
    wait_until(lambda: not any(map(lives, service.workers)))
    assert service.stop() == -9


def refused(capsys, *arguments, code=2):
    """What the command says that cannot begin."""
    assert main(["serve", *map(str, arguments)]) == code
    return capsys.readouterr().err


@pytest.mark.usefixtures("pinned")
def test_what_cannot_be_served_is_refused(tmp_path, capsys):
    path = drawn(tmp_path / "one.safetensors", "mlp:9", (4,), (0, 1, 2), 3)
    assert "is called one, too" in refused(capsys, path, path)
    model = replace(FittedModel.load(path), numeric_profile="portable")
    model.save(tmp_path / "two.safetensors")
    said = refused(capsys, path, tmp_path / "two.safetensors")
    assert "one numeric profile: one has native, two has portable" in said
    assert "by --no-token" in refused(capsys, path, "--host", "0.0.0.0")
    assert "found nothing" in refused(capsys, path, "--token-file", tmp_path / "nix", code=66)
    assert "found a folder" in refused(capsys, path, "--token-file", tmp_path, code=66)
    (tmp_path / "token").write_text("short")
    assert "16 or more" in refused(capsys, path, "--token-file", tmp_path / "token")
    both = ["--no-token", "--token-file", tmp_path / "token"]
    assert "name one of them" in refused(capsys, path, *both)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        said = refused(capsys, path, "--port", port)
        assert f"--port {port}: nobody can listen there: Address already in use" in said
    assert "does not exist" in refused(capsys, tmp_path / "nix.safetensors", code=66)
    run = RunDir(trained(table_of(40, 1, False), tmp_path / "run"))
    shutil.rmtree(run.checkpoints)
    (run.path / "result.json").unlink()
    assert "has no checkpoint yet" in refused(capsys, run.path, code=66)
