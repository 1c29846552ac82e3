"""Agents that act one observation at a time: policy gradients, Q-learning with a replay buffer."""

from __future__ import annotations

import math
import random
from collections import deque
from typing import Any

from bench.programs.data import Step


class Pole:
    """A pole on a cart, after Barto, Sutton and Anderson (1983), without leaving its track."""

    def __init__(self) -> None:
        self.state = [0.0, 0.0, 0.05, 0.0]

    def reset(self) -> list[float]:
        self.state = [0.01, 0.02, 0.05, -0.03]
        return self.state

    def step(self, action: int) -> tuple[list[float], float, bool]:
        x, speed, angle, turning = self.state
        force = 10.0 if action else -10.0
        sin, cos = math.sin(angle), math.cos(angle)
        push = (force + 0.05 * turning * turning * sin) / 1.1
        turned = (9.8 * sin - cos * push) / (0.5 * (4.0 / 3.0 - 0.1 * cos * cos / 1.1))
        moved = push - 0.05 * turned * cos / 1.1
        self.state = [
            x + 0.02 * speed,
            speed + 0.02 * moved,
            angle + 0.02 * turning,
            turning + 0.02 * turned,
        ]
        return self.state, 1.0, abs(self.state[2]) > 0.21


def reinforce(torch: Any) -> Step:
    """An episode of at most 25 actions, each drawn from a Categorical, then one update."""
    nn, F = torch.nn, torch.nn.functional
    torch.manual_seed(0)

    class Policy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.affine1, self.dropout = nn.Linear(4, 128), nn.Dropout(p=0.6)
            self.affine2 = nn.Linear(128, 2)

        def forward(self, x: Any) -> Any:
            x = F.relu(self.dropout(self.affine1(x)))
            return F.softmax(self.affine2(x), dim=1)

    policy, pole = Policy(), Pole()
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)

    def step() -> Any:
        state, logs, rewards = pole.reset(), [], []
        for _ in range(25):
            probs = policy(torch.tensor(state).float().unsqueeze(0))
            m = torch.distributions.Categorical(probs)
            action = m.sample()
            logs.append(m.log_prob(action))
            state, reward, done = pole.step(action.item())
            rewards.append(reward)
            if done:
                break
        R, returns = 0.0, deque[float]()
        for r in rewards[::-1]:
            R = r + 0.99 * R
            returns.appendleft(R)
        wanted = torch.tensor(list(returns))
        wanted = (wanted - wanted.mean()) / (wanted.std() + 1e-6)
        optimizer.zero_grad()
        loss = torch.cat([-log * R for log, R in zip(logs, wanted, strict=True)]).sum()
        loss.backward()
        optimizer.step()
        return loss

    return step


def dqn(torch: Any) -> Step:
    """An action, a transition remembered, an update from 64 others, a soft update of the target."""
    nn, F = torch.nn, torch.nn.functional
    torch.manual_seed(0)
    draw, pole = random.Random(0), Pole()

    def net() -> Any:
        return nn.Sequential(
            nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2)
        )

    policy, target = net(), net()
    target.load_state_dict(policy.state_dict())
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-4, amsgrad=True)
    memory = deque[tuple[Any, Any, Any, Any]](maxlen=1000)
    state = torch.tensor(pole.reset(), dtype=torch.float32).unsqueeze(0)

    def act() -> Any:
        nonlocal state
        if draw.random() > 0.5:
            with torch.no_grad():
                action = policy(state).max(1).indices.view(1, 1)
        else:
            action = torch.tensor([[draw.randrange(2)]], dtype=torch.long)
        seen, reward, done = pole.step(action.item())
        after = None if done else torch.tensor(seen, dtype=torch.float32).unsqueeze(0)
        memory.append((state, action, after, torch.tensor([reward])))
        state = after
        if done:
            state = torch.tensor(pole.reset(), dtype=torch.float32).unsqueeze(0)

    for _ in range(100):
        act()

    def step() -> Any:
        act()
        states, actions, afters, rewards = zip(*draw.sample(list(memory), 64), strict=True)
        alive = torch.tensor([after is not None for after in afters], dtype=torch.bool)
        values = policy(torch.cat(states)).gather(1, torch.cat(actions))
        best = torch.zeros(64)
        with torch.no_grad():
            living = torch.cat([after for after in afters if after is not None])
            best[alive] = target(living).max(1).values
        loss = F.smooth_l1_loss(values, (best * 0.99 + torch.cat(rewards)).unsqueeze(1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(policy.parameters(), 100)
        optimizer.step()
        of_target, of_policy = target.state_dict(), policy.state_dict()
        for key in of_policy:
            of_target[key] = of_policy[key] * 0.005 + of_target[key] * 0.995
        target.load_state_dict(of_target)
        return loss

    return step
