"""TensorBoard reads what we log: scalars, images, hyper-parameters, and text."""
import csv

import tensorboard
from common import train
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

train("run")


def events(folder):
    found = EventAccumulator(f"run/tensorboard/{folder}", size_guidance={"scalars": 0, "images": 0, "tensors": 0})
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
print(f"TensorBoard {tensorboard.version.VERSION}: {len(valid.Tags()['scalars'])} scalars, {len(images)} images")
