"""Reinforcement: REINFORCE and PPO on a cart pole, a soft actor-critic step on random data."""

from collections import deque

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.distributions import Categorical, Normal

torch.manual_seed(543)
np.random.seed(1)


class CartPole:
    def reset(self):
        self.s, self.t = np.random.uniform(-0.05, 0.05, 4), 0
        return self.s.astype(np.float32)

    def step(self, action):
        x, xd, th, thd = self.s
        c, s = np.cos(th), np.sin(th)
        force = ((10.0 if action == 1 else -10.0) + 0.05 * thd**2 * s) / 1.1
        tha = (9.8 * s - c * force) / (0.5 * (4 / 3 - 0.1 * c**2 / 1.1))
        xa = force - 0.05 * tha * c / 1.1
        self.s = self.s + 0.02 * np.array([xd, xa, thd, tha])
        self.t += 1
        return self.s.astype(np.float32), 1.0, bool(abs(self.s[2]) > 0.2 or self.t >= 40)


env = CartPole()
policy = nn.Sequential(nn.Linear(4, 32), nn.Dropout(0.3), nn.ReLU(), nn.Linear(32, 2))
optimizer = optim.Adam(policy.parameters(), lr=1e-2)
for _ in range(5):
    state, log_probs, rewards, done = env.reset(), [], [], False
    while not done:
        m = Categorical(logits=policy(torch.from_numpy(state).float().unsqueeze(0)))
        action = m.sample()
        log_probs.append(m.log_prob(action))
        state, reward, done = env.step(action.item())
        rewards.append(reward)
    returns, total = deque(), 0
    for r in rewards[::-1]:
        total = r + 0.99 * total
        returns.appendleft(total)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + 1e-7)
    loss = torch.cat([-p * r for p, r in zip(log_probs, returns)]).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(len(rewards), loss.item())


def layer(i, o, std=np.sqrt(2)):
    linear = nn.Linear(i, o)
    torch.nn.init.orthogonal_(linear.weight, std)
    torch.nn.init.constant_(linear.bias, 0.0)
    return linear


actor = nn.Sequential(layer(4, 32), nn.Tanh(), layer(32, 2, 0.01))
critic = nn.Sequential(layer(4, 32), nn.Tanh(), layer(32, 1, 1.0))
both = [*actor.parameters(), *critic.parameters()]
optimizer = optim.Adam(both, lr=2.5e-3, eps=1e-5)
obs, actions, logprobs = torch.randn(32, 4), torch.randint(2, (32,)), torch.full((32,), -0.7)
advantages, returns = torch.randn(32), torch.randn(32)
for _ in range(3):
    order = np.random.permutation(32)
    for start in range(0, 32, 16):
        mb = order[start : start + 16]
        probs = Categorical(logits=actor(obs[mb]))
        ratio = (probs.log_prob(actions[mb]) - logprobs[mb]).exp()
        adv = advantages[mb]
        pg_loss = torch.max(-adv * ratio, -adv * torch.clamp(ratio, 0.8, 1.2)).mean()
        v_loss = 0.5 * ((critic(obs[mb]).view(-1) - returns[mb]) ** 2).mean()
        loss = pg_loss - 0.01 * probs.entropy().mean() + 0.5 * v_loss
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(both, 0.5)
        optimizer.step()
        print(loss.item(), v_loss.item())
head, q, target = nn.Linear(3, 2), nn.Linear(4, 1), nn.Linear(4, 1)
target.load_state_dict(q.state_dict())
log_alpha = torch.zeros(1, requires_grad=True)
optimizer = optim.Adam([*head.parameters(), *q.parameters(), log_alpha], lr=1e-2)
for _ in range(5):
    s, a, r = torch.randn(16, 3), torch.rand(16, 1) * 2 - 1, torch.randn(16, 1)
    mean, log_std = head(s).chunk(2, -1)
    normal = Normal(mean, log_std.clamp(-5, 2).exp())
    u = normal.rsample()
    act = torch.tanh(u)
    log_prob = (normal.log_prob(u) - torch.log(1 - act.pow(2) + 1e-6)).sum(1, keepdim=True)
    with torch.no_grad():
        goal = r + 0.99 * (target(torch.cat([s, act], 1)) - log_alpha.exp() * log_prob)
    q_loss = F.mse_loss(q(torch.cat([s, a], 1)), goal)
    pi_loss = (log_alpha.exp().detach() * log_prob - q(torch.cat([s, act], 1))).mean()
    alpha_loss = -(log_alpha * (log_prob + 1).detach()).mean()
    optimizer.zero_grad()
    (q_loss + pi_loss + alpha_loss).backward()
    optimizer.step()
    for p, t in zip(q.parameters(), target.parameters()):
        t.data.copy_(0.05 * p.data + 0.95 * t.data)
    print(q_loss.item(), pi_loss.item(), alpha_loss.item())
