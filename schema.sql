-- Everything lockbench keeps stands in the schema lockbench. The comment on the schema marks it as lockbench's own: a schema of that
-- name without the mark is somebody else's, and is left alone.
--
-- fillfactor leaves most of a page free, so that updates stay on the page of their row (HOT) and a few dozen rows already span
-- several pages: the planner then reads one row through the index, as it would in a table of real size. Scanned from end to end,
-- serializable would see conflicts between users of different rows.
--
-- fence is the token of the last writer who held a lock of a lock service (strategies zookeeper, hazelcast, etcd, redis with fencing).

CREATE SCHEMA lockbench;
COMMENT ON SCHEMA lockbench IS 'lockbench:v1 created by lockbench, emptied before every trial';

-- runs: a run whose users several processes share, while it lasts. Nothing of these two tables is worth keeping through a crash, and what
-- is not logged adds nothing to the WAL of a race.
CREATE UNLOGGED TABLE lockbench.runs (
    id        text PRIMARY KEY,
    lockbench text NOT NULL,    -- version of the coordinator
    workers   integer NOT NULL, -- how many it waits for
    plan      text              -- its settings, as JSON
);

-- workers: the processes that have joined a run, each with what it measured until the coordinator has taken it.
CREATE UNLOGGED TABLE lockbench.workers (
    run    text NOT NULL REFERENCES lockbench.runs (id) ON DELETE CASCADE,
    number integer NOT NULL, -- from 1
    name   text NOT NULL,
    host   text NOT NULL,
    failed text,             -- why it cannot take part
    share  bytea,
    PRIMARY KEY (run, number)
);

-- seats: one row a seat; holder is the user who has it.
CREATE TABLE lockbench.seats (
    id      bigint PRIMARY KEY,
    holder  bigint,
    version bigint NOT NULL DEFAULT 0,
    fence   bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);

-- bookings: the same claim as a row of its own, for strategy unique: the primary key admits one booking a seat.
CREATE TABLE lockbench.bookings (
    seat_id bigint PRIMARY KEY REFERENCES lockbench.seats (id),
    user_id bigint NOT NULL
);

-- accounts: one row an account; a transfer moves an amount from one to another.
CREATE TABLE lockbench.accounts (
    id      bigint PRIMARY KEY,
    balance bigint NOT NULL,
    version bigint NOT NULL DEFAULT 0,
    fence   bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);

-- doctors: who is on duty (1) or off (0) in a shift; somebody must be on duty in each.
CREATE TABLE lockbench.doctors (
    id      bigint PRIMARY KEY,
    shift   bigint NOT NULL,
    on_duty bigint NOT NULL,
    version bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);
CREATE INDEX doctors_shift ON lockbench.doctors (shift);

-- jobs: a queue; worker is the user who claimed the job. The index holds what is still to be done, so that a claim does not wade through
-- what is done.
CREATE TABLE lockbench.jobs (
    id      bigint PRIMARY KEY,
    worker  bigint,
    version bigint NOT NULL DEFAULT 0,
    fence   bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);
CREATE INDEX jobs_ready ON lockbench.jobs (id) WHERE worker IS NULL;

-- stock: one row an item; a reservation moves a quantity from available to reserved.
CREATE TABLE lockbench.stock (
    id        bigint PRIMARY KEY,
    available bigint NOT NULL,
    reserved  bigint NOT NULL DEFAULT 0,
    version   bigint NOT NULL DEFAULT 0,
    fence     bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);

-- charges: what was really charged, one row an execution; amount is 0 once it was refunded.
CREATE TABLE lockbench.charges (
    id      bigint PRIMARY KEY,
    payment bigint NOT NULL,
    account bigint NOT NULL,
    amount  bigint NOT NULL,
    version bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);

-- idempotency_keys: the payments that were begun; charge is the stored result, NULL while the payment is under way, 0
-- when it was refused, -1 when there is no such account.
CREATE TABLE lockbench.idempotency_keys (
    id      bigint PRIMARY KEY,
    charge  bigint,
    version bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);

-- orders: state is 1 while units are reserved for it, 2 when it is placed, 3 when it was undone.
CREATE TABLE lockbench.orders (
    id      bigint PRIMARY KEY,
    item    bigint NOT NULL,
    state   bigint NOT NULL,
    version bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);

-- parents and children: a foreign key, whose check on inserting a child takes a lock on its parent.
CREATE TABLE lockbench.parents (
    id      bigint PRIMARY KEY,
    touched bigint NOT NULL,
    version bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);
CREATE TABLE lockbench.children (
    id      bigint PRIMARY KEY,
    parent  bigint NOT NULL REFERENCES lockbench.parents (id),
    version bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);

-- tickets: one row a ticket sold; how many a show has left is counted, so there is no row to lock.
CREATE TABLE lockbench.tickets (
    id      bigint PRIMARY KEY,
    show    bigint NOT NULL,
    holder  bigint NOT NULL,
    version bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);
CREATE INDEX tickets_show ON lockbench.tickets (show);
