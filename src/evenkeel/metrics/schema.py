"""The tables of run.db, as numbered migrations: script n brings a database from `user_version` n - 1 to n.

A released script is never edited: a change is a further script at the end.
"""

APPLICATION_ID = 0x45564B4C
"""`EVKL`, in the header of the file: tells our databases from other SQLite files."""

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE run (
        key TEXT PRIMARY KEY,
        value TEXT NOT NULL                    -- JSON
    );

    CREATE TABLE steps (
        step INTEGER PRIMARY KEY,              -- optimizer steps, from 1
        epoch INTEGER NOT NULL,
        time REAL NOT NULL,                    -- Unix seconds
        metrics TEXT NOT NULL                  -- JSON: name -> number
    );

    CREATE TABLE epochs (
        epoch INTEGER PRIMARY KEY,             -- 0: the untrained student
        step INTEGER NOT NULL,                 -- optimizer steps done at its end
        time REAL NOT NULL,
        metrics TEXT NOT NULL
    );

    CREATE TABLE tasks (
        task_id TEXT PRIMARY KEY,
        prompt TEXT NOT NULL,
        entry_point TEXT NOT NULL,
        difficulty REAL
    );

    CREATE TABLE samples (
        kind TEXT NOT NULL,                    -- train, or the kind of an evaluation
        epoch INTEGER NOT NULL,
        step INTEGER NOT NULL,
        group_index INTEGER NOT NULL,          -- within the step: a task may be drawn twice
        sample_index INTEGER NOT NULL,
        task_id TEXT NOT NULL,
        text TEXT NOT NULL,                    -- the completion: made by a model, escape it where it is shown
        program TEXT NOT NULL,                 -- what was run
        outcome TEXT NOT NULL,
        detail TEXT NOT NULL,
        tests_passed INTEGER NOT NULL,
        tests_total INTEGER NOT NULL,
        reward REAL,                           -- NULL: not scored
        bonus REAL NOT NULL,
        advantage REAL,                        -- NULL: evaluation
        trains INTEGER,
        parts TEXT NOT NULL,                   -- JSON: [name, weight, status, value, reason]
        logprob_mean REAL,                     -- nats per token, under the sampler
        length INTEGER NOT NULL,               -- tokens
        truncated INTEGER NOT NULL,
        PRIMARY KEY (kind, epoch, step, group_index, sample_index)
    ) WITHOUT ROWID;
    CREATE INDEX samples_by_task ON samples (task_id, kind, epoch);

    CREATE TABLE task_scores (
        epoch INTEGER NOT NULL,
        kind TEXT NOT NULL,                    -- validation, greedy, temperature_0.3, ...
        task_id TEXT NOT NULL,
        rewards TEXT NOT NULL,                 -- JSON: one number a scored sample
        test_shares TEXT NOT NULL,
        PRIMARY KEY (epoch, kind, task_id)
    ) WITHOUT ROWID;

    CREATE TABLE grades (
        key TEXT PRIMARY KEY,                  -- sha256 of task and completion
        grade TEXT NOT NULL                    -- JSON
    ) WITHOUT ROWID;

    CREATE TABLE events (
        id INTEGER PRIMARY KEY AUTOINCREMENT,  -- never reused: a follower asks for what came after the last it saw
        time REAL NOT NULL,
        step INTEGER,
        kind TEXT NOT NULL,
        message TEXT NOT NULL,
        data TEXT NOT NULL                     -- JSON
    );
    """,
)
