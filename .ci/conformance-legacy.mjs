// The runner's scenarios of 2025-11-25, which legacy clients are served without a session.
//
// What needs a session, or is not served to anybody, stands in conformance-legacy.json with its
// reason. An entry whose scenario passes, or that the runner does not have, is stale and fails.

import { readFileSync } from "node:fs";
import path from "node:path";
import { ROOT } from "./clients/root.mjs";

const VERSION = "2025-11-25";
const SCENARIOS = 33;

const excused = JSON.parse(readFileSync(path.join(ROOT, ".ci/conformance-legacy.json"), "utf8"));

/// Runs them all: whether all that can pass did. `tools` are the runner's, from conformance.mjs.
export async function checkLegacy(url, out, { runner, scenarios, saved, judge, show }) {
  const names = await scenarios("--spec-version", VERSION);
  if (names.length !== SCENARIOS) throw new Error(`expected ${SCENARIOS} scenarios of ${VERSION}, the runner has ${names.join(", ")}`);
  const { output } = await runner(["server", "--url", url, "--suite", "all", "--spec-version", VERSION, "-o", out], 3 * 60_000);
  const checks = saved(out);
  const counts = { passed: 0, failed: 0, excused: 0 };
  for (const name of names) {
    const problems = judge(checks.get(name));
    if (problems.length > 0 && excused[name]) {
      counts.excused += 1;
    } else if (problems.length > 0) {
      counts.failed += 1;
      show(name, problems, checks.has(name) ? "" : output);
    } else {
      counts.passed += 1;
    }
  }
  for (const [name, { why, reason }] of Object.entries(excused)) {
    const passes = !names.includes(name) || judge(checks.get(name)).length === 0;
    if (!passes && ["needs a session", "not served"].includes(why) && reason) continue;
    counts.failed += 1;
    console.log(`STALE conformance-legacy.json: ${name}: ${passes ? "passes, or no longer exists" : "lacks its reason"}`);
  }
  const needing = (wanted) => Object.values(excused).filter(({ why }) => why === wanted).length;
  console.log(`conformance ${VERSION}: ${counts.passed} passed, ${counts.failed} failed, ${needing("needs a session")} need a session, ${needing("not served")} not served`);
  return counts.failed === 0;
}
