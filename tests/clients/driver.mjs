// Runs the TypeScript client for tests: a job on each line of stdin, its result on a line of stdout. The first argument
// is the compiled client.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const { Client } = await import(pathToFileURL(process.argv[2]));

async function run({ url, session: id, do: what, transport, after, from, abortAt, stopAt, stopAfter, backoff, token }) {
  const client = new Client({ url, backoff, ...(token && { token }) });
  const session = client.session(id);
  const stop = new AbortController();
  const states = [];
  const options = { signal: stop.signal, onState: (state) => states.push(state.name) };
  const events = what === "stream" ? session.stream("Hi", options) : session.follow({ ...options, transport, after, from });
  const seen = [];
  let error = null;
  try {
    for await (const event of events) {
      seen.push(JSON.stringify(event));
      if (event.type === abortAt) await session.abort();
      if (seen.length === stopAfter || event.type === stopAt) stop.abort(new Error("enough"));
    }
  } catch (thrown) {
    if (thrown.message !== "enough") error = thrown.code ?? String(thrown.stack);
  }
  return { events: seen, error, states, state: events.state.name };
}

for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  const job = JSON.parse(line);
  run(job).then((result) => process.stdout.write(`${JSON.stringify({ ...result, id: job.id })}\n`));
}
