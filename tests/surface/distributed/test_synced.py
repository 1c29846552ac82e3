"""SyncBatchNorm is BatchNorm of the whole batch; DDP holds no second copy of the gradients."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from tests.support import ranks

PROGRAM = Path(__file__).with_name("synced.py")


def test_two_ranks_normalise_as_one_and_ddp_has_the_bytes_of_one(tmp_path: Path) -> None:
    target = tmp_path / "found"
    done = ranks.run_mpiexec(ranks.ours(PROGRAM, str(target)), 2)
    assert done.returncode == 0, done.stderr
    found = [json.loads(Path(f"{target}.{r}").read_text()) for r in range(2)]

    x = (torch.arange(96.0).view(8, 3, 4).sin() * 3).requires_grad_()
    norm = torch.nn.BatchNorm1d(3)
    y = norm(x)
    (y * torch.arange(96.0).view(8, 3, 4)).sum().backward()
    assert x.grad is not None
    close = {"rtol": 1e-4, "atol": 1e-4}
    torch.testing.assert_close(torch.tensor(found[0]["y"] + found[1]["y"]), y.detach(), **close)
    torch.testing.assert_close(torch.tensor(found[0]["x"] + found[1]["x"]), x.grad, **close)
    norm.eval()
    for one in found:
        assert one["read where they lie"] == (sys.platform == "linux")
        assert one["kind"] == "SyncBatchNorm"
        running = torch.tensor(one["running"])
        torch.testing.assert_close(running, torch.stack([norm.running_mean, norm.running_var]))
        assert abs(one["eval"] - norm(x).sum().item()) < 1e-2
        assert "appears not to match sizes of the same param in process 0: [1, 2]" in one["error"]

        peak, after, gradients = one["ddp"]
        alone_peak, alone_after, alone_gradients = one["alone"]
        assert after == alone_after
        assert gradients == alone_gradients
        assert peak <= alone_peak + gradients // 100  # each is sent from where it lies
