"""The tables of a store of records, and the statements that write its busiest one."""

from __future__ import annotations

from functools import cache

VERSION = 5
"""Kept in `PRAGMA user_version`."""

APPLICATION_ID = 0x6576_6C76  # "evlv": tells our files from other people's databases

ROOM_PER_EVALUATION = 1 << 40
"""Ids of an evaluation's records lie in one range, so that it is read and deleted by one sequential scan
however many others share the file; an index on the evaluation would cost time on every insert."""

NOWHERE = -1
"""The place (`idx`) of a sample that is no longer in the dataset. It is kept, and counts again when its row
comes back and gives it a place; all reads but the search for known samples leave it out."""

LOCKS = """
CREATE TABLE locks (
    token TEXT PRIMARY KEY,  -- of one process
    party TEXT NOT NULL,  -- the same for all processes that hold the experiment together
    experiment TEXT NOT NULL,
    pid INTEGER NOT NULL,
    pid_started REAL NOT NULL,
    host TEXT NOT NULL,
    holder TEXT NOT NULL,
    acquired_at TEXT NOT NULL,
    heartbeat_at REAL NOT NULL  -- seconds since 1970: compared, never shown
)
"""

TRACES = """
CREATE TABLE traces (
    record_id INTEGER PRIMARY KEY,
    events NOT NULL  -- JSON text, compressed where it is long
)
"""

ARTEFACTS = """
CREATE TABLE artefacts (  -- which record refers to which file
    record_id INTEGER NOT NULL,
    hash TEXT NOT NULL,
    PRIMARY KEY (record_id, hash)
) WITHOUT ROWID
"""
ARTEFACTS_BY_HASH = "CREATE INDEX artefacts_by_hash ON artefacts (hash)"

TABLES = f"""
CREATE TABLE experiments (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    created_at TEXT NOT NULL
);
CREATE TABLE evaluations (
    id INTEGER PRIMARY KEY AUTOINCREMENT,  -- never used again, or a late writer would write into another
    experiment_id INTEGER NOT NULL REFERENCES experiments (id),
    key TEXT NOT NULL,
    name TEXT NOT NULL,
    columns TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    total INTEGER,
    metrics TEXT NOT NULL DEFAULT '[]',
    merged_id INTEGER NOT NULL DEFAULT 0,  -- records up to this id are in record_keys
    UNIQUE (experiment_id, key)
);
CREATE TABLE runs (
    id TEXT PRIMARY KEY,
    evaluation_id INTEGER NOT NULL REFERENCES evaluations (id),
    started_at TEXT NOT NULL,
    ended_at TEXT,
    status TEXT NOT NULL,
    options TEXT NOT NULL,
    versions TEXT NOT NULL,
    git_commit TEXT,
    fingerprint TEXT NOT NULL,
    report TEXT NOT NULL
);
CREATE INDEX runs_of_evaluation ON runs (evaluation_id, started_at);
CREATE TABLE records (
    id INTEGER PRIMARY KEY,  -- evaluation_id * 2^40 + the order in which they were committed
    evaluation_id INTEGER NOT NULL,
    sample_id TEXT NOT NULL,
    repeat INTEGER NOT NULL,
    idx INTEGER NOT NULL,  -- the place in the dataset, or -1
    status TEXT NOT NULL,
    working_s REAL NOT NULL,
    wall_s REAL NOT NULL,
    started_at TEXT NOT NULL,
    tries INTEGER NOT NULL,
    run_id TEXT NOT NULL,
    row_hash INTEGER,  -- NULL where its id is its hash; ahead of the long texts, which are slow to read past
    failure_class TEXT,  -- NULL where it did not fail, and where it failed before there were classes
    scores TEXT NOT NULL,
    failure TEXT,
    history TEXT,  -- NULL where the only try succeeded
    prompt TEXT,
    response TEXT,
    "row" TEXT,
    calls TEXT,  -- NULL where no model was called
    lent TEXT
);
CREATE TABLE record_keys (
    evaluation_id INTEGER NOT NULL,
    sample_id TEXT NOT NULL,
    repeat INTEGER NOT NULL,
    record_id INTEGER NOT NULL,
    PRIMARY KEY (evaluation_id, sample_id, repeat)
) WITHOUT ROWID;
{LOCKS};
{TRACES};
{ARTEFACTS};
{ARTEFACTS_BY_HASH};
"""

MIGRATIONS = {
    1: ("ALTER TABLE records ADD COLUMN calls TEXT",),
    2: (
        "ALTER TABLE locks RENAME TO locks_of_one",
        LOCKS,
        "INSERT INTO locks SELECT token, token, experiment, pid, pid_started, host, holder, acquired_at,"
        " heartbeat_at FROM locks_of_one",
        "DROP TABLE locks_of_one",
    ),
    3: ("ALTER TABLE records ADD COLUMN row_hash INTEGER",),
    4: (
        "ALTER TABLE records ADD COLUMN failure_class TEXT",
        "ALTER TABLE records ADD COLUMN lent TEXT",
        TRACES,
        ARTEFACTS,
        ARTEFACTS_BY_HASH,
    ),
}
"""What leads from each earlier version to the next."""

VALUE_COLUMNS = (
    "idx",
    "status",
    "working_s",
    "wall_s",
    "started_at",
    "tries",
    "run_id",
    "row_hash",
    "failure_class",
    "scores",
    "failure",
    "history",
    "prompt",
    "response",
    '"row"',
    "calls",
    "lent",
)
_COLUMNS = ("id", "evaluation_id", "sample_id", "repeat", *VALUE_COLUMNS)

UPDATE_RECORD = f"UPDATE records SET {', '.join(f'{column} = ?' for column in VALUE_COLUMNS)} WHERE id = ?"


def record_range(evaluation_id: int) -> tuple[int, int]:
    """The lowest and the highest id of an evaluation's records; the lowest itself is never given."""
    return evaluation_id * ROOM_PER_EVALUATION, (evaluation_id + 1) * ROOM_PER_EVALUATION - 1


@cache
def insert_records(count: int) -> str:
    """One statement for `count` records."""
    row = f"({','.join('?' * len(_COLUMNS))})"
    return f"INSERT INTO records ({','.join(_COLUMNS)}) VALUES {','.join([row] * count)}"
