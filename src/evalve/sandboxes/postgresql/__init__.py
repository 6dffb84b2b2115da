"""PostgreSQL databases for attempts: one each, from a known state, on any server or on an embedded one."""
