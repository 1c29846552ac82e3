"""What is on for whole regions of a program, in any thread: a list that every wrapper asks."""

from __future__ import annotations

active: list[str] = []
