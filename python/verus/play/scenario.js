// Runs: the address, the scenario for the simulator, and the equivalent command.

export const PACKET = 1500;

/** The initial state of the page: one Cubic flow with a buffer of a second. */
export const DEFAULTS = {
  scheme: "cubic", beside: "", trace: "rate:12", draw: "", queue: "droptail:bytes=1500000",
  delay: 20, loss: 0, flows: 1, duration: 60, seed: 1, speed: 1, mode: "",
};
export const RATES = [0.5, 1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50];
export const LOSSES = [0, 0.0001, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05];
/** The most that can be drawn, Mbit/s. */
export const TOP = 40;

const WITHIN = { delay: [0, 1000], loss: [0, 0.5], flows: [1, 10], duration: [1, 600], seed: [0, 2 ** 31], speed: [0.25, 16] };

const WHOLE = ["flows", "seed"];
/** The most letters of a wrong address that a message repeats. */
const SAID = 60;

/** The `state` in an address, with defaults for absent and invalid values, and the list of `wrong` ones. */
export function read(hash) {
  const state = { ...DEFAULTS }, wrong = [];
  for (const [key, value] of new URLSearchParams(hash.replace(/^#/, ""))) {
    const given = `${key}=${value}`, said = given.length > SAID ? `${given.slice(0, SAID)}…` : given;
    const not = (why) => wrong.push(`${said} ${why}`);
    if (!Object.hasOwn(DEFAULTS, key)) not(`is unknown (known: ${Object.keys(DEFAULTS).join(", ")})`);
    else if (Object.hasOwn(WITHIN, key)) {
      const number = Number(value), [least, most] = WITHIN[key], whole = WHOLE.includes(key);
      if (value.trim() !== "" && number >= least && number <= most && (!whole || Number.isInteger(number))) state[key] = number;
      else not(`is no ${whole ? "whole number" : "number"} from ${least} to ${most}: ${DEFAULTS[key]} is taken`);
    } else if (key === "draw" && value && !drawn({ draw: value })) not("is no list of at most 600 rates from 0 to 1000 Mbit/s: nothing is drawn");
    else if (key === "mode" && !["", "you"].includes(value)) not("is neither empty nor you");
    else state[key] = value;
  }
  return { state, wrong };
}

/** The address of a state: what differs from the default. */
export function write(state) {
  const given = Object.entries(state).filter(([key, value]) => key in DEFAULTS && value !== DEFAULTS[key]);
  // Letters that need no escape stay readable.
  return "#" + new URLSearchParams(given).toString().replaceAll("%3A", ":").replaceAll("%2C", ",").replaceAll("%3D", "=").replaceAll("%40", "@");
}

/** The rate that was drawn for each second, Mbit/s; null where none was. */
export function drawn(state) {
  if (!state.draw) return null;
  const rates = state.draw.split(",").map(Number);
  return rates.length <= 600 && rates.every((rate) => rate >= 0 && rate <= 1000) ? rates : null;
}

/** The channel and its changes. */
function channel(state) {
  const rates = drawn(state);
  if (!rates) return { trace: state.trace };
  const changes = rates
    .map((rate_mbps, at_s) => ({ at_s, rate_mbps }))
    .filter(({ at_s, rate_mbps }) => at_s > 0 ? rate_mbps !== rates[at_s - 1] : rate_mbps === 0);
  return { trace: `rate:${rates[0] || 1}`, changes };
}

/** The contestants, with one scenario for each. */
export const contestants = (state) =>
  state.mode === "you" ? ["hand", "verus"] : [state.scheme, ...(state.beside ? [state.beside] : [])];

export const flowsOf = (state) => (state.mode === "you" ? 1 : state.flows);

export function scenario(state, scheme) {
  return {
    ...channel(state),
    queue: state.queue,
    delay_ms: state.delay,
    loss: state.loss,
    duration_s: state.duration,
    seed: state.seed,
    flows: Array.from({ length: flowsOf(state) }, () => ({ scheme })),
  };
}

const quoted = (word) => (/^[\w@%+=:,./[\]-]+$/.test(word) && !/[[\]]/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`);

/** The command that runs the same scenario. */
export function command(state) {
  const { trace, changes } = channel(state);
  const schemes = contestants(state).filter((scheme) => scheme !== "hand");
  const words = ["verus", "compare", "--trace", trace, "--scheme", ...new Set(schemes), "--queue", state.queue];
  words.push("--delay-ms", state.delay, "--duration", state.duration);
  if (state.loss) words.push("--loss", state.loss);
  if (flowsOf(state) > 1) words.push("--flows", flowsOf(state));
  if (state.seed !== 1) words.push("--seed", state.seed);
  const said = words.map((word) => quoted(String(word))).join(" ");
  return changes?.length ? `${said} --changes <(echo '${JSON.stringify(changes)}')` : said;
}
