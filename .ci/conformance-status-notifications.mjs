// Our own checks for `tasks-status-notifications`, a scenario that the official runner only skips:
// `notifications/tasks` on `subscriptions/listen` with `taskIds` (SEP-2663, SEP-2575).

import { DECLARED, call, messages, post, result } from "./clients/rpc.mjs";

const SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId";
const TERMINAL = ["completed", "failed", "cancelled"];
const WITHIN_MS = 20_000;

/// Opens a listen stream; `next(wanted)` resolves to the first message that `wanted` accepts.
async function listen(url, notifications, id) {
  const abort = new AbortController();
  const response = await post(url, "subscriptions/listen", { notifications }, { id, signal: abort.signal });
  const stream = messages(response);
  const seen = [];
  return {
    status: response.status,
    seen,
    async next(what, wanted) {
      const timer = setTimeout(() => abort.abort(new Error(`${what} did not arrive within ${WITHIN_MS / 1000} s`)), WITHIN_MS);
      try {
        for (;;) {
          const { value, done } = await stream.next();
          if (done) throw new Error(`the stream ended before ${what}`);
          seen.push(value);
          if (wanted(value)) return value;
        }
      } finally {
        clearTimeout(timer);
      }
    },
    close: () => abort.abort(),
  };
}

/// Runs the checks against `url`; resolves to an array shaped like the runner's checks.json.
export async function checkStatusNotifications(url) {
  const checks = [];
  const check = (id, ok, errorMessage) => checks.push({ id, status: ok ? "SUCCESS" : "FAILURE", errorMessage: ok ? undefined : errorMessage });

  const asking = await result(url, "tools/call", { name: "confirm_delete", arguments: { filename: "status.txt" } });
  const cancelled = await result(url, "tools/call", { name: "slow_compute", arguments: { seconds: 60 } });
  const unknown = "01900000-0000-7000-8000-000000000000";
  const wanted = [asking.taskId, cancelled.taskId];

  const subscriptionId = "status-notifications-1";
  const stream = await listen(url, { taskIds: [...wanted, unknown] }, subscriptionId);
  try {
    const first = await stream.next("the acknowledgement", () => true);
    const agreed = first.params?.notifications?.taskIds ?? [];
    check("acknowledged-first", first.method === "notifications/subscriptions/acknowledged", `the first message is ${JSON.stringify(first)}`);
    check("acknowledged-subset", wanted.every((id) => agreed.includes(id)) && !agreed.includes(unknown),
      `agreed to ${JSON.stringify(agreed)}, not to exactly the caller's own tasks`);

    const about = (taskId, statuses) => (message) =>
      message.method === "notifications/tasks" && message.params.taskId === taskId && statuses.includes(message.params.status);
    const parked = await stream.next("input_required", about(asking.taskId, ["input_required"]));
    const shown = await result(url, "tasks/get", { taskId: asking.taskId });
    check("input-required-is-whole-task", JSON.stringify(parked.params.inputRequests) === JSON.stringify(shown.inputRequests),
      `the notification holds ${JSON.stringify(parked.params.inputRequests)}, tasks/get ${JSON.stringify(shown.inputRequests)}`);

    const [key] = Object.keys(parked.params.inputRequests ?? {});
    await result(url, "tasks/update", { taskId: asking.taskId, inputResponses: { [key]: { action: "accept", content: { confirm: true } } } });
    const completed = await stream.next("completed", about(asking.taskId, TERMINAL));
    check("completed-with-result", completed.params.status === "completed" && completed.params.result?.resultType === "complete",
      `the last notification is ${JSON.stringify(completed)}`);

    await result(url, "tasks/cancel", { taskId: cancelled.taskId });
    const ended = await stream.next("the end of the cancelled task", about(cancelled.taskId, TERMINAL));
    check("cancelled", ended.params.status === "cancelled", `the task ended as ${ended.params.status}`);

    const updates = stream.seen.filter((message) => message.method === "notifications/tasks");
    check("subscription-id-on-all", stream.seen.every((message) => message.params?._meta?.[SUBSCRIPTION_ID] === subscriptionId),
      `a message lacks the subscription id ${JSON.stringify(subscriptionId)}`);
    check("no-result-type", updates.every((message) => !("resultType" in message.params)), "notifications/tasks carries resultType");
    check("no-requests-on-stream", stream.seen.every((message) => message.method === undefined || message.id === undefined),
      "the stream carries a request");
    check("only-subscribed-tasks", updates.every((message) => wanted.includes(message.params.taskId)), "a task that was not asked for was reported");
  } finally {
    stream.close();
  }

  const { elicitation, sampling } = DECLARED;
  const undeclared = await call(url, "subscriptions/listen", { notifications: { taskIds: wanted } }, { capabilities: { elicitation, sampling } });
  check("undeclared-refused", undeclared.error?.code === -32021, `without the extension: ${JSON.stringify(undeclared)}`);
  return checks;
}
