"use strict";
// Shows status and sessions. Everything from the daemon goes into text nodes, never into markup.
// The sign-in code comes in the fragment, is taken out of the address at once, and is exchanged for
// a bearer token that lives in this tab alone.

const KEY = "cordon.token";
const EVERY_MS = 3000;

function byId(id) {
  return document.getElementById(id);
}

function say(text) {
  byId("state").textContent = text;
}

async function ask(method, path, body) {
  const token = sessionStorage.getItem(KEY);
  const headers = {};
  if (token) headers.Authorization = "Bearer " + token;
  if (body) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, {
    method, headers, body: body ? JSON.stringify(body) : undefined,
    credentials: "omit", cache: "no-store", referrerPolicy: "no-referrer",
  });
  const data = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(data.detail || data.title), { code: data.code });
  return data;
}

async function signIn() {
  const match = /^#c=([A-Za-z0-9_-]{22})$/.exec(location.hash);
  if (location.hash) history.replaceState(null, "", location.pathname);
  if (!match) return;
  const answer = await ask("POST", "/v1/auth/exchange", { code: match[1] });
  sessionStorage.setItem(KEY, answer.token);
}

function element(name, text) {
  const e = document.createElement(name);
  e.textContent = text;
  return e;
}

function showStatus(status) {
  const rows = [["State", status.state], ["Provider", status.provider], ["Platform", status.platform],
    ["Version", status.version]];
  for (const check of status.checks) rows.push([check.id, (check.ok ? "holds" : "FAILED") + " — " + check.detail]);
  byId("wall").replaceChildren(...rows.flatMap(([k, v]) => [element("dt", k), element("dd", v)]));
  byId("fix").replaceChildren(...status.fix.map((f) => element("li", f.command ? f.text + ": " + f.command : f.text)));
}

function sessionRow(session) {
  const row = document.createElement("tr");
  const folders = (session.folders || []).map((f) => f.path + " (" + f.mode + ")").join(", ");
  for (const text of [session.name, session.state, session.tier, session.enforcement.level, folders, session.created_at])
    row.append(element("td", text));
  return row;
}

async function refresh() {
  showStatus(await ask("GET", "/v1/status"));
  const sessions = await ask("GET", "/v1/sessions?limit=100");
  byId("sessions").replaceChildren(...sessions.items.map(sessionRow));
  byId("none").hidden = sessions.items.length > 0;
  say("Signed in");
}

async function turn() {
  try {
    await refresh();
  } catch (error) {
    if (error.code === "token_missing" || error.code === "token_invalid") {
      sessionStorage.removeItem(KEY);
      say("Not signed in. Run “cordon open” on this machine.");
      return;
    }
    say("Not reachable: " + error.message);
  }
  setTimeout(turn, EVERY_MS);
}

signIn().catch((error) => say(error.message)).then(turn);
