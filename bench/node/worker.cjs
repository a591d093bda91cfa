// A worker process of one side: node worker.cjs SIDE STORE THREADS; the harness starts it.
"use strict";

const { awaitWord, report, say, tally } = require("./wire.cjs");

async function main([side, store]) {
  const peer = require(`./${side}.cjs`);
  const counted = tally();
  say({ ready: true });
  await awaitWord();
  const stop = await peer.work(store, counted);
  await report(counted);
  await stop();
  process.exit(0);
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
