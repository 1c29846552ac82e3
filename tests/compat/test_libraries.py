"""What people use beside torch takes skimp's tensors, and does with them what it should."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

import skimp
from tests.support.running import SKIMP, skimp as command, write
from tests.support.warm import WITH_SKIMP

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
PROCESSES = pytest.mark.skipif(
    os.environ.get("SKIMP_DEFER", "auto") != "auto",
    reason="starting processes takes its time, and nothing here depends on what is deferred",
)


def run(folder: Path, code: str) -> str:
    """What a program that imports torch prints under `skimp run`."""
    script = write(folder, code)
    done = command("run", "--quiet", script, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


# -- einops: finds its backend through the name torch ---------------------------------------------


@PROCESSES
def test_einops(tmp_path: Path) -> None:
    pytest.importorskip("einops")
    printed = run(
        tmp_path,
        """
        import torch
        from einops import rearrange, reduce, repeat, einsum, pack, unpack

        x = torch.arange(24.0).reshape(2, 3, 4).requires_grad_()
        y = rearrange(x, "b h w -> b (h w)")
        print(type(y) is torch.Tensor, y.shape, y.data_ptr() == x.data_ptr())
        print(torch.equal(rearrange(x, "b h w -> w b h"), x.permute(2, 0, 1)))
        print(torch.equal(reduce(x, "b h w -> b", "mean"), x.mean((1, 2))))
        print(torch.equal(reduce(x, "b h (w two) -> b h w", "max", two=2),
                          x.reshape(2, 3, 2, 2).amax(-1)))
        print(torch.equal(repeat(x, "b h w -> b h w c", c=2), torch.stack([x, x], -1)))
        print(torch.equal(einsum(x, x, "b h w, b h v -> b w v"), x.transpose(1, 2) @ x))
        packed, shapes = pack([x, x[:, 0]], "b * w")
        back = unpack(packed, shapes, "b * w")
        print(packed.shape, torch.equal(back[1], x[:, 0]))
        reduce(x * x, "b h w -> ", "sum").backward()
        print(torch.equal(x.grad, 2 * x))
        print(rearrange([x, x], "n b h w -> n b (h w)").shape)
        """,
    )
    assert printed.splitlines() == [
        "True torch.Size([2, 12]) True",
        "True",
        "True",
        "True",
        "True",
        "True",
        "torch.Size([2, 4, 4]) True",
        "True",
        "torch.Size([2, 2, 12])",
    ]


@PROCESSES
def test_layers_of_einops(tmp_path: Path) -> None:
    pytest.importorskip("einops")
    printed = run(
        tmp_path,
        """
        import torch
        from torch import nn
        from einops.layers.torch import EinMix, Rearrange, Reduce

        torch.manual_seed(0)
        net = nn.Sequential(
            Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=2, q=2),
            nn.Linear(12, 5),
            Reduce("b n d -> b d", "mean"),
            EinMix("b d -> b e", weight_shape="d e", bias_shape="e", d=5, e=3),
        )
        out = net(torch.ones(2, 3, 4, 4))
        out.sum().backward()
        print(out.shape, [tuple(p.grad.shape) for p in net.parameters()])
        print(net[0])
        """,
    )
    first, second = printed.splitlines()
    assert first == "torch.Size([2, 3]) [(5, 12), (5,), (5, 3), (1, 3)]"
    assert second.startswith("Rearrange('b c (h p) (w q) -> b (h w) (p q c)'")


# -- tqdm -----------------------------------------------------------------------------------------


def test_tqdm() -> None:
    tqdm = pytest.importorskip("tqdm").tqdm
    rows = skimp.arange(6).reshape(3, 2)
    bar = tqdm(rows, disable=True)
    assert [r.tolist() for r in bar] == [[0, 1], [2, 3], [4, 5]]
    loader = skimp.utils.data.DataLoader(rows, batch_size=2)
    with tqdm(loader, disable=True) as bar:
        assert bar.total == 2
        for batch in bar:
            bar.set_postfix(loss=batch.float().mean().item())


# -- matplotlib -----------------------------------------------------------------------------------


def test_matplotlib_draws_tensors() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    x = skimp.linspace(0, 1, 20)
    figure = Figure()
    axes = figure.subplots(2, 3).ravel()
    (line,) = axes[0].plot(x, x.sin())
    np.testing.assert_array_equal(line.get_xdata(), x.numpy())
    np.testing.assert_array_equal(line.get_ydata(), x.sin().numpy())
    counts, _, _ = axes[1].hist(x, bins=4)
    assert counts.tolist() == [5, 5, 5, 5]
    shown = axes[2].imshow(x.reshape(4, 5))
    np.testing.assert_array_equal(shown.get_array(), x.reshape(4, 5).numpy())
    points = axes[3].scatter(x, x**2, c=x)
    np.testing.assert_allclose(points.get_offsets()[:, 1], (x**2).numpy())
    bars = axes[4].bar(skimp.arange(3), skimp.tensor([1.0, 2.0, 3.0]))
    assert [b.get_height() for b in bars] == [1, 2, 3]
    axes[5].fill_between(x, x - 1, x + 1)
    axes[5].axhline(x.mean())
    figure.canvas.draw()


# -- scikit-learn ---------------------------------------------------------------------------------


def test_scikit_learn_fits_tensors() -> None:
    pytest.importorskip("sklearn")
    from sklearn.linear_model import LinearRegression
    from sklearn.metrics import accuracy_score, mean_squared_error
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import StandardScaler
    from sklearn.tree import DecisionTreeClassifier

    skimp.manual_seed(0)
    x = skimp.randn(40, 3, dtype=skimp.float64)
    y = x @ skimp.tensor([1.0, -2.0, 0.5], dtype=skimp.float64) + 3
    model = LinearRegression().fit(x, y)
    np.testing.assert_allclose(model.coef_, [1, -2, 0.5])
    assert mean_squared_error(y, model.predict(x)) < 1e-20
    parts = train_test_split(x, y, test_size=0.25, random_state=0)
    assert [len(p) for p in parts] == [30, 10, 30, 10]
    assert all(type(p) is skimp.Tensor for p in parts)
    plain = train_test_split(x.numpy(), test_size=0.25, random_state=0)
    assert parts[0].numpy().tolist() == plain[0].tolist()
    scaled = StandardScaler().fit_transform(x)
    np.testing.assert_allclose(scaled.mean(0), 0, atol=1e-12)
    labels = (y > 3).long()
    tree = DecisionTreeClassifier(random_state=0).fit(x, labels)
    assert accuracy_score(labels, tree.predict(x)) == 1


# -- pandas ---------------------------------------------------------------------------------------


def test_pandas_frames_of_tensors() -> None:
    pandas = pytest.importorskip("pandas")
    x = skimp.arange(6.0).reshape(3, 2)
    frame = pandas.DataFrame(x.numpy(), columns=["a", "b"])
    assert frame["b"].tolist() == [1, 3, 5]
    same = pandas.DataFrame({"a": x[:, 0], "b": x[:, 1]})
    assert same["b"].tolist() == [1, 3, 5]
    series = pandas.Series(x[:, 1])
    assert series.sum() == 9
    back = skimp.tensor(frame.values)
    assert back.dtype == skimp.float32
    assert skimp.equal(back, x)
    assert skimp.tensor(frame["a"]).tolist() == [0, 2, 4]


# -- safetensors ----------------------------------------------------------------------------------


@PROCESSES
def test_safetensors_under_the_name_torch(tmp_path: Path) -> None:
    printed = run(
        tmp_path,
        """
        import torch
        from safetensors import safe_open
        from safetensors.torch import load, load_file, load_model, save, save_file, save_model

        tensors = {
            "a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor([1, 2]),
            "c": torch.ones(3, dtype=torch.bfloat16), "d": torch.tensor(True),
        }
        save_file(tensors, "x.safetensors", metadata={"made": "here"})
        back = load_file("x.safetensors")
        print(all(torch.equal(back[k], tensors[k]) for k in tensors), back["c"].dtype)
        print(sorted(load(save(tensors))))
        with safe_open("x.safetensors", framework="pt") as f:
            print(f.metadata(), torch.equal(f.get_tensor("a"), tensors["a"]))
            print(f.get_slice("a")[:, 1:].tolist())
        net = torch.nn.Linear(2, 1)
        save_model(net, "net.safetensors")
        other = torch.nn.Linear(2, 1)
        print(load_model(other, "net.safetensors"), torch.equal(other.weight, net.weight))
        """,
    )
    assert printed.splitlines() == [
        "True torch.bfloat16",
        "['a', 'b', 'c', 'd']",
        "{'made': 'here'} True",
        "[[1.0, 2.0], [4.0, 5.0]]",
        "(set(), []) True",
    ]


# -- NumPy, joblib --------------------------------------------------------------------------------


def test_numpy_functions_take_tensors() -> None:
    x = skimp.arange(6.0).reshape(2, 3)
    assert np.asarray(x).dtype == np.float32
    assert np.mean(x) == 2.5
    assert np.allclose(x, x.numpy())
    np.testing.assert_array_equal(np.concatenate([x, x]), skimp.cat([x, x]).numpy())
    np.testing.assert_array_equal(np.stack([x[0], x[1]]), x.numpy())
    np.testing.assert_array_equal(np.linalg.norm(x), np.linalg.norm(x.numpy()))
    np.testing.assert_array_equal(np.percentile(x, 50), 2.5)
    assert np.argmax(x) == 5
    assert np.isnan(skimp.tensor([1.0, float("nan")])).tolist() == [False, True]
    np.testing.assert_array_equal(np.ones((2, 3)) @ x.T.double().numpy(), [[3, 12], [3, 12]])


def test_joblib_pickles_tensors(tmp_path: Path) -> None:
    joblib = pytest.importorskip("joblib")
    x = skimp.arange(6.0).reshape(2, 3).t()
    net = skimp.nn.Linear(3, 1)
    joblib.dump({"x": x, "net": net}, tmp_path / "x.joblib")
    back = joblib.load(tmp_path / "x.joblib")
    assert skimp.equal(back["x"], x)
    assert back["x"].stride() == x.stride()
    assert skimp.equal(back["net"].weight, net.weight)
    assert joblib.hash(x) == joblib.hash(x.clone(memory_format=skimp.preserve_format))
    found = joblib.Parallel(n_jobs=2, prefer="threads")(
        joblib.delayed(lambda t: t.sum().item())(row) for row in x
    )
    assert found == [3.0, 5.0, 7.0]


def test_storages_of_files(tmp_path: Path) -> None:
    import torch

    path = tmp_path / "bytes"
    found = []
    for t in (torch, skimp):
        path.write_bytes(bytes(range(16)))
        private = t.UntypedStorage.from_file(str(path), shared=False, nbytes=12)
        part = private[4:8]
        x = t.asarray(part, dtype=t.uint8)
        x += 1
        whole = t.asarray(private, dtype=t.int32)
        found.append((private.nbytes(), list(part), x.tolist(), whole.tolist()))
        assert path.read_bytes() == bytes(range(16))
        shared = t.UntypedStorage.from_file(str(path), shared=True, nbytes=20)
        shared[0] = 99
        del shared
        assert path.read_bytes()[0] == 99
        assert path.stat().st_size == 20
    assert found[1] == found[0]


# -- the Array API: SciPy and scikit-learn without a detour over arrays ---------------------------

ARRAYS = {
    "fft": "scipy.fft.fft(x)",
    "dct": "scipy.fft.dct(x)",
    "zscore": "scipy.stats.zscore(x)",
    "skew": "scipy.stats.skew(x)",
    "kurtosis": "scipy.stats.kurtosis(x)",
    "ttest": "scipy.stats.ttest_1samp(x, 0.0).pvalue",
    "entropy": "scipy.stats.entropy(x * x)",
    "gmean": "scipy.stats.gmean(x * x)",
    "gaussian_filter": "scipy.ndimage.gaussian_filter(m, 1.0)",
    "expit": "scipy.special.expit(x)",
    "logsumexp": "scipy.special.logsumexp(x)",
    "xlogy": "scipy.special.xlogy(x * x, x * x)",
    "convolve": "scipy.signal.convolve(x, x)",
    "whiten": "scipy.cluster.vq.whiten(m)",
    "MinMaxScaler": "MinMaxScaler().fit_transform(m)",
    "StandardScaler": "StandardScaler().fit_transform(m)",
    "PCA": "abs(PCA(2, svd_solver='full').fit_transform(m))",
    "Ridge": "Ridge(solver='svd').fit(m, m[:, 0]).coef_",
}


@PROCESSES
@pytest.mark.parametrize("namespace", ["PyTorch's", "the standard's"])
def test_scipy_and_scikit_learn_compute_on_tensors(tmp_path: Path, namespace: str) -> None:
    """Both ways: by the name `torch`, and without it by `__array_namespace__`."""
    pytest.importorskip("sklearn")
    by_name = namespace == "PyTorch's"
    script = write(
        tmp_path,
        f"""
        import os, warnings
        os.environ["SCIPY_ARRAY_API"] = "1"
        warnings.simplefilter("ignore")
        import numpy as np
        import {"torch" if by_name else "skimp as torch"}
        import scipy.cluster, scipy.fft, scipy.ndimage, scipy.signal, scipy.special, scipy.stats
        import sklearn
        from sklearn.decomposition import PCA
        from sklearn.linear_model import Ridge
        from sklearn.preprocessing import MinMaxScaler, StandardScaler

        sklearn.set_config(array_api_dispatch=True)
        torch.manual_seed(0)
        tensors = torch.randn(64, dtype=torch.float64), torch.randn(8, 8, dtype=torch.float64)
        for name, code in {ARRAYS!r}.items():
            x, m = tensors
            got = eval(code)
            x, m = (t.numpy() for t in tensors)
            want = eval(code)
            same = type(got) is torch.Tensor and np.allclose(got.numpy(), want)
            print(name, "same" if same else (got, want))
        """,
    )
    words = [*SKIMP, "run", "--quiet", script] if by_name else [sys.executable, script]
    done = WITH_SKIMP.run(words, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{name} same" for name in ARRAYS]
