"""PostgreSQL through psycopg: connection, pipeline, COPY, NOTIFY."""
