"""What autograd refuses: PyTorch's sentence first, then the lines of the user's program and the way
out.
"""

from __future__ import annotations

from typing import Any

from skimp._engine.autograd import node_lines as lines
from skimp._engine.tensor.promotion import scalar_type_name

FREED = (
    "Trying to backward through the graph a second time (or directly access saved tensors after "
    "they have already been freed). Saved intermediate values of the graph are freed when you call "
    ".backward() or autograd.grad(). Specify retain_graph=True if you need to backward through the "
    "graph a second time or if you need to access saved tensors after calling backward."
)


def type_name(t: Any) -> str:
    """`torch.FloatTensor`, as PyTorch's messages call a tensor."""
    name = scalar_type_name(t._dtype)
    return f"CPU{name}Type" if t._dtype.is_complex else f"torch.{name}Tensor"


def short(node: Any) -> str:
    """A node's name as PyTorch's messages give it: `Mul` for MulBackward0, `T1` for TBackward1."""
    name: str = node._skimp_label
    stem, found, number = name.rpartition("Backward")
    if found and (not number or number.isdigit()):
        return stem + number.removeprefix("0")
    return name


def freed(node: Any) -> RuntimeError:
    """What the node saved is gone."""
    text = FREED
    first = getattr(node, "_skimp_first", None)
    if node._skimp_code is not None:
        text += (
            f"\nThe graph has a {node._skimp_label} in common with an earlier backward: "
            f"made at {lines.of(node)}."
        )
    if first is not None:
        text += f"\nThat backward was called at {lines.describe(*first)}."
    return RuntimeError(text)


def modified(node: Any, t: Any, version: int, now: int, made_by: Any, index: int) -> RuntimeError:
    """A saved tensor was written to since."""
    output = f", which is output {index} of {short(made_by)}," if made_by is not None else ""
    text = (
        "one of the variables needed for gradient computation has been modified by an inplace "
        f"operation: [{type_name(t)} {list(t.shape)}]{output} is at version {now}; expected "
        f"version {version} instead. Hint: enable anomaly detection to find the operation that "
        "failed to compute its gradient, with torch.autograd.set_detect_anomaly(True, "
        "check_nan=False)."
    )
    if node._skimp_code is not None:
        text += f"\nSaved by {node._skimp_label} for its gradient at {lines.of(node)}."
    written = t._storage.written
    if written is not None:
        code, lasti, at = written
        text += f"\nLast modified in place at {lines.describe(code, lasti)}."
        if at <= version:
            text += " (Later writes went through `.data`, NumPy or `out=` and left no line.)"
    text += "\nWrite to a clone() of it, or use the form of that operation without the underscore."
    return RuntimeError(text)


def detached(node: Any, t: Any) -> RuntimeError:
    """A saved tensor lost its history since."""
    _, code, lasti = t._skimp_cut
    return RuntimeError(
        "Trying to use a saved tensor that has been detached in-place, i.e. with .detach_().This "
        f"is not supported, please use out-of-place `.detach()` instead\nSaved by "
        f"{node._skimp_label} for its gradient at {lines.of(node)}.\n"
        f"Detached at {lines.describe(code, lasti)}."
    )


def uncovered(base: Any, view: Any) -> RuntimeError:
    """A base took another layout in place, in which some elements of its view are missing."""
    return RuntimeError(
        "skimp: no gradient can pass between a view and its base, which took another layout in "
        "place and no longer shows all elements of the view: the base has "
        f"shape {tuple(base.shape)}, strides {tuple(base.strides)} and offset {base.offset}, the "
        f"view {tuple(view.shape)}, {tuple(view.strides)} and {view.offset}. Take the view again "
        "after the base has changed."
    )


def withheld(node: Any, site: Any) -> RuntimeError:
    """Nothing was saved for backward where the op ran."""
    return RuntimeError(
        f"{node._skimp_label} needs what it did not keep: the operation at {lines.of(node)} ran "
        "inside disable_saved_tensors_hooks(), called without a message at "
        f"{lines.describe(*site)}, where nothing is saved for backward. Run it outside, or "
        "give disable_saved_tensors_hooks a message, which only refuses hooks."
    )


def no_grad_fn(i: int, t: Any) -> RuntimeError:
    """`backward()` of something that no recorded operation made."""
    text = f"element {i} of tensors does not require grad and does not have a grad_fn"
    cut = t._skimp_cut
    if cut is not None:
        how, code, lasti = cut
        text += f"\nThe chain was cut by {how} at {lines.describe(code, lasti)}."
    elif t._skimp_inference:
        text += "\nThe tensor was made in inference_mode(), where nothing is recorded."
    elif not (t._dtype.is_floating_point or t._dtype.is_complex):
        text += (
            f"\nIts dtype is {t._dtype}: only floating point and complex tensors carry gradients."
        )
    else:
        text += (
            "\nNone of its inputs required grad when it was computed, or it was computed under "
            "no_grad(), from a detach()ed tensor, or by an operation on integers."
        )
    return RuntimeError(text)


INFERENCE_SAVED = (
    "Inference tensors cannot be saved for backward. Please do not use Tensors created in "
    "inference mode in computation tracked by autograd. To work around this, you can make a clone "
    "to get a normal tensor and use it in autograd, or use `torch.no_grad()` instead of "
    "`torch.inference_mode()`."
)
INFERENCE_INPLACE = (
    "Inplace update to inference tensor outside InferenceMode is not allowed."
    "You can make a clone to get a normal tensor before doing inplace update."
    "See https://github.com/pytorch/rfcs/pull/17 for more details."
)
LEAF = "a leaf Variable that requires grad is being used in an in-place operation."
VIEW_OF_LEAF = (
    "a view of a leaf Variable that requires grad is being used in an in-place operation."
)

_MULTI = (
    " This view is the output of a function that returns multiple views. Such functions do not "
    "allow the output "
    "views to be modified inplace. You should replace the inplace operation by an out-of-place one."
)
_CUSTOM = (
    " This view was created inside a custom Function (or because an input was returned as-is) and "
    "the autograd logic to handle view+inplace would override the custom backward associated with "
    "the custom Function, leading to incorrect gradients. This behavior is forbidden. You can fix "
    "this by cloning the output of the custom Function."
)
_BOTH = (
    " Given that this use case is ambiguous and error-prone, it is forbidden. You can clarify your "
    "code by moving both the view and the inplace either both inside the {0} block (if you don't "
    "want the inplace to be tracked) or both outside (if you want the inplace to be tracked)."
)


def view_refused(creation: str, node: Any, index: int, indirect: bool) -> RuntimeError:
    """A view whose history can't be rebased was modified, itself or through its base."""
    mode = "inference mode" if creation == "inference" else "no_grad mode"
    what = (
        "its base or another view of its base has been modified inplace"
        if indirect
        else "is being modified inplace"
    )
    if creation in ("no_grad", "inference"):
        block = "inference_mode" if creation == "inference" else "no_grad"
        normal = " in normal mode" if creation == "inference" else " with grad mode enabled"
        of = "A view was"
        if node is not None:
            of = f"Output {index} of {short(node)} is a view of a view which was"
        return RuntimeError(f"{of} created in {mode} and {what}{normal}." + _BOTH.format(block))
    if node is None:
        prefix = f"A view was created in no_grad mode and {what} with grad mode enabled."
    else:
        prefix = f"Output {index} of {short(node)} is a view and {what}."
    return RuntimeError(prefix + (_MULTI if creation == "multi" else _CUSTOM))


def not_differentiable(function: str, argument: str) -> RuntimeError:
    """For an argument that a gradient is asked for, and that has none."""
    return RuntimeError(
        f"The function '{function}' is not differentiable with respect to argument '{argument}'. "
        "This input cannot have requires_grad True."
    )
