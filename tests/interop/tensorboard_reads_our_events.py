"""TensorBoard reads what we log: scalars, images, hyper-parameters, text, histograms, and the graph of the model."""
import csv
import glob
import os

import tensorboard
from common import CONFIG, train
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

train("run", config=CONFIG.replace("callbacks: [", "callbacks: [HistogramsCallback, GraphCallback, "))


def events(folder):
    found = EventAccumulator(f"run/tensorboard/{folder}", size_guidance={"scalars": 0, "images": 0, "tensors": 0, "histograms": 0})
    found.Reload()
    return found


valid = events("valid")
assert "loss/epoch" in valid.Tags()["scalars"], valid.Tags()
points = valid.Scalars("loss/epoch")
assert [point.step for point in points] == [1, 2]
with open("run/logs/valid.csv") as file:
    rows = list(csv.DictReader(file))
for row, point in zip(rows, points):
    assert abs(float(row["loss"]) - point.value) < 1e-6
images = valid.Images("confusion_matrix")
assert [image.step for image in images] == [1, 2]
assert images[0].encoded_image_string.startswith(b"\x89PNG") and images[0].width > 0
top = events("")
assert "hparams/text_summary" in top.Tags()["tensors"] or "hparams" in top.Tags()["tensors"], top.Tags()
folders = sorted({os.path.relpath(os.path.dirname(file), "run/tensorboard")
                  for file in glob.glob("run/tensorboard/**/*tfevents*", recursive=True)})
histograms, nodes = {}, []
for folder in folders:
    found = events(folder)
    for tag in found.Tags()["histograms"]:
        histograms[tag] = found.Histograms(tag)
    if found.Tags()["graph"]:
        nodes = [node.name for node in found.Graph().node]
weight = [tag for tag in histograms if "0.weight" in tag]
assert weight, (folders, list(histograms))
last = histograms[weight[0]][-1].histogram_value
assert last.num == 4 * 8 and last.min <= last.max and abs(sum(last.bucket) - last.num) < 1e-6, last
assert len(nodes) > 4 and len(set(nodes)) == len(nodes), nodes
print(f"TensorBoard {tensorboard.version.VERSION}: {len(valid.Tags()['scalars'])} scalars, {len(images)} images, "
      f"{len(histograms)} histograms, a graph of {len(nodes)} nodes")
