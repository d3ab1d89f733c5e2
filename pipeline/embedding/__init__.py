"""Re-embedding: which chunks lack which vectors, and the engines that make them.

`EmbedPlan` counts what is missing, `PendingTasks` cuts it into shard tasks, an engine (in this process, in
several, or on a Ray cluster) carries them out, and each shard lands in its `ShardStore` whole or not at all.
"""

from pipeline.embedding.engine import Engine, LocalEngine, WorkerError
from pipeline.embedding.identity import embedding_identity
from pipeline.embedding.plan import EmbedPlan, EmbedSummary, PendingTasks, carry_out, cut_tasks
from pipeline.embedding.shard import DocumentEncoder, PendingChunk, ShardResult, ShardTask, embed_shard
from pipeline.embedding.store import ShardFolder, ShardStore, Vectors

__all__ = [
    "DocumentEncoder",
    "EmbedPlan",
    "EmbedSummary",
    "Engine",
    "LocalEngine",
    "PendingChunk",
    "PendingTasks",
    "ShardFolder",
    "ShardResult",
    "ShardStore",
    "ShardTask",
    "Vectors",
    "WorkerError",
    "carry_out",
    "cut_tasks",
    "embed_shard",
    "embedding_identity",
]
