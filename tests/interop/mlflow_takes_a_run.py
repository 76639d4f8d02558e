"""A real MLflow server takes runs: parameters, the metrics of our CSV files, files, the model, the end, and a resume."""
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import mlflow
from common import LOCKSTEP, lockstep, metrics_of, train

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
uri = f"http://127.0.0.1:{port}"
server = subprocess.Popen([os.path.join(os.path.dirname(sys.executable), "mlflow"), "server", "--host", "127.0.0.1",
                           "--port", str(port), "--workers", "1"],
                          stdout=open("server.log", "w"), stderr=subprocess.STDOUT, start_new_session=True)
try:
    for _ in range(120):
        try:
            urllib.request.urlopen(uri + "/health", timeout=1)
            break
        except OSError:
            assert server.poll() is None, open("server.log").read()
            time.sleep(0.5)
    env = {"MLFLOW_TRACKING_URI": uri, "MLFLOW_EXPERIMENT_NAME": "interop", "no_proxy": "127.0.0.1"}
    os.environ.update(env)
    client = mlflow.MlflowClient(uri)

    def runs():
        experiment = client.get_experiment_by_name("interop")
        return client.search_runs([experiment.experiment_id], order_by=["attributes.start_time ASC"])

    output = train("run", env=env)
    assert len(runs()) == 1
    run = runs()[0]
    assert run.info.status == "FINISHED", run.info
    assert run.info.run_name == "run"
    assert run.data.params["optimizer"] == "Adam" and float(run.data.params["lr"]) == 0.01, run.data.params

    def check_metrics(epochs):
        for loader in ("train", "valid"):
            for metric, expected in metrics_of("run", loader).items():
                key = f"{loader}/{metric.replace('/', '.')}"
                found = sorted((point.step, point.value) for point in client.get_metric_history(run.info.run_id, key))
                assert [step for step, _ in found] == [step for step, _ in expected], (key, found, expected)
                for (_, value), (_, other) in zip(found, expected):
                    assert math.isclose(value, other, rel_tol=1e-9, abs_tol=1e-12), (key, found, expected)
            assert [step for step, _ in metrics_of("run", loader)["loss"]] == epochs

    check_metrics([1, 2])

    def files(folder=None):
        found = []
        for item in client.list_artifacts(run.info.run_id, folder):
            found += files(item.path) if item.is_dir else [item.path]
        return found

    kept = set(files())
    for name in ("documents/config.yml", "documents/environment.json", "summary.json",
                 "images/valid/confusion_matrix.0002.png"):
        assert name in kept, (name, kept)
    model = [name for name in kept if name.startswith("checkpoints/")]
    assert len(model) == 1, kept
    import torch

    state = torch.load(client.download_artifacts(run.info.run_id, model[0], "."))
    assert "model_state_dict" in state

    # A resume goes on with the same MLflow run, although a parameter has another value.
    lockstep("run", "-C", "config.yml", "--logdir", "run", "--resume", "last", "--num-epochs", "3", env=env)
    assert len(runs()) == 1
    check_metrics([1, 2, 3])
    assert runs()[0].info.status == "FINISHED"

    # Names and values that MLflow does not take do not lose anything else.
    train("odd", "hparams={../x: 1, 'a:ü': 2, long: %s}" % ("x" * 7000), env=env)
    odd = runs()[-1]
    assert odd.info.status == "FINISHED" and "valid/loss" in odd.data.metrics
    assert odd.data.params["_/x"] == "1" and len(odd.data.params["long"]) == 6000, odd.data.params

    # A run that fails is FAILED, and one that is interrupted KILLED.
    train("failed", "optimizer.lr=1e30", "terminate_on_nan=true", "num_epochs=50", env=env, expect=1)
    assert runs()[-1].info.status == "FAILED", runs()[-1].info
    long_run = subprocess.Popen([LOCKSTEP, "run", "-C", "config.yml", "num_epochs=100000", "--logdir", "killed"],
                                env={**os.environ, **env}, stdout=subprocess.DEVNULL)
    while not os.path.exists("killed/checkpoints/last.pth"):
        assert long_run.poll() is None
        time.sleep(0.1)
    long_run.send_signal(signal.SIGINT)
    long_run.wait(timeout=60)
    assert runs()[-1].info.status == "KILLED", runs()[-1].info
    assert "valid/loss" in runs()[-1].data.metrics
    count = len(runs())

    # MLFLOW_RUN_ID names a run that is there.
    mine = client.create_run(client.get_experiment_by_name("interop").experiment_id)
    train("mine", env={**env, "MLFLOW_RUN_ID": mine.info.run_id})
    assert len(runs()) == count + 1
    assert "valid/loss" in client.get_run(mine.info.run_id).data.metrics
finally:
    os.killpg(server.pid, signal.SIGTERM)
    try:
        server.wait(timeout=20)
    except subprocess.TimeoutExpired:
        os.killpg(server.pid, signal.SIGKILL)

# The server is gone: the run is trained nevertheless, with one warning at the start and one at the end.
shutil.rmtree("run")
began = time.time()
ran = subprocess.run([LOCKSTEP, "run", "-C", "config.yml", "--logdir", "run"], capture_output=True, text=True,
                     env={**os.environ, **env}, timeout=120)
assert ran.returncode == 0, ran.stderr
assert ran.stderr.count("warning") == 2, ran.stderr
print(f"MLflow {mlflow.__version__}: finished, resumed, failed, killed and given runs; "
      f"a run without the server took {time.time() - began:.1f} s")
