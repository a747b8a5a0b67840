"""The nodes of a batch system. A node with enough room is found without a look at the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pilotage.core.policy.new_ce import NodeSize
from pilotage.twin.batch.tasks import BatchTask

_UNBOUNDED: Final = 1 << 60
"""MB of a node whose memory is not known: it bounds no batch job."""


class BatchNode:
    """One node, with its free processors and memory."""

    __slots__ = ("free_memory", "free_processors", "memory", "name", "processors", "tasks", "up")

    def __init__(self, name: str, size: NodeSize) -> None:
        self.name = name
        self.processors = self.free_processors = size.processors
        self.memory = size.memory
        self.free_memory = size.memory if size.memory > 1 else _UNBOUNDED
        self.up = True
        self.tasks: dict[BatchTask, None] = {}
        """The batch jobs that run on it."""


class NodePool:
    """All nodes, by free processors and then by free memory. Nodes that are down are left out.

    Batch jobs have few sizes, so nodes have few different remains.
    """

    def __init__(self, kinds: Sequence[NodeSize]) -> None:
        self.named = {node.name: node for node in _made(kinds)}
        self.total_processors = sum(node.processors for node in self.named.values())
        self.free_processors = 0
        """Free processors of the nodes that are up."""
        most = max((size.processors for size in kinds), default=0)
        self._by_processors: list[dict[int, dict[BatchNode, None]]] = [{} for _ in range(most + 1)]
        self._levels = 0
        """Bit N is set if a node has exactly N free processors."""
        for node in reversed(self.named.values()):
            self._insert(node)

    def take(self, task: BatchTask) -> BatchNode | None:
        """Give a batch job room on the node that it fills best; None if no node has enough."""
        levels = self._levels >> task.processors << task.processors
        while levels:
            lowest = levels & -levels
            for memory, nodes in self._by_processors[lowest.bit_length() - 1].items():
                if memory >= task.memory:
                    node, _ = nodes.popitem()
                    self._removed(node)
                    node.free_processors -= task.processors
                    node.free_memory -= task.memory
                    node.tasks[task] = None
                    self._insert(node)
                    return node
            levels ^= lowest
        return None

    def give_back(self, node: BatchNode, task: BatchTask) -> None:
        """The batch job has left the node."""
        if node.up:
            self._remove(node)
        del node.tasks[task]
        node.free_processors += task.processors
        node.free_memory += task.memory
        if node.up:
            self._insert(node)

    def set_up(self, node: BatchNode, up: bool) -> None:
        """Let a node start batch jobs, or not."""
        if up != node.up:
            if up:
                self._insert(node)
            else:
                self._remove(node)
            node.up = up

    def _insert(self, node: BatchNode) -> None:
        self.free_processors += node.free_processors
        self._levels |= 1 << node.free_processors
        self._by_processors[node.free_processors].setdefault(node.free_memory, {})[node] = None

    def _remove(self, node: BatchNode) -> None:
        del self._by_processors[node.free_processors][node.free_memory][node]
        self._removed(node)

    def _removed(self, node: BatchNode) -> None:
        """Forget the remains that no node has any more."""
        self.free_processors -= node.free_processors
        by_memory = self._by_processors[node.free_processors]
        if not by_memory[node.free_memory]:
            del by_memory[node.free_memory]
            if not by_memory:
                self._levels ^= 1 << node.free_processors


def _made(kinds: Sequence[NodeSize]) -> Iterator[BatchNode]:
    number = 0
    for size in kinds:
        for _ in range(size.nodes):
            number += 1
            yield BatchNode(f"node{number}", size)
