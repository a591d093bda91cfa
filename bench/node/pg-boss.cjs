// pg-boss with batches, NOTIFY and continuous fetching while batches come back full. It keeps done jobs and their output.
"use strict";

const { PgBoss } = require("pg-boss");

const BATCH = 1000;
const POOL = 10;

async function open(store, options) {
  const boss = new PgBoss({ connectionString: store, max: POOL, useListenNotify: true, ...options });
  boss.on("error", console.error);
  await boss.start();
  for (const name of ["noop", "stamp"]) await boss.createQueue(name, { notify: true });
  return boss;
}

async function connect(store) {
  const boss = await open(store, { supervise: false, schedule: false, useListenNotify: false });
  return {
    one: (n) => boss.send("noop", { n }),
    many: (numbers) => boss.insert("noop", numbers.map((n) => ({ data: { n } }))),
    stamp: (sent) => boss.send("stamp", { sent }),
    async remaining() {
      const { rows } = await boss.getDb().executeSql("SELECT count(*)::int AS count FROM pgboss.job WHERE state < 'completed'");
      return rows[0].count;
    },
    async settings() {
      return `pg-boss ${require("pg-boss/package.json").version}, Node ${process.versions.node}; batchSize=${BATCH}, burstWhenBatchFull, notify`;
    },
    close: () => boss.stop({ graceful: false }),
  };
}

async function work(store, tally) {
  const boss = await open(store, { schedule: false });
  const options = { batchSize: BATCH, burstWhenBatchFull: true };
  await boss.work("noop", options, async (jobs) => {
    tally.ran += jobs.length;
  });
  await boss.work("stamp", options, async (jobs) => {
    for (const { data } of jobs) tally.stamp(data.sent);
  });
  return () => boss.stop();
}

module.exports = { connect, work };
