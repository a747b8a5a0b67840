"""Alembic's entry: migrations run on the connection that `store.admin.upgrade` hands over."""

from __future__ import annotations

from alembic import context

from pilotage.store.schema import metadata
from pilotage.store.tables.partitions import is_schema_object

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    include_object=is_schema_object,
)
context.run_migrations()
