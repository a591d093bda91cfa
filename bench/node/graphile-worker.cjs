// graphile-worker as its documentation tunes it for throughput: local queue, batched completion. It removes done jobs.
"use strict";

const { Logger, makeWorkerUtils, run } = require("graphile-worker");

const WORKER = {
  concurrentJobs: 24,
  maxPoolSize: 25,
  localQueue: { size: 500 },
  completeJobBatchDelay: 0,
  failJobBatchDelay: 0,
};
const POOL = 10;

const silent = new Logger(() => () => {});

async function connect(store) {
  const utils = await makeWorkerUtils({ connectionString: store, maxPoolSize: POOL, logger: silent });
  await utils.migrate();
  return {
    one: (n) => utils.addJob("noop", { n }),
    many: (numbers) => utils.addJobs(numbers.map((n) => ({ identifier: "noop", payload: { n } }))),
    stamp: (sent) => utils.addJob("stamp", { sent }),
    async remaining() {
      const query = "SELECT count(*)::int AS count FROM graphile_worker.jobs";
      const { rows } = await utils.withPgClient((client) => client.query(query));
      return rows[0].count;
    },
    async settings() {
      const { localQueue, ...rest } = WORKER;
      const said = Object.entries({ "localQueue.size": localQueue.size, ...rest }).map(([key, value]) => `${key}=${value}`);
      return `graphile-worker ${require("graphile-worker/package.json").version}, Node ${process.versions.node}; ${said.join(", ")}`;
    },
    close: () => utils.release(),
  };
}

async function work(store, tally) {
  const runner = await run({
    preset: { worker: { connectionString: store, ...WORKER } },
    logger: silent,
    noHandleSignals: true,
    parsedCronItems: [],
    taskList: {
      noop: async () => {
        tally.ran += 1;
      },
      stamp: async ({ sent }) => tally.stamp(sent),
    },
  });
  return () => runner.stop();
}

module.exports = { connect, work };
