// What a caller does with the official JavaScript SDK 1: `client-1.mjs <url>` prints what it saw, as JSON.
import { randomUUID } from "node:crypto";
import { Role, TaskState, taskStateToJSON } from "@a2a-js/sdk-1";
import { ClientFactory } from "@a2a-js/sdk-1/client";

const client = await new ClientFactory().createFromUrl(process.argv[2]);
const send = (text, fields = {}) => ({
  tenant: "",
  configuration: undefined,
  metadata: undefined,
  message: {
    messageId: randomUUID(),
    contextId: "",
    taskId: "",
    role: Role.ROLE_USER,
    parts: [{ content: { $case: "text", value: text }, metadata: undefined, filename: "", mediaType: "" }],
    metadata: undefined,
    extensions: [],
    referenceTaskIds: [],
    ...fields,
  },
});
const textOf = (artifacts) => artifacts.flatMap((a) => a.parts.map((p) => p.content.value)).join("");
const stateOf = (task) =>
  taskStateToJSON(task.status.state).replace("TASK_STATE_", "").toLowerCase().replace("_", "-");
const seen = {};

let text = "";
const states = [];
for await (const { payload } of client.sendMessageStream(send("Hello"))) {
  if (payload.$case === "artifactUpdate") text += textOf([payload.value.artifact]);
  if (payload.$case === "statusUpdate") states.push(stateOf(payload.value));
}
seen.stream = { text, states };

let task;
for await (const { payload } of client.sendMessageStream(send("hold"))) {
  if (payload.$case === "task") task = payload.value;
  if (payload.$case === "artifactUpdate" && textOf([payload.value.artifact]) === "before ") break;
}
for await (const { payload } of client.resubscribeTask({ tenant: "", id: task.id })) {
  if (payload.$case === "task" && payload.value.status.state === TaskState.TASK_STATE_WORKING)
    await client.sendMessage(send("release"));
}
let got = await client.getTask({ tenant: "", id: task.id });
seen.resubscribe = { text: textOf(got.artifacts), state: stateOf(got) };

for await (const { payload } of client.sendMessageStream(send("hold"))) {
  task = payload.value;
  break;
}
seen.cancel = stateOf(await client.cancelTask({ tenant: "", id: task.id, metadata: undefined }));

const { payload: _, ...paused } = await client.sendMessage(send("ask"));
const asking = paused.value ?? paused;
await client.sendMessage(send("Aarhus", { taskId: asking.id, contextId: asking.contextId }));
got = await client.getTask({ tenant: "", id: asking.id });
seen.question = {
  asked: asking.status.message.parts.map((part) => part.content.value).join(""),
  text: textOf(got.artifacts),
  state: stateOf(got),
};
const listed = await client.listTasks({ tenant: "", contextId: asking.contextId, status: 0, pageToken: "" });
seen.list = listed.tasks.map((each) => each.history.length);
console.log(JSON.stringify(seen));
