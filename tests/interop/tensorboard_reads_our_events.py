"""TensorBoard reads what we log: the scalars of the CSV files, images, hyper-parameters as text, histograms of the weights,
and a graph of the model."""
import glob
import math
import os

import tensorboard
from common import CONFIG, checkpoint, metrics_of, train
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

train("run", config=CONFIG.replace("callbacks: [", "callbacks: [HistogramsCallback, GraphCallback, "))


def events(folder):
    found = EventAccumulator(f"run/tensorboard/{folder}", size_guidance={"scalars": 0, "images": 0, "tensors": 0, "histograms": 0})
    found.Reload()
    return found


scalars = 0
for loader in ("train", "valid"):
    logged = events(loader)
    assert "loss" in metrics_of("run", loader)
    for metric, expected in metrics_of("run", loader).items():
        points = logged.Scalars(f"{metric}/epoch")
        assert [point.step for point in points] == [step for step, _ in expected] == [1, 2], (metric, points)
        for point, (_, value) in zip(points, expected):  # an event has float32
            assert math.isclose(point.value, value, rel_tol=1e-6, abs_tol=1e-9), (loader, metric, point, value)
        scalars += 1
valid = events("valid")
images = valid.Images("confusion_matrix")
assert [image.step for image in images] == [1, 2]
assert images[0].encoded_image_string.startswith(b"\x89PNG") and images[0].width > 0
top = events("")
tag = next(tag for tag in ("hparams/text_summary", "hparams") if tag in top.Tags()["tensors"])
text = top.Tensors(tag)[0].tensor_proto.string_val[0].decode()
assert "optimizer: Adam" in text and "lr: 0.01" in text, text
folders = sorted({os.path.relpath(os.path.dirname(file), "run/tensorboard")
                  for file in glob.glob("run/tensorboard/**/*tfevents*", recursive=True)})
histograms, nodes = {}, []
for folder in folders:
    found = events(folder)
    for tag in found.Tags()["histograms"]:
        histograms[tag] = found.Histograms(tag)
    if found.Tags()["graph"]:
        nodes = [node.name for node in found.Graph().node]
# The last histogram of an epoch is that of the weights in its checkpoint.
weights = checkpoint("run")["model_state_dict"]
for name in ("0.weight", "0.bias", "3.weight"):
    assert f"weights/{name}" in histograms and f"gradients/{name}" in histograms, (folders, list(histograms))
    last = histograms[f"weights/{name}"][-1].histogram_value
    values = weights[name].double()
    assert last.num == values.numel() and math.isclose(sum(last.bucket), last.num), (name, last)
    for found, expected in ((last.min, values.min()), (last.max, values.max()), (last.sum, values.sum()),
                            (last.sum_squares, values.square().sum())):
        assert math.isclose(found, expected.item(), rel_tol=1e-5, abs_tol=1e-5), (name, last, expected)
assert len(nodes) > 4 and len(set(nodes)) == len(nodes), nodes
print(f"TensorBoard {tensorboard.version.VERSION}: {scalars} scalars, {len(images)} images, "
      f"{len(histograms)} histograms, a graph of {len(nodes)} nodes")
