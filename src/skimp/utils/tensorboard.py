"""torch.utils.tensorboard: event files for TensorBoard, written by the package `tensorboard`."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping
from io import BytesIO
from typing import Any, NoReturn

import numpy as np

from skimp._compat.modules import lookup as _lookup, public as _public
from skimp._engine.tensor.tensor import Array, Tensor

__all__ = ["SummaryWriter"]
__all__.extend(_public(__name__))
__getattr__ = _lookup(__name__)


def _parts() -> tuple[Any, ...]:
    """The package's modules; an ImportError says how to get them."""
    try:
        # an extra package: a program without it has the names of this module
        from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, tensor_shape_pb2

        # the same
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError as error:
        raise ImportError(
            "torch.utils.tensorboard writes with the package tensorboard, which is not installed: "
            "pip install tensorboard"
        ) from error
    return event_pb2, summary_pb2, tensor_pb2, tensor_shape_pb2, EventFileWriter


def array_of(value: Any) -> Array:
    """A tensor, array, number or list of them as an array of numbers that files know."""
    if isinstance(value, Tensor):
        value = value.detach().float() if value.is_floating_point() else value.detach()
        array: Array = value.numpy()
        return array
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], Tensor):
        return np.stack([array_of(v) for v in value])
    return np.asarray(value)


class SummaryWriter:
    """Writes scalars, histograms, images, text and figures for TensorBoard into a folder.

    The folder is `log_dir`, or one below `runs` that is named by time and host. Nothing of it is
    read by skimp. `add_graph` is refused: there is no graph of a program to show.
    """

    def __init__(
        self,
        log_dir: Any = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: int = 120,
        filename_suffix: str = "",
    ) -> None:
        parts: Any = _parts()
        self._event, self._summary, self._tensor, self._shape, writer = parts
        if not log_dir:
            now = time.strftime("%b%d_%H-%M-%S")
            log_dir = os.path.join("runs", f"{now}_{socket.gethostname()}{comment}")
        self.log_dir = str(log_dir)
        self.purge_step = purge_step
        self._writer, self._how = writer, (max_queue, flush_secs, filename_suffix)
        self._writers: dict[str, Any] = {self.log_dir: self._make(self.log_dir)}
        self._open = True
        if purge_step is not None:
            self._write_event(self._event.Event(step=purge_step, file_version="brain.Event:2"))
            session = self._event.SessionLog(status=self._event.SessionLog.START)
            self._write_event(self._event.Event(step=purge_step, session_log=session))

    def _make(self, folder: str) -> Any:
        return self._writer(folder, *self._how)

    # -- writing ----------------------------------------------------------------------------------

    def _write_event(self, event: Any, walltime: float | None = None, folder: Any = None) -> None:
        event.wall_time = time.time() if walltime is None else walltime
        folder = folder or self.log_dir
        if folder not in self._writers:
            self._writers[folder] = self._make(folder)
        if not self._open:  # PyTorch goes on after close(), in another file
            self._writers = {f: self._make(f) for f in self._writers}
            self._open = True
        self._writers[folder].add_event(event)

    def _add(self, value: Any, step: Any, walltime: float | None, folder: Any = None) -> None:
        event = self._event.Event(summary=self._summary.Summary(value=[value]))
        if step is not None:
            event.step = int(step)
        self._write_event(event, walltime, folder)

    def _value(self, tag: str, **content: Any) -> Any:
        return self._summary.Summary.Value(tag=tag.lstrip("/"), **content)

    def _plugin(self, name: str) -> Any:
        """Says which part of TensorBoard shows a value."""
        data = self._summary.SummaryMetadata.PluginData(plugin_name=name)
        return self._summary.SummaryMetadata(plugin_data=data)

    # -- what programs add ------------------------------------------------------------------------

    def add_scalar(
        self,
        tag: str,
        scalar_value: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        """One number."""
        number = _number(scalar_value)
        self._add(self._value(tag, simple_value=number), global_step, walltime)

    def add_scalars(
        self,
        main_tag: str,
        tag_scalar_dict: Mapping[str, Any],
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """Several numbers for one chart, each in a folder of its own."""
        for tag, value in tag_scalar_dict.items():
            folder = f"{self.log_dir}/{main_tag.replace('/', '_')}_{tag}"
            content = self._value(main_tag, simple_value=_number(value))
            self._add(content, global_step, walltime, folder)

    def add_tensor(
        self,
        tag: str,
        tensor: Tensor,
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """A tensor of float32, by its values."""
        array = array_of(tensor).astype(np.float32)
        shape = self._shape.TensorShapeProto(
            dim=[self._shape.TensorShapeProto.Dim(size=n) for n in array.shape]
        )
        made = self._tensor.TensorProto(
            dtype=1, tensor_shape=shape, float_val=array.ravel().tolist()
        )
        value = self._value(tag, metadata=self._plugin("tensor"), tensor=made)
        self._add(value, global_step, walltime)

    def add_histogram(
        self,
        tag: str,
        values: Any,
        global_step: int | None = None,
        bins: Any = "tensorflow",
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        """Numbers by how many fall between the edges; `bins` are NumPy's, or "tensorflow"'s."""
        array = array_of(values).astype(np.float64).ravel()
        if array.size == 0:
            raise ValueError("The input has no element.")
        if not np.isfinite(array).all():
            raise ValueError("The histogram is empty, please file a bug report.")
        counts, edges = np.histogram(array, _edges() if bins == "tensorflow" else bins)
        made = self._summary.HistogramProto(
            min=array.min(), max=array.max(), num=array.size, sum=array.sum(),
            sum_squares=array @ array, **_trimmed(counts, edges),
        )  # fmt: skip
        self._add(self._value(tag, histo=made), global_step, walltime)

    def add_histogram_raw(
        self,
        tag: str,
        min: float,
        max: float,
        num: int,
        sum: float,
        sum_squares: float,
        bucket_limits: Any,
        bucket_counts: Any,
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """A histogram that was counted elsewhere."""
        if len(bucket_limits) != len(bucket_counts):
            raise ValueError("len(bucket_limits) != len(bucket_counts), see the document.")
        made = self._summary.HistogramProto(
            min=min, max=max, num=num, sum=sum, sum_squares=sum_squares,
            bucket_limit=array_of(bucket_limits).tolist(), bucket=array_of(bucket_counts).tolist(),
        )  # fmt: skip
        self._add(self._value(tag, histo=made), global_step, walltime)

    def add_image(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """A picture, as PNG: floats from 0 to 1, or bytes. It needs the package pillow."""
        self._add(self._value(tag, image=self._image(img_tensor, dataformats)), global_step,
                  walltime)  # fmt: skip

    def add_images(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:
        """Pictures, as one."""
        self.add_image(tag, img_tensor, global_step, walltime, dataformats)

    def add_figure(
        self,
        tag: str,
        figure: Any,
        global_step: int | None = None,
        close: bool = True,
        walltime: float | None = None,
    ) -> None:
        """A figure of matplotlib's, or a list of them."""
        several = isinstance(figure, list)
        images = np.stack([_drawn(f) for f in (figure if several else [figure])])
        self.add_image(tag, images if several else images[0], global_step, walltime,
                       "NHWC" if several else "HWC")  # fmt: skip
        if close:
            # an extra package: whoever gives a figure has it
            import matplotlib.pyplot as plt

            for f in figure if several else [figure]:
                plt.close(f)

    def add_text(
        self,
        tag: str,
        text_string: str,
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """Text, which TensorBoard shows as Markdown."""
        shape = self._shape.TensorShapeProto(dim=[self._shape.TensorShapeProto.Dim(size=1)])
        made = self._tensor.TensorProto(
            dtype=7, string_val=[text_string.encode("utf-8")], tensor_shape=shape
        )
        value = self._value(f"{tag}/text_summary", metadata=self._plugin("text"), tensor=made)
        self._add(value, global_step, walltime)

    def add_hparams(
        self,
        hparam_dict: Mapping[str, Any],
        metric_dict: Mapping[str, Any],
        hparam_domain_discrete: Any = None,
        run_name: str | None = None,
        global_step: int | None = None,
    ) -> None:
        """Hyperparameters as text, and the metrics that they led to as numbers, in a folder of
        their own.
        """
        folder = os.path.join(self.log_dir, run_name or str(time.time()))
        with SummaryWriter(folder) as inner:
            told = json.dumps(dict(hparam_dict), indent=1, default=str)
            inner.add_text("hparams", f"```json\n{told}\n```", global_step)
            for tag, value in metric_dict.items():
                inner.add_scalar(tag, value, global_step)

    def _refused(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: there is no graph of a program, and no encoder of video and sound."""
        raise RuntimeError(
            "SummaryWriter: skimp has no graph of a program to show, and writes no video, audio, "
            "embeddings, meshes or curves; add_scalar, add_histogram, add_image, add_figure and "
            "add_text work"
        )

    add_graph = add_video = add_audio = add_embedding = add_mesh = add_pr_curve = _refused
    add_custom_scalars = add_onnx_graph = _refused

    # -- the end ----------------------------------------------------------------------------------

    def get_logdir(self) -> str:
        """The folder."""
        return self.log_dir

    def flush(self) -> None:
        """Write what waits."""
        if self._open:
            for writer in self._writers.values():
                writer.flush()

    def close(self) -> None:
        """Write what waits, and close the files."""
        if self._open:
            for writer in self._writers.values():
                writer.flush()
                writer.close()
            self._open = False

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _image(self, given: Any, order: str) -> Any:
        # an extra package, for images only
        from PIL import Image

        array = _height_width_channels(array_of(given), order.upper())
        if array.dtype != np.uint8:
            array = (array * 255.0).clip(0, 255).astype(np.uint8)
        file = BytesIO()
        Image.fromarray(array[..., 0] if array.shape[2] == 1 else array).save(file, "PNG")
        height, width, channels = array.shape
        return self._summary.Summary.Image(
            height=height, width=width, colorspace=channels, encoded_image_string=file.getvalue()
        )


def _number(value: Any) -> float:
    if not isinstance(value, (Tensor, np.ndarray)) and not np.isscalar(value):
        raise NotImplementedError(
            f"Got {type(value)}, but numpy array or torch tensor are expected."
        )
    array = array_of(value)
    if array.size != 1:
        raise AssertionError(
            "Tensor should contain one element (0 dimensions). "
            f"Was given size: {array.size} and {array.ndim} dimensions."
        )
    return float(array.reshape(()))


def _edges() -> Array:
    """Edges that grow by a tenth each, on both sides of 0."""
    grown = 1e-12 * 1.1 ** np.arange(774)
    return np.concatenate([-grown[::-1], [0], grown])


def _trimmed(counts: Array, edges: Array) -> dict[str, list[float]]:
    """The buckets from the first to the last that is not empty, and one empty one before."""
    filled = np.nonzero(counts)[0]
    if filled.size == 0:
        raise ValueError("The histogram is empty, please file a bug report.")
    first, last = int(filled[0]), int(filled[-1]) + 1
    limits = edges[first : last + 1].tolist()
    return {"bucket_limit": limits, "bucket": [0.0, *counts[first:last].astype(float).tolist()]}


def _height_width_channels(array: Array, order: str) -> Array:
    """A picture with its channels last; several in rows of eight."""
    if array.ndim != len(order) or len(set(order)) != len(order):
        raise AssertionError(
            f"size of input tensor and input format are different. tensor shape: "
            f"{array.shape}, input_format: {order}"
        )
    if "N" in order:
        array = array.transpose([order.index(c) for c in "NHWC"])
        n, h, w, c = array.shape
        columns = min(n, 8)
        rows = -(-n // columns)
        sheet = np.zeros((rows * columns, h, w, c), array.dtype)
        sheet[:n] = array
        array = sheet.reshape(rows, columns, h, w, c).transpose(0, 2, 1, 3, 4)
        array = array.reshape(rows * h, columns * w, c)
    elif "C" in order:
        array = array.transpose([order.index(c) for c in "HWC"])
    else:
        array = array.transpose([order.index(c) for c in "HW"])[..., None]
    return np.repeat(array, 3, axis=2) if array.shape[2] == 1 else array


def _drawn(figure: Any) -> Array:
    """A figure's pixels: height, width, and three colours."""
    # an extra package: whoever gives a figure has it
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3]
