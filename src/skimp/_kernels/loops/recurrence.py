"""Steps of LSTM and GRU between their products."""

from __future__ import annotations

from typing import Any


def lstm_carried(gates: Any, before: Any, out: Any) -> None:
    """out = the cell after a step: f * before + i * g"""
    for r in range(out.shape[0]):
        for k in range(out.shape[1]):
            out[r, k] = gates[1, r, k] * before[r, k] + gates[0, r, k] * gates[2, r, k]


def lstm_back(
    gates: Any, before: Any, top: Any, dh: Any, dc: Any, room: Any, d: Any, out: Any
) -> None:
    """d = the gradients of a step's gates, (batch, 4 * hidden), in whose memory they may be, and
    out = that of the cell before it, by those of its result and of its cell, whose tanh is `top`.
    """
    one = 1.0
    n = out.shape[1]
    for r in range(out.shape[0]):
        for k in range(n):
            out[r, k] = dc[r, k] + dh[r, k] * ((one - top[r, k] * top[r, k]) * gates[3, r, k])
        for k in range(n):
            room[0, r, k] = (one - gates[0, r, k]) * gates[0, r, k] * gates[2, r, k] * out[r, k]
        for k in range(n):
            room[1, r, k] = (one - gates[1, r, k]) * gates[1, r, k] * before[r, k] * out[r, k]
        for k in range(n):
            room[2, r, k] = (one - gates[2, r, k] * gates[2, r, k]) * gates[0, r, k] * out[r, k]
        for k in range(n):
            room[3, r, k] = (one - gates[3, r, k]) * gates[3, r, k] * top[r, k] * dh[r, k]
        for k in range(n):
            out[r, k] = out[r, k] * gates[1, r, k]
    for r in range(out.shape[0]):
        for gate in range(4):
            for k in range(n):
                d[r, gate * n + k] = room[gate, r, k]


def gru_shown(gates: Any, before: Any, out: Any) -> None:
    """out = the result of a step: (before - new) * update + new"""
    for r in range(out.shape[0]):
        for k in range(out.shape[1]):
            new = gates[2, r, k]
            out[r, k] = (before[r, k] - new) * gates[1, r, k] + new


def gru_back(
    gates: Any, hidden: Any, before: Any, dh: Any, room: Any, d: Any, behind: Any, resets: Any,
    out: Any,
) -> None:  # fmt: skip
    """d = the gradients of a step's gates, (batch, 3 * hidden), in whose memory they may be, behind
    = those behind its hidden part, in whose memory `resets` may be, which get the resets; and out =
    what of the result's goes to the state before it, beside them."""
    one = 1.0
    n = out.shape[1]
    for r in range(out.shape[0]):
        for k in range(n):
            new = gates[2, r, k]
            room[r, k] = (one - new * new) * (one - gates[1, r, k])
        for k in range(n):
            reset = gates[0, r, k]
            behind[r, k] = (one - reset) * reset * hidden[r, k] * room[r, k] * dh[r, k]
        for k in range(n):
            update = gates[1, r, k]
            new = before[r, k] - gates[2, r, k]
            behind[r, n + k] = (one - update) * update * new * dh[r, k]
        for k in range(n):
            room[r, k] = room[r, k] * dh[r, k]
            behind[r, 2 * n + k] = room[r, k] * gates[0, r, k]
        for k in range(n):
            out[r, k] = dh[r, k] * gates[1, r, k]
    for r in range(out.shape[0]):
        for k in range(n):
            resets[r, k] = gates[0, r, k]
    for r in range(out.shape[0]):
        for k in range(2 * n):
            d[r, k] = behind[r, k]
        for k in range(n):
            d[r, 2 * n + k] = room[r, k]
