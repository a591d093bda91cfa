// What a child process of the benchmark says and hears; see bench/wire.py.
"use strict";

const readline = require("node:readline");

const TICK = 5;

function say(facts) {
  process.stdout.write(JSON.stringify(facts) + "\n");
}

function now() {
  return (performance.timeOrigin + performance.now()) / 1000;
}

const words = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();

async function awaitWord() {
  if ((await words.next()).done) process.exit(1);
}

async function report(tally) {
  let said = 0;
  const timer = setInterval(() => {
    if (tally.ran !== said) {
      said = tally.ran;
      say({ done: said, at: now() });
    }
  }, TICK);
  await awaitWord();
  clearInterval(timer);
  say({ waits: tally.waits });
}

function tally() {
  const self = {
    ran: 0,
    waits: [],
    stamp(sent) {
      self.waits.push(now() - sent);
      self.ran += 1;
    },
  };
  return self;
}

module.exports = { awaitWord, now, report, say, tally };
