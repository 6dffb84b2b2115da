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

IN_ORDER = "CREATE INDEX records_in_order ON records (evaluation_id, idx, sample_id, repeat)"
"""For pages. Most records end nearly in the order of the dataset, so that an entry costs about 2 µs."""

NOT_DONE = (
    "CREATE INDEX records_not_done ON records (evaluation_id, idx, sample_id, repeat) WHERE status <> 'done'"
)

REWRITES = """
CREATE TABLE rewrites (
    ticket INTEGER PRIMARY KEY,  -- evaluation_id * 2^40 + the order in which records were rewritten
    record_id INTEGER NOT NULL UNIQUE
)
"""

TALLIES = """
CREATE TABLE tallies (  -- what counting the records would give, where evaluations.tallied is 1
    evaluation_id INTEGER NOT NULL,
    status TEXT NOT NULL,
    failure_class TEXT NOT NULL,  -- empty where it did not fail
    count INTEGER NOT NULL,
    working_s REAL NOT NULL,  -- of those that have no place, too
    PRIMARY KEY (evaluation_id, status, failure_class)
) WITHOUT ROWID
"""

PROGRESS = """
CREATE TABLE progress (  -- of runs that have not ended
    run_id TEXT PRIMARY KEY,
    evaluation_id INTEGER NOT NULL,
    updated_at TEXT NOT NULL,
    pid INTEGER NOT NULL,
    pid_started REAL NOT NULL,
    host TEXT NOT NULL,
    told TEXT NOT NULL
)
"""

_TALLY = """
SELECT evaluation_id, status, CASE status WHEN 'failed' THEN coalesce(failure_class, 'code') ELSE '' END,
       sum(idx >= 0), total(working_s)
FROM records WHERE id BETWEEN {} AND {} GROUP BY 1, 2, 3
"""
COUNT_RECORDS = _TALLY.format("?", "?")

_ENDED_BY_RECORDS = "strftime('%Y-%m-%dT%H:%M:%f+00:00', max(julianday(started_at) + wall_s / 86400.0))"
LATEST_END = f"""
SELECT {_ENDED_BY_RECORDS} FROM records WHERE run_id = ?3 AND id IN (
    SELECT * FROM (SELECT id FROM records WHERE id BETWEEN ?1 AND ?2 ORDER BY id DESC LIMIT 1000)
    UNION ALL
    SELECT * FROM (
        SELECT record_id FROM rewrites WHERE ticket BETWEEN ?1 AND ?2 ORDER BY ticket DESC LIMIT 1000
    )
)
"""
"""When the newest records of a run ended. They are committed as they end, so that the newest tell."""

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
    tallied INTEGER NOT NULL DEFAULT 1,  -- 0 where records must be counted
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
{IN_ORDER};
{NOT_DONE};
{REWRITES};
{TALLIES};
{PROGRESS};
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
        IN_ORDER,
        NOT_DONE,
        REWRITES,
        TALLIES,
        PROGRESS,
        "ALTER TABLE evaluations ADD COLUMN tallied INTEGER NOT NULL DEFAULT 1",
        f"INSERT INTO tallies {_TALLY.format(0, (1 << 63) - 1)}",
        f"UPDATE runs SET ended_at = (SELECT {_ENDED_BY_RECORDS} FROM records WHERE run_id = runs.id"
        f" AND id / {ROOM_PER_EVALUATION} = runs.evaluation_id)"
        " WHERE ended_at IS NULL AND status = 'broken'",
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
