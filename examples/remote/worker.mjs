// A headrace worker in JavaScript without any package: HEADRACE_HUB=https://… HEADRACE_KEY=hr_… node worker.mjs
// Its jobs: {"task": "fetch", "payload": {"urls": ["https://example.com/"]}}. Needs Node 20.3 or newer.
import { setTimeout as sleep } from "node:timers/promises";

const { HEADRACE_HUB: hub = "http://127.0.0.1:8470", HEADRACE_KEY: key } = process.env;
const headers = { "content-type": "application/json", ...(key && { authorization: `Bearer ${key}` }) };
const stop = new AbortController(); // this program is to end

// Until the hub answers: every message may be repeated.
async function say(message, fields, signal) {
  for (;;) {
    try {
      const body = JSON.stringify(fields);
      const answer = await fetch(`${hub}/api/work/${message}`, { method: "POST", headers, body, signal });
      if (answer.ok) return await answer.json();
      if (answer.status === 409) return { cancel: true }; // the job is no longer ours
      if (![429, 500, 502, 503, 504].includes(answer.status)) process.exit(console.error(await answer.text()) ?? 1);
    } catch (error) {
      if (signal?.aborted) return {};
      console.error(`${message}: ${error.cause ?? error}; once more in a second`);
    }
    await sleep(1000);
  }
}

async function run({ lease, payload: { urls = [] } }) {
  const sizes = {}, taken = new AbortController(); // the job was cancelled, or is no longer ours
  const signal = AbortSignal.any([stop.signal, taken.signal]);
  let report = { lease, progress: 0 };
  const progress = async () => (await say("update_job_progress", report)).cancel && taken.abort();
  const beating = setInterval(progress, 1000 * me.heartbeat_seconds); // it is at work, also if a page takes long
  try {
    await say("accept_job", { lease });
    for (const [done, url] of urls.entries()) {
      report = { lease, progress: (100 * done) / urls.length, message: url };
      await progress();
      const page = await fetch(url, { signal });
      // A server that is broken may be well again later; what is not there will not be.
      if (!page.ok) throw Object.assign(new Error(`${url}: ${page.status}`), { retry: page.status >= 500 });
      sizes[url] = (await page.arrayBuffer()).byteLength;
    }
    await say("complete_job", { lease, result: sizes });
  } catch ({ name, message, retry = true }) {
    if (signal.aborted) await say("release_job", { lease }); // which ends one that was cancelled
    else await say("fail_job", { lease, error: message, retry, error_details: { error_type: name } });
  } finally {
    clearInterval(beating);
  }
}

for (const name of ["SIGINT", "SIGTERM"]) process.once(name, () => stop.abort());
const worker_id = `fetcher-${process.pid}`;
const me = await say("register_worker", { worker_id, tasks: ["fetch"], capabilities: { region: "eu" } });
while (!stop.signal.aborted) {
  const claim = { worker_id, token: me.token, wait: 30, request: crypto.randomUUID() };
  const answer = await say("claim_job", claim, stop.signal);
  await (answer.type === "job_assigned" ? run(answer) : sleep(1000 * (answer.retry_after ?? 0)));
}
