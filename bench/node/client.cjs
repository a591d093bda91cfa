// A process of one side that is no worker: node client.cjs SIDE STORE submit HOW COUNT PER_SECOND, remaining or settings.
"use strict";

const { now, say } = require("./wire.cjs");

const SUBMITTERS = 50;
const CHUNK = 1000;
const WARM = 200;

async function oneByOne(client, count) {
  for (let n = 0; n < count; n++) await client.one(n);
}

async function submit(client, how, count, perSecond) {
  if (["one", "concurrent", "bulk"].includes(how)) await oneByOne(client, WARM);
  const began = performance.now();
  if (how === "one") {
    await oneByOne(client, count);
  } else if (how === "concurrent") {
    const each = Math.floor(count / SUBMITTERS);
    await Promise.all(Array.from({ length: SUBMITTERS }, () => oneByOne(client, each)));
  } else if (how === "bulk" || how === "fill") {
    for (let first = 0; first < count; first += CHUNK) {
      const size = Math.min(CHUNK, count - first);
      await client.many(Array.from({ length: size }, (_, at) => first + at));
    }
  } else if (how === "paced") {
    for (let n = 0; n < count; n++) {
      const gap = (-Math.log(1 - Math.random()) / perSecond) * 1000;
      await new Promise((resume) => setTimeout(resume, gap));
      await client.stamp(now());
    }
  } else {
    throw new Error(`no way to submit: ${how}`);
  }
  return (performance.now() - began) / 1000;
}

async function main([side, store, verb, how, count, perSecond]) {
  const peer = require(`./${side}.cjs`);
  const client = await peer.connect(store);
  if (verb === "submit") {
    say({ answer: await submit(client, how, Number(count), Number(perSecond)) });
  } else {
    say({ answer: await client[verb]() });
  }
  await client.close();
  process.exit(0);
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
