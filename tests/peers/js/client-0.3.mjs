// What a caller does with the official JavaScript SDK 0.3: `client-0.3.mjs <url>` prints what it saw, as JSON.
import { randomUUID } from "node:crypto";
import { ClientFactory } from "@a2a-js/sdk-0.3/client";

const client = await new ClientFactory().createFromUrl(process.argv[2]);
const send = (text, fields = {}) => ({
  message: { kind: "message", messageId: randomUUID(), role: "user", parts: [{ kind: "text", text }], ...fields },
});
const textOf = (artifacts) => (artifacts ?? []).flatMap((a) => a.parts.map((p) => p.text)).join("");
const seen = {};

let text = "";
const states = [];
for await (const event of client.sendMessageStream(send("Hello"))) {
  if (event.kind === "artifact-update") text += textOf([event.artifact]);
  if (event.kind === "status-update") states.push(event.status.state);
}
seen.stream = { text, states };

let task;
for await (const event of client.sendMessageStream(send("hold"))) {
  if (event.kind === "task") task = event;
  if (event.kind === "artifact-update" && textOf([event.artifact]) === "before ") break;
}
for await (const event of client.resubscribeTask({ id: task.id })) {
  if (event.kind === "task" && event.status.state === "working") await client.sendMessage(send("release"));
}
let got = await client.getTask({ id: task.id });
seen.resubscribe = { text: textOf(got.artifacts), state: got.status.state };

for await (const event of client.sendMessageStream(send("hold"))) {
  task = event;
  break;
}
seen.cancel = (await client.cancelTask({ id: task.id })).status.state;

const paused = await client.sendMessage(send("ask"));
await client.sendMessage(send("Aarhus", { taskId: paused.id, contextId: paused.contextId }));
got = await client.getTask({ id: paused.id });
seen.question = {
  asked: paused.status.message.parts.map((part) => part.text).join(""),
  text: textOf(got.artifacts),
  state: got.status.state,
};
console.log(JSON.stringify(seen));
