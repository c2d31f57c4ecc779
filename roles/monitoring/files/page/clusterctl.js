// Copyright the clusterctl authors
// SPDX-License-Identifier: Apache-2.0
//
// The page clusterctl.html: it asks Prometheus, from which it comes, and draws the answers. PANELS and CLUSTER are before this.
//
// What machines and users say (names, reasons) is put in as text alone. A comment is a line of its own: it is taken out
// before the page is written, and two opening braces in a row would be a template to Prometheus.
"use strict";

const API = "../api/v1/";
const SCRAPED = 15;
const POINTS = 120;
const EACH = 8;
const RANGES = new Map([["1h", 3600], ["6h", 21600], ["24h", 86400], ["7d", 604800]]);
const USUAL = "1h";
const address = new URLSearchParams(location.search);
const NODE = address.get("node"), JOB = address.get("job");
const NAME = NODE !== null ? "node" : JOB !== null ? "job" : address.get("view") === "fabric" ? "fabric" : "overview";
const VIEW = PANELS[NAME];
const main = document.querySelector("main");
const plots = [];

// An element with its attributes and what is in it; texts become text nodes.
function el(tag, attributes, ...inside) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== undefined && value !== null) made.setAttribute(name, value);
  }
  made.append(...inside.filter((one) => one !== undefined && one !== null && one !== ""));
  return made;
}

// A sign for the eye; what it means is beside it in words.
const sign = (mark) => el("span", {class: "k", "aria-hidden": "true"}, mark);

function section(id, title, within) {
  let found = document.getElementById(id);
  if (!found) (within || main).append(found = el("section", {id, "aria-label": title}));
  found.replaceChildren(el("h2", {}, title));
  return found;
}

const there = (more) => "?" + new URLSearchParams(more);
const toNode = (name) => el("a", {href: there({node: name})}, name);
const toJob = (number) => el("a", {href: there({job: number})}, number);
const listed = (parts) => parts.flatMap((part, place) => (place ? [", ", part] : [part]));
const many = (count, one, more) => count + " " + (count === 1 ? one : more);

// ---- Numbers in words

const rounded = (value) => (Math.abs(value) >= 100 ? Math.round(value) : Number(value.toPrecision(value >= 10 ? 3 : 2)));
function scaled(value, step, names) {
  let place = 0;
  while (Math.abs(value) >= step && place < names.length - 1) {
    value /= step;
    place += 1;
  }
  return rounded(value) + " " + names[place];
}
function lasting(seconds) {
  if (seconds > 0 && seconds < 1) return rounded(seconds * 1000) + " ms";
  for (const [most, size, name] of [[120, 1, "s"], [3600, 60, "min"], [172800, 3600, "h"], [Infinity, 86400, "d"]]) {
    if (seconds < most) return (seconds / size >= 10 ? Math.round(seconds / size) : rounded(seconds / size)) + " " + name;
  }
  return "";
}
const UNITS = {
  percentunit: (value) => (value > 0 && value < 0.1 ? Number((value * 100).toFixed(1)) : Math.round(value * 100)) + " %",
  bytes: (value) => scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]),
  bps: (value) => scaled(value, 1000, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"]),
  watt: (value) => scaled(value, 1000, ["W", "kW", "MW"]),
  celsius: (value) => Math.round(value) + " °C",
  s: lasting,
  short: (value) => String(rounded(value)),
};
const shown = (unit, value) => (value === null || value === undefined || Number.isNaN(value) ? "none" : UNITS[unit](value));
const clock = new Intl.DateTimeFormat("en-GB", {hour: "2-digit", minute: "2-digit"});
const day = new Intl.DateTimeFormat("en-GB", {day: "numeric", month: "short"});
const moment = (seconds) => day.format(seconds * 1000) + ", " + clock.format(seconds * 1000);

// ---- Questions

async function ask(kind, parameters) {
  asked += 1;
  const answer = await fetch(API + kind, {
    method: parameters ? "POST" : "GET",
    body: parameters && new URLSearchParams(parameters),
    signal: AbortSignal.timeout(30000),
  });
  const told = await answer.json().catch(() => null);
  if (!told || told.status !== "success") throw new Error(told && told.error ? told.error : "HTTP " + answer.status);
  return told.data;
}

// Several expressions in one request: each series carries the name of its own in the label "ask".
function together(asks, rate) {
  return Object.entries(asks).map(([name, expression]) => {
    const whole = expression.replaceAll("$__rate_interval", rate + "s").replaceAll("$node", NODE).replaceAll("$job", JOB);
    return "label_replace(" + whole + ', "ask", "' + name + '", "", "")';
  }).join(" or ");
}

// The answers of now by name: lists of {labels, value}.
async function now(asks) {
  const found = Object.fromEntries(Object.keys(asks).map((name) => [name, []]));
  for (const one of (await ask("query", {query: together(asks, 120)})).result) {
    found[one.metric.ask].push({...one.metric, value: Number(one.value[1])});
  }
  return found;
}

// ---- States of nodes, in Slurm's words

const CONDITIONS = {
  "did not wake up": ["✕", "fail"], "not responding": ["✕", "fail"], invalid: ["✕", "fail"], fail: ["✕", "fail"],
  down: ["✕", "fail"], error: ["✕", "fail"], unknown: ["?", "unknown"], other: ["?", "unknown"],
  "not in Slurm": ["?", "unknown"], drained: ["⊘", "warn"], draining: ["⊘", "warn"], maintenance: ["⚑", "warn"],
  rebooting: ["↻", "simulated"], "waking up": ["↻", "simulated"], allocated: ["●", "pass"], mixed: ["◐", "pass"],
  idle: ["○", "pass"], asleep: ["☾", "skip"], future: ["·", "skip"],
};
const HEALTHY = new Set(["allocated", "mixed", "idle"]);

function condition(base, flags) {
  const has = (...words) => words.some((word) => flags.has(word));
  if (base === "down" && has("powered_down")) return "did not wake up";
  if (base !== "down" && has("power_down", "powering_down", "powered_down")) return "asleep";
  if (has("powering_up", "power_up")) return "waking up";
  if (has("reboot_issued")) return "rebooting";
  if (has("maintenance")) return "maintenance";
  if (has("drain")) return base === "allocated" || base === "mixed" || has("completing") ? "draining" : "drained";
  if (base !== "down" && has("not_responding")) return "not responding";
  if (has("invalid_reg")) return "invalid";
  if (has("fail")) return "fail";
  return base in CONDITIONS ? base : "other";
}

// What is known of each node of Slurm.
function nodesOf(found) {
  const nodes = new Map();
  for (const {node, state} of found.state) nodes.set(node, {name: node, base: state, flags: new Set(), reason: ""});
  const each = (name, put) => found[name].forEach((one) => nodes.has(one.node) && put(nodes.get(one.node), one));
  each("flag", (node, {flag}) => node.flags.add(flag));
  each("reason", (node, {reason}) => { node.reason = reason || ""; });
  for (const name of ["declared", "allocated", "idle"]) each(name, (node, {value}) => { node[name] = value; });
  each("up", (node, {value}) => { node.silent = value === 0; });
  for (const node of nodes.values()) {
    node.word = condition(node.base, node.flags);
    [node.mark, node.kind] = CONDITIONS[node.word];
    node.silent = Boolean(node.silent) && node.word !== "asleep";
  }
  return [...nodes.values()].sort((one, other) => one.name.localeCompare(other.name, "en", {numeric: true}));
}

// ---- Alerts

const SEVERITIES = {critical: ["✕", "fail"], warning: ["!", "warn"], info: ["i", "simulated"]};

function drawAlerts(alerts, wanted) {
  const place = section("alerts", "Alerts");
  if (alerts instanceof Error) return void place.append(el("p", {class: "note unknown"}, "Prometheus did not say which alerts fire: ", alerts.message));
  if (!alerts.some((one) => one.labels.alertname === "Watchdog" && one.state === "firing")) {
    place.append(el("p", {class: "note unknown"}, "Unknown: Prometheus is not evaluating alerts, or has only just started."));
  }
  const firing = alerts.filter((one) => one.state === "firing" && one.labels.severity in SEVERITIES && wanted(one.labels));
  const groups = new Map();
  for (const one of firing) groups.set(one.labels.alertname, [...(groups.get(one.labels.alertname) || []), one]);
  const order = Object.keys(SEVERITIES);
  const sorted = [...groups.values()].sort((one, other) => order.indexOf(one[0].labels.severity) - order.indexOf(other[0].labels.severity));
  const cards = place.appendChild(el("div", {class: "cards"}));
  for (const group of sorted) {
    for (const alert of group.length > 3 ? [group[0]] : group) {
      const [mark, kind] = SEVERITIES[alert.labels.severity];
      const others = [...new Set(group.slice(1).map((one) => one.labels.node || one.annotations.summary))].sort((one, other) => one.localeCompare(other, "en", {numeric: true}));
      cards.append(el("div", {class: "card " + kind},
        el("h3", {}, sign(mark), alert.annotations.summary || alert.labels.alertname),
        group.length > 3 ? el("p", {}, "And " + (group.length - 1) + " more, on " + others.slice(0, 12).join(", ") + (others.length > 12 ? ", ..." : "")) : null,
        el("dl", {}, el("dt", {}, "Do this"), el("dd", {}, alert.annotations.fix || ""),
          el("dt", {}, "Since"), el("dd", {}, moment(Date.parse(alert.activeAt) / 1000) + " (" + alert.labels.alertname + ", " + alert.labels.severity + ")"))));
    }
  }
  if (!firing.length) place.append(el("p", {class: "mut"}, "None fires."));
  const pending = alerts.filter((one) => one.state === "pending" && one.labels.severity in SEVERITIES && wanted(one.labels)).length;
  if (pending) place.append(el("p", {class: "mut"}, many(pending, "more condition has", "more conditions have") + " begun, and will fire if it lasts."));
  return void 0;
}

// ---- The overview

const total = (answers) => answers.reduce((sum, one) => sum + one.value, 0);

function fact(kind, mark, name, number, words) {
  return el("li", {class: "fact " + kind}, el("span", {class: "mut"}, name), el("strong", {}, sign(mark), number), el("span", {}, words));
}

function verifyFact(found) {
  const {verdict} = found.verdict.find((one) => one.subject === "all") || {};
  const others = found.verdict.filter((one) => one.subject !== "all" && ["fail", "unknown"].includes(one.verdict)).map((one) => one.subject + ": " + one.verdict);
  const when = (found.verified.length ? lasting(Math.max(0, Date.now() / 1000 - found.verified[0].value)) + " ago" : "at an unknown time")
    + (others.length ? "; " + others.join(", ") : "");
  if (!verdict) return fact("unknown", "?", "Last verify", "unknown", "No verdict has been reported: clusterctl verify");
  const [mark, kind] = {pass: ["✓", "pass"], fail: ["✕", "fail"]}[verdict] || ["?", "unknown"];
  return fact(kind, mark, "Last verify", verdict, when);
}

// What figures of GPUs are not.
function warnings(found) {
  const names = (answers) => answers.map((one) => one.node).sort().slice(0, 12).join(", ") + (answers.length > 12 ? ", ..." : "");
  const simulated = new Set(found.simulated.map((one) => one.what));
  return [
    simulated.size ? el("p", {class: "note simulated"}, "Simulated: " + [...simulated].join(", ") + ". Their figures say nothing about hardware.") : null,
    found.gpu_silent.length ? el("p", {class: "note unknown"}, "Unknown: the driver has not said how GPUs are on " + names(found.gpu_silent) + ".") : null,
  ].filter(Boolean);
}

function drawFacts(found, nodes, alerts) {
  const place = section("facts", "At a glance");
  const firing = alerts instanceof Error ? [] : alerts.filter((one) => one.state === "firing" && one.labels.severity in SEVERITIES);
  const worst = Object.keys(SEVERITIES).find((word) => firing.some((one) => one.labels.severity === word));
  const jobs = Object.fromEntries(found.jobs.map((one) => [one.state, one.value]));
  const works = nodes.filter((one) => HEALTHY.has(one.word)).length, asleep = nodes.filter((one) => one.word === "asleep").length;
  const [declared, used, free] = ["declared", "allocated", "idle"].map((name) => total(found[name]));
  const resting = nodes.filter((one) => one.word === "asleep").reduce((sum, one) => sum + (one.declared || 0) - (one.allocated || 0), 0);
  const out = declared - used - free - resting;
  const all = el("ul", {class: "facts"});
  all.append(alerts instanceof Error ? fact("unknown", "?", "Alerts", "unknown", "Prometheus did not say")
    : fact(worst ? SEVERITIES[worst][1] : "pass", worst ? SEVERITIES[worst][0] : "✓", "Alerts", String(firing.length), worst ? "the worst is " + worst : "none fires"));
  const lost = nodes.some((one) => CONDITIONS[one.word][1] === "fail");
  all.append(!nodes.length ? fact("unknown", "?", "Nodes", "unknown", "slurmctld does not answer")
    : fact(lost ? "fail" : works + asleep < nodes.length ? "warn" : "pass", lost ? "✕" : works + asleep < nodes.length ? "⊘" : "✓", "Nodes", works + " of " + nodes.length, "take jobs" + (asleep ? ", " + asleep + " asleep" : "")));
  if (declared) all.append(fact(out ? "warn" : "pass", out ? "⊘" : "✓", "GPUs", used + " used", free + " free" + (resting ? ", " + resting + " asleep" : "") + ", " + out + " out"));
  if (nodes.length) {
    all.append(fact("plain", "", "Jobs", (jobs.running || 0) + " running", (jobs.pending || 0) + " pending" + (found.wait.length ? ", the longest wait " + lasting(found.wait[0].value) : "")));
  }
  if (found.ports_declared.length) {
    const active = total(found.ports_active), wanted = total(found.ports_declared);
    all.append(fact(active < wanted ? "fail" : "pass", active < wanted ? "✕" : "✓", "RDMA ports", active + " of " + wanted, "active"));
  }
  all.append(verifyFact(found));
  place.append(all, ...warnings(found));
}

function tile(node) {
  const squares = [];
  for (let gpu = 0; gpu < Math.min(16, node.declared || 0); gpu += 1) {
    squares.push(el("u", {class: gpu < node.allocated ? "used" : gpu < node.allocated + node.idle || node.word === "asleep" ? "" : "out"}));
  }
  const more = [node.declared ? node.allocated + " of " + node.declared + " GPUs used" : "", node.silent ? "its exporter does not answer" : ""].filter(Boolean);
  return el("li", {},
    el("a", {class: "tile " + node.kind, id: "n-" + node.name, href: there({node: node.name})},
      el("b", {"aria-hidden": "true"}, node.mark), el("span", {}, node.name), el("small", {}, node.word + (node.silent ? ", silent" : "")),
      more.length ? el("span", {class: "v"}, ", " + more.join(", ")) : null, squares.length ? el("span", {class: "gpus", "aria-hidden": "true"}, ...squares) : null));
}

function drawNodes(found, nodes) {
  const place = section("nodes", "Nodes");
  if (!found.slurm.some((one) => one.value === 1)) {
    place.append(el("p", {class: "note unknown"}, "slurmctld does not answer, so the states of its nodes are unknown."));
  }
  const counts = new Map();
  for (const node of nodes) counts.set(node.word, (counts.get(node.word) || 0) + 1);
  const known = Object.keys(CONDITIONS).filter((word) => counts.has(word));
  place.append(el("ul", {class: "legend"}, ...known.map((word) => el("li", {class: CONDITIONS[word][1]}, sign(CONDITIONS[word][0]), counts.get(word) + " " + word))));
  place.append(el("ul", {class: nodes.length > 48 ? "tiles small" : "tiles"}, ...nodes.map(tile)));
  if (nodes.some((one) => one.declared)) place.append(el("p", {class: "mut"}, "A square is a GPU: full is used, empty can be had, crossed out takes no job."));
  const out = nodes.filter((one) => !HEALTHY.has(one.word) && one.word !== "asleep");
  if (out.length) {
    place.append(el("h3", {}, "Why nodes are out"), table(["Node", "State", "Reason", "GPUs out"],
      out.map((one) => [toNode(one.name), el("span", {class: one.kind}, sign(one.mark), one.word), one.reason || "none given", String((one.declared || 0) - (one.allocated || 0))])));
  }
  const names = new Set(nodes.map((one) => one.name));
  const others = found.up.filter((one) => !names.has(one.node)).sort((one, other) => one.value - other.value || one.node.localeCompare(other.node, "en", {numeric: true}));
  if (others.length) {
    const silent = others.filter((one) => one.value === 0);
    place.append(el("p", {}, "Other machines: ", ...listed(others.slice(0, 40).map((one) => el("span", {}, toNode(one.node), one.value ? "" : " (does not answer)"))),
      silent.length ? "" : " (each answers)"));
  }
}

function table(titles, rows) {
  return el("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": titles.join(", ")},
    el("table", {}, el("thead", {}, el("tr", {}, ...titles.map((title) => el("th", {scope: "col"}, title)))),
      el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((cell) => el("td", {}, cell)))))));
}

const facts = (pairs) => el("dl", {}, ...pairs.filter((pair) => pair[1]).flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, ...[value].flat())]));

// ---- A node, a job

function drawNode(found) {
  const place = section("facts", "The machine");
  const [node] = nodesOf(found);
  const up = found.up.length ? found.up[0].value === 1 : null;
  place.append(...warnings(found));
  if (!node && up === null) return void place.append(el("p", {class: "note unknown"}, "Neither Slurm nor Prometheus knows a machine of this name."));
  const users = new Map(found.gpu.map((one) => [one.jobid, one.user]));
  place.append(facts([
    ["State", node ? el("span", {class: node.kind}, sign(node.mark), node.word) : "not a node of Slurm, or slurmctld does not answer"],
    ["Reason", node ? node.reason : ""],
    ["Its exporter", up ? "answers" : "does not answer"],
    ["GPUs", node && node.declared ? node.allocated + " used, " + node.idle + " free, " + (node.declared - node.allocated - node.idle) + " out" : ""],
    ["Jobs with GPUs", users.size ? listed(gpusBy(found.gpu, "jobid").map(([number, gpus]) => el("span", {}, toJob(number), " of " + users.get(number) + " (" + gpus + ")"))) : ""],
    ["Machine", found.cpus.length ? found.cpus[0].value + " CPUs, " + shown("bytes", found.memory[0] && found.memory[0].value) : ""],
    ["Kernel", found.kernel.length ? found.kernel[0].release : ""],
    ["Booted", found.boot.length ? lasting(Date.now() / 1000 - found.boot[0].value) + " ago" : ""],
  ]));
  return void 0;
}

// The hours in which a job lived, and then, more finely, from when to when; null where it is not known.
async function lifeOf() {
  const ends = Math.ceil(Date.now() / 1000), asks = (name) => together({life: VIEW.life[name]}, 120);
  const [hours] = (await ask("query_range", {query: asks("hours"), start: ends - 15 * 86400, end: ends, step: 3600})).result;
  if (!hours) return null;
  const start = hours.values[0][0] - 3600, end = hours.values.at(-1)[0], step = Math.max(SCRAPED, Math.ceil((end - start) / 5000));
  const [found] = (await ask("query_range", {query: asks("moments"), start, end, step})).result;
  const [begin, last] = found ? [found.values[0][0], found.values.at(-1)[0]] : [start, end];
  return {begin, end: last, runs: ends - last < 120 + step};
}

function drawJob(found, life) {
  const place = section("facts", "The job");
  if (!life || !found.gpu.length) {
    place.append(el("p", {class: "note unknown"}, "Prometheus has seen no GPU of this job within 15 days. Of a job without GPUs it knows nothing; try: clusterctl job " + JOB));
    return;
  }
  const nodes = gpusBy(found.gpu, "node"), slurm = found.slurm.some((one) => one.value === 1);
  place.append(facts([
    ["User", found.gpu[0].user],
    ["State", life.runs ? "running" : slurm ? "ended" : "unknown: slurmctld does not answer"],
    ["Had its GPUs", "from " + moment(life.begin) + " until " + (life.runs ? "now" : moment(life.end)) + " (" + lasting(life.end - life.begin) + ")"],
    ["GPUs", many(found.gpu.length, "GPU", "GPUs") + " on " + many(nodes.length, "node", "nodes")],
    ["Where", listed(nodes.map(([node, gpus]) => el("span", {}, toNode(node), " (" + gpus + ")")))],
    ["What it used", "clusterctl job " + JOB + "; its user: seff " + JOB],
  ]));
}

// GPUs by the value of a label, folded: 0-3,7.
function gpusBy(answers, label) {
  const groups = new Map();
  for (const one of answers) groups.set(one[label], [...(groups.get(one[label]) || []), Number(one.gpu)]);
  const folded = (numbers) => {
    const runs = [];
    for (const number of [...new Set(numbers)].sort((one, other) => one - other)) {
      if (runs.length && runs.at(-1)[1] === number - 1) runs.at(-1)[1] = number;
      else runs.push([number, number]);
    }
    return "GPU " + runs.map(([first, final]) => (first === final ? first : first + "-" + final)).join(",");
  };
  return [...groups].map(([name, numbers]) => [name, folded(numbers)]).sort(([one], [other]) => one.localeCompare(other, "en", {numeric: true}));
}

// ---- The fabric: a line for each node, a field for each port

function drawFabric(found) {
  const key = (one) => one.node + " " + one.device + " " + (one.port || "");
  const byPort = (name) => new Map(found[name].map((one) => [key(one), one.value]));
  const unused = new Set(found.rdma_unused.map((one) => one.node + " " + one.device));
  const [declared, wanted] = ["rate_", ""].map((kind) => new Map(found["rdma_" + kind + "declared"].map((one) => [one.node, one.value])));
  const [downed, errors] = ["downed", "errors"].map((name) => byPort("rdma_" + name));
  const ports = [];
  for (const kind of ["eth", "rdma"]) {
    const [rate, received, sent] = ["rate", "in", "out"].map((name) => byPort(kind + "_" + name));
    for (const one of found[kind + "_state"]) {
      const port = key(one);
      ports.push({
        node: one.node, kind, state: one.value, line: rate.get(port), traffic: Math.max(received.get(port) || 0, sent.get(port) || 0),
        name: one.device + (kind === "eth" || one.port === "1" ? "" : ":" + one.port), unused: unused.has(one.node + " " + one.device),
        declared: kind === "rdma" ? declared.get(one.node) : undefined, downed: downed.get(port), errors: errors.get(port),
      });
    }
  }
  const place = section("ports", "Ports beside their line rate");
  if (wanted.size && !found.rdma_state.length) place.append(el("p", {class: "note unknown"}, "No machine has reported an RDMA port, though " + many(wanted.size, "machine", "machines") + " should have some."));
  if (!ports.length) return void place.append(el("p", {class: "mut"}, "No machine has reported a port."));
  place.append(el("p", {class: "mut"}, "The busier direction of each port, as a part of its line rate. Nodes with trouble come first."), matrix(ports, wanted));
  return void 0;
}

// What is to be said of a port: a class, a sign, words.
function judged(port, usual) {
  if (port.unused) return ["skip", "·", "unused"];
  if (port.kind === "eth" && !port.state) return ["skip", "·", "no link"];
  if (port.kind === "rdma" && port.state !== 4) return ["fail", "✕", "down"];
  if (port.line < port.declared * 0.99) return ["warn", "!", shown("bps", port.line) + ", not " + shown("bps", port.declared)];
  if (port.downed) return ["warn", "!", many(Math.round(port.downed), "time", "times") + " down within 1 h"];
  if (port.errors) return ["warn", "!", many(Math.round(port.errors), "error", "errors") + " within 1 h"];
  if (!port.line) return ["load0", "", shown("bps", port.traffic)];
  const part = port.traffic / port.line;
  return ["load" + Math.min(4, Math.floor(part * 5)), "", UNITS.percentunit(part) + (port.line === usual ? "" : " of " + shown("bps", port.line))];
}

function matrix(ports, wanted) {
  const nodes = new Map(), columns = new Map();
  const put = (map, name, value) => (map.has(name) ? map.get(name) : map.set(name, value).get(name));
  for (const port of ports) {
    put(nodes, port.node, new Map()).set(port.name, port);
    const rates = put(columns, port.name, {kind: port.kind, rates: new Map()}).rates;
    if (port.line) rates.set(port.line, (rates.get(port.line) || 0) + 1);
  }
  // The line rate that most ports of a column have.
  for (const column of columns.values()) column.usual = ([...column.rates].sort((one, other) => other[1] - one[1])[0] || [])[0];
  const titles = [...columns].sort(([one, {kind}], [other, two]) => kind.localeCompare(two.kind) || one.localeCompare(other, "en", {numeric: true}));
  const lacks = (name, fields) => [...fields.values()].filter((one) => one.kind === "rdma" && !one.unused).length < (wanted.get(name) || 0);
  const rows = [...nodes].map(([name, fields]) => {
    const cells = titles.map(([title, {usual}]) => (fields.has(title) ? judged(fields.get(title), usual) : ["", "", ""]));
    return {name, cells, lacks: lacks(name, fields), bad: cells.filter(([kind]) => kind === "fail" || kind === "warn").length + (lacks(name, fields) ? 1 : 0)};
  });
  rows.sort((one, other) => other.bad - one.bad || one.name.localeCompare(other.name, "en", {numeric: true}));
  return el("div", {},
    el("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of ports"}, el("table", {class: "matrix"},
      el("thead", {}, el("tr", {}, el("th", {scope: "col"}, "Node"), ...titles.map(([title, {usual}]) => el("th", {scope: "col"}, title, el("small", {}, usual ? shown("bps", usual) : "rate unknown"))))),
      el("tbody", {}, ...rows.slice(0, 300).map((row) => el("tr", {},
        el("th", {scope: "row"}, toNode(row.name), row.lacks ? el("small", {class: "fail"}, "fewer than its " + wanted.get(row.name)) : null),
        ...row.cells.map(([kind, mark, words]) => el("td", {class: "c " + kind}, mark ? sign(mark) : null, words))))))),
    rows.length > 300 ? el("p", {class: "mut"}, rows.length - 300 + " more nodes are not shown.") : null);
}

// ---- Plots

const STROKES = [[], [7, 4], [2, 3], [9, 3, 2, 3]];
// Asked for at each drawing: paper is light, whatever the screen is.
const ink = (name, clear) => () => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim() + (clear || "");
const AREAS = ["s0", "s2", "s1", "skip", "s3"];
const stroke = (place) => ["s" + (place % 5), STROKES[Math.floor(place / 5) % 4].length ? STROKES[Math.floor(place / 5) % 4] : place % 2 ? [7, 4] : []];

// A piece of the line as it is drawn, for the legend: a copy of the page's own empty drawing.
function swatch(name, dash, filled, width) {
  const picture = document.getElementById("swatch").cloneNode(true), drawn = picture.querySelector(filled ? "rect" : "line");
  picture.removeAttribute("id");
  picture.replaceChildren(drawn);
  drawn.setAttribute(filled ? "fill" : "stroke", "var(--" + name + ")");
  if (width) drawn.setAttribute("stroke-width", width);
  if (dash.length) drawn.setAttribute("stroke-dasharray", dash.join(" "));
  return picture;
}

// A label in a line's name. The number of a GPU is NVML's; where its device file has another, this is said, too.
function said(label, labels) {
  const value = labels[label] || "?";
  if (label === "device" && labels.gpu !== undefined) return value === "nvidia" + labels.gpu || value === "?" ? "" : "(" + value + ")";
  return ({gpu: "GPU ", port: "port "}[label] || "") + value;
}

// The answer to a range as columns: times, and for each line its name and values.
function columns(result, panel, place, range) {
  const times = [];
  for (let time = range.start; time <= range.end; time += range.step) times.push(time);
  const lines = [], limits = [];
  for (const one of result) {
    const [number, kind, ...rest] = one.metric.ask.split(" ");
    if (Number(number) !== place) continue;
    const values = new Array(times.length).fill(null);
    for (const [time, value] of one.values) {
      const number = Number(value);
      if (Number.isFinite(number)) values[Math.round((time - range.start) / range.step)] = number;
    }
    (kind === "limit" ? limits : lines).push({ask: rest.join(" "), labels: one.metric, values});
  }
  // One machine's name, or one port's number, before all lines says nothing.
  const by = (panel.by || []).filter((label) => !["node", "port"].includes(label) || panel.by.length === 1 || new Set(lines.map((line) => line.labels[label])).size > 1);
  for (const line of lines) line.name = by.map((label) => said(label, line.labels)).filter(Boolean).join(" ") || line.ask;
  for (const line of limits) line.name = line.ask;
  const order = Object.keys(panel.lines);
  lines.sort((one, other) => order.indexOf(one.ask) - order.indexOf(other.ask) || one.name.localeCompare(other.name, "en", {numeric: true}));
  return {times, lines, limits};
}

const last = (values) => values.findLastIndex((one) => one !== null);

// What is drawn, and what the legend says at a time. More lines than one can tell apart become a band: lowest, median, highest.
function pictured(panel, {times, lines, limits}) {
  // A line of a single value would not be seen.
  const few = [...lines, ...limits].every((line) => line.values.filter((one) => one !== null).length < 3);
  const series = [{}], data = [times], bands = [], legend = [];
  const say = (value) => shown(panel.unit, value);
  const put = (values, looks) => data.push(values) && series.push({points: {show: few, size: 6}, width: 2, ...looks});
  if (panel.stack) {
    let below = times.map(() => 0);
    const sums = lines.map((line) => (below = line.values.map((value, at) => (value === null ? below[at] : below[at] + Math.max(0, value)))));
    const known = times.map((_, at) => lines.some((line) => line.values[at] !== null));
    for (let place = lines.length - 1; place >= 0; place -= 1) {
      const name = AREAS[place % 5];
      put(sums[place].map((value, at) => (known[at] ? value : null)), {stroke: ink(name), fill: ink(name, "99"), width: 1.5});
      legend.push({name: lines[place].name, mark: swatch(name, [], true), at: (at) => say(lines[place].values[at])});
    }
    for (let place = 1; place < lines.length; place += 1) bands.push({series: [place, place + 1], fill: ink(AREAS[(lines.length - place) % 5], "99")});
  } else if (lines.length > EACH) {
    const sorted = times.map((_, at) => lines.filter((line) => line.values[at] !== null).sort((one, other) => one.values[at] - other.values[at]));
    for (const [name, pick, looks] of [["highest", (all) => all.at(-1), {width: 1}], ["median of " + lines.length, (all) => all[Math.floor(all.length / 2)], {width: 3}], ["lowest", (all) => all[0], {width: 1, dash: [2, 3]}]]) {
      put(sorted.map((all, at) => (all.length ? pick(all).values[at] : null)), {stroke: ink("s0"), ...looks});
      legend.push({name, mark: swatch("s0", looks.dash || [], false, looks.width), at: (at) => {
        const found = pick(sorted[at] || []);
        return found ? say(found.values[at]) + (name.startsWith("median") ? "" : ", " + found.name) : "none";
      }});
    }
    bands.push({series: [1, 3], fill: ink("s0", "33")});
  } else {
    lines.forEach((line, place) => {
      const [name, dash] = stroke(place);
      put(line.values, {stroke: ink(name), dash});
      legend.push({name: line.name, mark: swatch(name, dash, false), at: (at) => say(line.values[at])});
    });
  }
  for (const limit of limits) {
    put(limit.values, {stroke: ink("mut"), dash: [3, 5], width: 1.5});
    legend.push({name: limit.name, mark: swatch("mut", [3, 5], false), at: (at) => say(limit.values[at])});
  }
  return {series, data, bands, legend};
}

const doubled = Array.from({length: 51}, (_, place) => 2 ** place);
const INCREMENTS = {bytes: doubled, s: [0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400, 172800, 864000]};

function drawPlot(place, panel, found) {
  const box = el("div", {class: "plot", "aria-hidden": "true"});
  const {series, data, bands, legend} = pictured(panel, found);
  const when = el("span", {class: "mut"});
  const texts = legend.map((one) => el("b", {}));
  const end = Math.max(...data.slice(1).map(last));
  const tell = (at) => {
    legend.forEach((one, number) => { texts[number].textContent = one.at(at); });
    when.textContent = at === end && !found.ended ? "" : moment(found.times[at]);
  };
  tell(end);
  place.append(el("figure", {}, el("figcaption", {}, el("h3", {}, panel.title), when),
    box, el("ul", {class: "lines"}, ...legend.map((one, number) => el("li", {}, one.mark, el("span", {}, one.name), texts[number])))));
  const first = Math.min(...data.slice(1).map((values) => values.findIndex((one) => one !== null)).filter((one) => one >= 0));
  const values = data.slice(1).flat().filter((one) => one !== null);
  const most = Math.max(0, ...values), least = Math.min(0, ...values) * 1.08;
  const axis = {stroke: ink("mut"), grid: {stroke: ink("line"), width: 1}, ticks: {show: false}, font: "12px system-ui, DejaVu Sans, sans-serif"};
  const midnight = (time) => new Date(time * 1000).getHours() === 0 && new Date(time * 1000).getMinutes() === 0;
  const options = {
    width: Math.max(200, box.clientWidth), height: 170, series, bands, legend: {show: false}, padding: [8, 18, 0, 0],
    cursor: {drag: {x: false, y: false}, y: false, points: {show: false}, sync: {key: "all"}},
    scales: {
      x: {time: true, range: () => [found.times[Math.min(first, Math.max(0, end - 20))], found.times.at(-1)]},
      y: {range: () => [least, panel.unit === "percentunit" ? Math.max(1, most) * 1.02 : most > 0 ? most * 1.08 : 1]},
    },
    axes: [
      {...axis, size: 26, space: 42, incrs: [60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800], values: (_, splits) => splits.map((time) => (midnight(time) ? day.format(time * 1000) : clock.format(time * 1000)))},
      {...axis, size: 70, space: 30, incrs: INCREMENTS[panel.unit], values: (_, splits) => splits.map((value) => shown(panel.unit, value))},
    ],
    hooks: {setCursor: [(drawn) => tell(drawn.cursor.idx === null || drawn.cursor.idx === undefined ? end : drawn.cursor.idx)]},
  };
  plots.push({drawn: new uPlot(options, data, box), box});
}

function drawRow(row, number, result, range) {
  const rows = document.getElementById("rows") || main.appendChild(el("div", {id: "rows"}));
  const place = section("row" + number, row.title, rows);
  if (result instanceof Error) return void place.append(el("p", {class: "note unknown"}, "Prometheus did not answer: ", result.message));
  const found = row.panels.map((panel, at) => ({...columns(result, panel, at, range), ended: range.ended}));
  const empty = row.panels.filter((_, at) => !found[at].lines.length);
  // Rows share a line where there is room for all of their plots.
  const drawn = row.panels.length - empty.length;
  place.style.flex = drawn ? drawn + " 1 " + drawn * 240 + "px" : "1 1 100%";
  place.style.maxWidth = drawn ? drawn * 420 + "px" : "100%";
  if (!drawn) return void place.append(el("p", {class: "mut"}, row.without));
  const grid = el("div", {class: "plots"});
  place.append(grid);
  row.panels.forEach((panel, at) => found[at].lines.length && drawPlot(grid, panel, found[at]));
  if (empty.length) place.append(el("p", {class: "mut"}, "No figures in this time: " + empty.map((panel) => panel.title).join("; ") + (NAME === "overview" && number === 0 && empty.length > 1 ? ". " + row.without : ".")));
  return void 0;
}

// ---- The whole page

let asked = 0, timer = 0, answered = "";
const failed = (error) => error;

function span(life) {
  const chosen = RANGES.get(address.get("range"));
  const lived = life && !chosen, end = lived && !life.runs ? life.end + 60 : Date.now() / 1000, start = lived ? life.begin - 60 : end - (chosen || RANGES.get(USUAL));
  const step = Math.max(SCRAPED, Math.ceil((end - start) / POINTS / SCRAPED) * SCRAPED);
  // The last moment is the newest, however long a step is.
  const until = Math.floor(end / SCRAPED) * SCRAPED;
  return {start: until - Math.floor((until - start) / step) * step, end: until, step, ended: end < Date.now() / 1000 - 180};
}

async function draw() {
  asked = 0;
  const focus = document.activeElement ? document.activeElement.id : "";
  const [told, found] = await Promise.all([ask("alerts").then((data) => data.alerts, failed), now(VIEW.now)]);
  plots.splice(0).forEach((one) => one.drawn.destroy());
  let life = null;
  if (NAME === "overview") {
    const nodes = nodesOf(found);
    drawFacts(found, nodes, told);
    drawAlerts(told, () => true);
    drawNodes(found, nodes);
  } else if (NAME === "node") {
    drawNode(found);
    drawAlerts(told, (labels) => labels.node === NODE);
  } else if (NAME === "job") {
    life = await lifeOf().catch(() => null);
    drawJob(found, life);
    if (life) drawAlerts(told, (labels) => found.gpu.some((one) => one.node === labels.node));
  } else {
    drawAlerts(told, (labels) => labels.alertname.startsWith("Rdma"));
    drawFabric(found);
  }
  if (NAME !== "job" || life) {
    const range = span(life);
    const answers = await Promise.all(VIEW.rows.map((row) => {
      const asks = {};
      row.panels.forEach((panel, at) => {
        for (const [name, one] of Object.entries(panel.lines)) asks[at + " line " + name] = one;
        for (const [name, one] of Object.entries(panel.limit || {})) asks[at + " limit " + name] = one;
      });
      const query = together(asks, Math.max(120, range.step + SCRAPED));
      return ask("query_range", {query, start: range.start, end: range.end, step: range.step}).then((data) => data.result, failed);
    }));
    VIEW.rows.forEach((row, number) => drawRow(row, number, answers[number], range));
  }
  say("mut", "As of " + clock.format(Date.now()));
  answered = clock.format(Date.now());
  if (focus && document.getElementById(focus)) document.getElementById(focus).focus({preventScroll: true});
  document.body.dataset.questions = String(asked);
  document.body.dataset.ready = "yes";
}

function say(kind, words) {
  const status = document.getElementById("status");
  status.className = kind;
  status.textContent = words;
}

let drawing = false;

// One at a time: where Prometheus is slow, questions would pile up there.
async function show() {
  if (drawing) return;
  drawing = true;
  await draw().catch(unanswered);
  drawing = false;
}

function unanswered(error) {
  say("note fail", "Prometheus does not answer: " + error.message + ". Is the ssh command of clusterctl monitor open still running?" + (answered ? " The figures below are of " + answered + "." : ""));
  document.body.dataset.ready = "failed";
}

function head() {
  const title = {overview: "Overview", fabric: "Fabric", node: "Node " + NODE, job: "Job " + JOB}[NAME];
  document.title = title + ", " + CLUSTER;
  document.querySelector("h1").textContent = title;
  const chosen = address.get("range") || (NAME === "job" ? "" : USUAL);
  const link = (name, more, current) => el("a", {href: there(more), "aria-current": current ? "page" : undefined}, name);
  const same = {...(NODE !== null ? {node: NODE} : JOB !== null ? {job: JOB} : NAME === "fabric" ? {view: "fabric"} : {})};
  document.getElementById("views").append(link("Overview", {view: "overview"}, NAME === "overview"), link("Fabric", {view: "fabric"}, NAME === "fabric"));
  document.getElementById("ranges").append(...(NAME === "job" ? [link("its life", same, !chosen)] : []), ...[...RANGES.keys()].map((one) => link(one, {...same, range: one}, one === chosen)));
  document.getElementById("pause").addEventListener("change", wait);
}

function wait() {
  clearInterval(timer);
  if (!document.getElementById("pause").checked) {
    timer = setInterval(() => document.visibilityState === "visible" && !matchMedia("print").matches && show(), 30000);
  }
}

function fit() {
  for (const {drawn, box} of plots) drawn.setSize({width: Math.max(200, box.clientWidth), height: 170});
}

function start() {
  if (NODE !== null && !RegExp("^[A-Za-z0-9._-]{1,253}$").test(NODE)) return "This is no name of a node.";
  if (JOB !== null && !RegExp("^[0-9]{1,19}$").test(JOB)) return "A job is a number.";
  head();
  addEventListener("resize", fit);
  for (const media of ["print", "(prefers-color-scheme: dark)"]) matchMedia(media).addEventListener("change", () => (media === "print" ? fit() : show()));
  wait();
  show();
  return "";
}

const refused = start();
if (refused) {
  say("note fail", refused);
  document.body.dataset.ready = "refused";
}
