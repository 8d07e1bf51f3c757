"""Puts the learner's weights into the engines, and proves that they landed."""

from __future__ import annotations
